// Purpose: canonical rows -> tiles. See packed_weight.h; the layout is described in kernel_types.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "backend/compute_mode.h"
#include "backend/cpu/gemm/amx_weight.h"
#include "backend/cpu/gemm/packed_scales.h"
#include "backend/cpu/gemm/packed_weight.h"
#include "backend/weight_check.h"

namespace quire::cpu::gemm {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::uint32_t load_word(const std::uint8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
void or_word(std::uint8_t* p, std::uint32_t bits) {
  const std::uint32_t word = load_word(p) | bits;
  std::memcpy(p, &word, sizeof(word));
}

// 32 values of one column into a zeroed block, four values (one word) at a time. Returns the or of the words.
std::uint32_t pack_column(const std::uint8_t* values, int bits, int column, std::uint8_t* block) {
  std::uint32_t seen = 0;
  std::uint8_t* lane = block + 4 * column;
  for (int quad = 0; quad < 8; ++quad) {
    const std::uint32_t word = load_word(values + 4 * quad);
    seen |= word;
    if (bits == 8) {
      or_word(lane + 64 * quad, word);
      continue;
    }
    or_word(lane + 64 * (quad % 4), (word & 0x0f0f0f0fu) << (quad < 4 ? 0 : 4));
    const std::uint32_t upper = word >> 4;
    if (bits == 5) or_word(lane + 256, (upper & 0x01010101u) << quad);
    if (bits == 6) or_word(lane + 256 + 64 * (quad / 4), (upper & 0x03030303u) << (2 * (quad % 4)));
  }
  return seen;
}

// Calls f(begin, end) for ranges of [0, count) on the pool.
template <typename F>
void for_ranges(ThreadPool& pool, std::int64_t count, std::int64_t range, const F& f) {
  pool.run(ceil_div(count, range),
           [&](std::int64_t part) { f(part * range, std::min(count, (part + 1) * range)); });
}

// A symmetric weight whose q - zero_point does not fit the kernels' signed bytes, as one with minimums.
GroupedRows with_minimums(const GroupedRows& rows) {
  GroupedRows copy = rows;
  copy.constant_zero = 0;
  copy.super_size = 0;
  copy.mins.reserve(rows.scales.size());
  for (const float scale : rows.scales) copy.mins.push_back(scale * static_cast<float>(rows.constant_zero));
  return copy;
}

Result<std::unique_ptr<PackedWeight>> pack_as_f32(const GroupedRows& rows, ThreadPool& pool) {
  const std::int64_t groups_per_row = rows.k / rows.group_size;
  std::vector<float> values(rows.q.size());
  std::atomic<std::uint8_t> seen{0};
  for_ranges(pool, rows.n, 64, [&](std::int64_t begin, std::int64_t end) {
    std::uint8_t all = 0;
    for (std::int64_t i = begin * rows.k; i < end * rows.k; ++i) {
      const auto group = static_cast<std::size_t>(i / rows.k * groups_per_row + i % rows.k / rows.group_size);
      const int q = rows.q[static_cast<std::size_t>(i)];
      all = static_cast<std::uint8_t>(all | q);
      values[static_cast<std::size_t>(i)] =
          rows.mins.empty() ? rows.scales[group] * static_cast<float>(q - rows.constant_zero)
                            : rows.scales[group] * static_cast<float>(q) - rows.mins[group];
    }
    seen.fetch_or(all, std::memory_order_relaxed);
  });
  QUIRE_RETURN_IF_ERROR(check_value_bits(seen.load(), rows.bits));
  const FloatRows dense{rows.n, rows.k, DType::kF32, values.data()};
  return std::unique_ptr<PackedWeight>(std::make_unique<DenseWeight>(
      dense, fmt::format("int{}, whose group size {} is not a multiple of 16", rows.bits, rows.group_size),
      pool));
}

}  // namespace

Status GroupedWeight::fill(const GroupedRows& rows, ThreadPool& pool) {
  const std::int64_t block_bytes = 64 * bits_;
  data_ = Buffer(static_cast<std::size_t>(num_tiles() * num_blocks() * block_bytes));
  std::atomic<std::uint32_t> seen{0};
  pool.run(num_tiles(), [&](std::int64_t tile_index) {
    std::uint8_t* out = data_.as<std::uint8_t>() + tile_index * num_blocks() * block_bytes;
    std::uint32_t all = 0;
    const std::int64_t first_row = tile_index * kTileCols;
    for (int column = 0; column < kTileCols && first_row + column < n(); ++column) {
      const std::uint8_t* row = rows.q.data() + (first_row + column) * k();
      const std::int64_t whole = k() / kBlockK;
      for (std::int64_t b = 0; b < whole; ++b)
        all |= pack_column(row + b * kBlockK, bits_, column, out + b * block_bytes);
      if (whole < num_blocks()) {
        std::uint8_t rest[kBlockK] = {};
        std::memcpy(rest, row + whole * kBlockK, static_cast<std::size_t>(k() % kBlockK));
        all |= pack_column(rest, bits_, column, out + whole * block_bytes);
      }
    }
    seen.fetch_or(all, std::memory_order_relaxed);
  });
  const std::uint32_t words = seen.load();
  QUIRE_RETURN_IF_ERROR(check_value_bits(
      static_cast<std::uint8_t>(words | (words >> 8) | (words >> 16) | (words >> 24)), rows.bits));

  PackedScales packed = pack_scales(rows, kTileCols, num_groups_, pool);
  scale_kind_ = packed.kind;
  groups_per_super_ = packed.groups_per_super;
  num_supers_ = packed.num_supers;
  scales_ = std::move(packed.scales);
  mins_ = std::move(packed.mins);
  super_scales_ = std::move(packed.super_scales);
  super_mins_ = std::move(packed.super_mins);
  return {};
}

DenseWeight::DenseWeight(const FloatRows& rows, std::string origin, ThreadPool& pool)
    : CpuWeight(rows.n, rows.k), storage_(rows.storage), origin_(std::move(origin)) {
  data_ = Buffer(static_cast<std::size_t>(num_tiles()) * tile_bytes());
  pool.run(num_tiles(), [&](std::int64_t tile_index) {
    std::byte* out = data_.data() + static_cast<std::size_t>(tile_index) * tile_bytes();
    const auto width = static_cast<std::int64_t>(dtype_bytes(storage_));
    const std::int64_t first_row = tile_index * kTileCols;
    const std::int64_t columns = std::min<std::int64_t>(kTileCols, n() - first_row);
    // By stretches of features, so that the stretch of the tile stays in the cache for all 16 columns.
    constexpr std::int64_t kFeatures = 256;
    for (std::int64_t begin = 0; begin < k(); begin += kFeatures) {
      const std::int64_t end = std::min(begin + kFeatures, k());
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::byte* row = static_cast<const std::byte*>(rows.data) + (first_row + column) * k() * width;
        if (storage_ == DType::kF32) {
          for (std::int64_t c = begin; c < end; ++c)
            std::memcpy(out + 4 * (c * kTileCols + column), row + 4 * c, 4);
        } else if (storage_ == DType::kF16) {
          for (std::int64_t c = begin; c < end; ++c)
            std::memcpy(out + 2 * (c * kTileCols + column), row + 2 * c, 2);
        } else {
          for (std::int64_t c = begin; c < end; ++c)
            std::memcpy(out + 2 * ((c / 2 * kTileCols + column) * 2 + c % 2), row + 2 * c, 2);
        }
      }
    }
  });
}

namespace {

// rows: minimums, or q - constant_zero fits a signed byte
Result<std::unique_ptr<PackedWeight>> pack_grouped(const GroupedRows& rows, ThreadPool& pool,
                                                   Packing packing) {
  if (packing == Packing::kAmx) return AmxWeight::pack(rows, pool);
  auto weight = std::make_unique<GroupedWeight>(rows);
  QUIRE_RETURN_IF_ERROR(weight->fill(rows, pool));
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows, ThreadPool& pool, Packing packing) {
  QUIRE_RETURN_IF_ERROR(check_rows(rows));
  if (rows.group_size % kIntegerPiece != 0) return pack_as_f32(rows, pool);
  // The float kernels take q - zero as a signed byte.
  const int largest = (1 << (rows.bits <= 4 ? 4 : rows.bits == 7 ? 8 : rows.bits)) - 1;
  const bool fits = rows.constant_zero <= 128 && largest - rows.constant_zero <= 127;
  if (!rows.mins.empty() || fits) return pack_grouped(rows, pool, packing);
  return pack_grouped(with_minimums(rows), pool, packing);
}

Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows, ThreadPool& pool, Packing packing) {
  QUIRE_RETURN_IF_ERROR(check_rows(rows));
  if (packing == Packing::kAmx && rows.storage == DType::kBf16) return AmxWeight::pack(rows, pool);
  return std::unique_ptr<PackedWeight>(std::make_unique<DenseWeight>(rows, "", pool));
}

}  // namespace quire::cpu::gemm
