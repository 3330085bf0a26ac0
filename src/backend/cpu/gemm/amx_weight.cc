#include "backend/cpu/gemm/amx_weight.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/core.h>

#include "backend/cpu/gemm/packed_scales.h"
#include "backend/weight_check.h"
#include "base/check.h"

namespace quire::cpu::gemm {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

AmxLayout layout_for(const GroupedRows& rows) {
  const bool whole_blocks = rows.group_size % kBlockK == 0;
  if (rows.bits <= 4) return whole_blocks ? kAmx4 : kAmx4Halves;
  if (rows.bits == 5 && whole_blocks) return kAmx5;
  if (rows.bits <= 6) return kAmx6;
  return rows.mins.empty() ? kAmx8 : kAmx8Unsigned;
}

int segment_of(int layout) {
  return layout == kAmx4 || layout == kAmx5 ? kBlockK : kBlockK / 2;
}

void or_byte(std::uint8_t& byte, int bits) {
  byte = static_cast<std::uint8_t>(byte | bits);
}

// Puts 32 values of one column into a zeroed block of the layout (amx.h).
void pack_column(int layout, const std::uint8_t* q, int zero, int column, std::uint8_t* block) {
  switch (layout) {
    case kAmx4:
    case kAmx4Halves:
    case kAmx5: {
      std::uint8_t* nibbles = block + 64 * (column / 4) + column % 4 / 2;
      for (int k = 0; k < kBlockK; ++k) or_byte(nibbles[2 * k], (q[k] & 15) << (column % 2 * 4));
      if (layout != kAmx5) return;
      std::uint8_t* plane = block + 256 + column / 8;
      for (int k = 0; k < kBlockK; ++k) or_byte(plane[2 * k], (q[k] >> 4 & 1) << (column % 8));
      return;
    }
    case kAmx6: {
      const int vector = column / 2;
      std::uint8_t* nibbles = block + 64 * (vector % 4) + 32 * (column % 2);
      std::uint8_t* upper = block + 256 + 64 * (vector / 4) + 32 * (column % 2);
      for (int k = 0; k < kBlockK; ++k) {
        or_byte(nibbles[k], (q[k] & 15) << (vector / 4 * 4));
        or_byte(upper[k], (q[k] >> 4 & 3) << (2 * (vector % 4)));
      }
      return;
    }
    default:
      for (int k = 0; k < kBlockK; ++k) block[32 * column + k] = static_cast<std::uint8_t>(q[k] - zero);
  }
}

// The stored integer of one column and feature; what pack_column() put there.
int value_in_block(int layout, const std::uint8_t* block, int column, int k) {
  if (layout == kAmx8) return static_cast<std::int8_t>(block[32 * column + k]);
  if (layout == kAmx8Unsigned) return block[32 * column + k];
  if (layout == kAmx6) {
    const int vector = column / 2;
    const int at = 32 * (column % 2) + k;
    return (block[64 * (vector % 4) + at] >> (vector / 4 * 4) & 15) |
           (block[256 + 64 * (vector / 4) + at] >> (2 * (vector % 4)) & 3) << 4;
  }
  int value = block[64 * (column / 4) + column % 4 / 2 + 2 * k] >> (column % 2 * 4) & 15;
  if (layout == kAmx5) value |= (block[256 + column / 8 + 2 * k] >> (column % 8) & 1) << 4;
  return value;
}

}  // namespace

AmxWeight::AmxWeight(const Shape& shape)
    : CpuWeight(shape.n, shape.k),
      layout_(shape.layout),
      group_size_(shape.group_size),
      zero_(shape.zero),
      has_mins_(shape.has_mins),
      num_groups_(shape.group_size == 0 ? 0 : ceil_div(num_blocks() * kBlockK, shape.group_size)) {}

int AmxWeight::bits() const {
  constexpr int kBits[kNumAmxLayouts] = {16, 4, 4, 5, 6, 8, 8};
  return kBits[layout_];
}

std::int64_t AmxWeight::block_bytes() const {
  return 64 * bits();
}

std::size_t AmxWeight::num_bytes() const {
  return data_.size() + scales_.size() + mins_.size() + super_scales_.size() + super_mins_.size();
}

std::size_t AmxWeight::tile_bytes() const {
  return num_bytes() / static_cast<std::size_t>(2 * num_pairs());
}

std::string AmxWeight::layout_name() const {
  if (layout_ == kAmxBf16) return "bf16 (amx)";
  const char* scales = scale_kind_ == kScaleCodes ? "code" : scale_kind_ == kScaleF16 ? "f16" : "f32";
  return fmt::format("int{} g{} {}-scale{} (amx)", bits(), group_size_, scales, has_mins_ ? "+min" : "");
}

AmxWeights AmxWeight::view() const {
  AmxWeights view = {};
  view.data = data_.as<std::uint8_t>();
  view.num_blocks = num_blocks();
  view.layout = layout_;
  if (layout_ == kAmxBf16) return view;
  view.scales = scales_.data();
  view.mins = has_mins_ ? mins_.data() : nullptr;
  view.super_scales = scale_kind_ == kScaleCodes ? super_scales_.as<std::uint16_t>() : nullptr;
  view.super_mins = scale_kind_ == kScaleCodes && has_mins_ ? super_mins_.as<std::uint16_t>() : nullptr;
  view.num_groups = num_groups_;
  view.num_supers = num_supers_;
  view.scale_kind = scale_kind_;
  view.zero = zero_;
  view.segments_per_group = group_size_ / segment_of(layout_);
  view.groups_per_super = groups_per_super_;
  return view;
}

float AmxWeight::scale_at(const Buffer& values, const Buffer& supers, std::int64_t row, std::int64_t group,
                          bool is_min) const {
  const std::int64_t column = row % kAmxPairCols;
  const std::int64_t at = (row / kAmxPairCols * num_groups_ + group) * kAmxPairCols + column;
  if (scale_kind_ == kScaleF32) return values.as<float>()[at];
  if (scale_kind_ == kScaleF16) return f16_to_f32(values.as<std::uint16_t>()[at]);
  const std::int64_t super_at =
      (row / kAmxPairCols * num_supers_ + group / groups_per_super_) * kAmxPairCols + column;
  const float super = f16_to_f32(supers.as<std::uint16_t>()[super_at]);
  return super * static_cast<float>(is_min ? values.as<std::uint8_t>()[at] : values.as<std::int8_t>()[at]);
}

void AmxWeight::dequantize_row(std::int64_t row, float* out) const {
  const int column = static_cast<int>(row % kTileCols);
  const auto* data = data_.as<std::uint8_t>() + row / kAmxPairCols * num_blocks() * 2 * block_bytes() +
                     row % kAmxPairCols / kTileCols * block_bytes();
  const int zero = layout_ == kAmx8 ? 0 : zero_;  // kAmx8 holds q - zero
  const std::int64_t step = layout_ == kAmxBf16 ? kBlockK : segment_of(layout_);
  for (std::int64_t begin = 0; begin < k(); begin += step) {
    const std::uint8_t* block = data + begin / kBlockK * 2 * block_bytes();
    const std::int64_t end = std::min(begin + step, k());
    if (layout_ == kAmxBf16) {
      for (std::int64_t c = begin; c < end; ++c) {
        std::uint16_t half;
        std::memcpy(&half, block + 64 * column + 2 * (c % kBlockK), sizeof(half));
        out[c] = bf16_to_f32(half);
      }
      continue;
    }
    const std::int64_t group = begin / group_size_;
    const float scale = scale_at(scales_, super_scales_, row, group, false);
    const float min = has_mins_ ? scale_at(mins_, super_mins_, row, group, true) : 0.0f;
    for (std::int64_t c = begin; c < end; ++c) {
      const int q = value_in_block(layout_, block, column, static_cast<int>(c % kBlockK));
      out[c] = has_mins_ ? scale * static_cast<float>(q) - min : scale * static_cast<float>(q - zero);
    }
  }
}

Result<std::unique_ptr<PackedWeight>> AmxWeight::pack(const GroupedRows& rows, ThreadPool& pool) {
  QUIRE_CHECK_EQ(rows.group_size % (kBlockK / 2), 0);
  std::unique_ptr<AmxWeight> weight(new AmxWeight(
      {rows.n, rows.k, layout_for(rows), rows.group_size, rows.constant_zero, !rows.mins.empty()}));
  std::uint32_t seen = 0;
  weight->fill_values(rows, pool, seen);
  QUIRE_RETURN_IF_ERROR(check_value_bits(static_cast<std::uint8_t>(seen), rows.bits));
  weight->fill_scales(rows, pool);
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

// seen: the bitwise or of every value.
void AmxWeight::fill_values(const GroupedRows& rows, ThreadPool& pool, std::uint32_t& seen) {
  data_ = Buffer(static_cast<std::size_t>(num_pairs() * num_blocks() * 2 * block_bytes()));
  auto* const data = data_.as<std::uint8_t>();
  std::atomic<std::uint32_t> all_seen{0};
  pool.run(num_tiles(), [&](std::int64_t tile) {
    std::uint32_t own_seen = 0;
    std::uint8_t* const out = data + tile / 2 * num_blocks() * 2 * block_bytes() + tile % 2 * block_bytes();
    const std::int64_t first_row = tile * kTileCols;
    for (std::int64_t b = 0; b < num_blocks(); ++b) {
      const std::int64_t count = std::min<std::int64_t>(kBlockK, k() - b * kBlockK);
      for (int column = 0; column < kTileCols && first_row + column < n(); ++column) {
        const std::uint8_t* q = rows.q.data() + (first_row + column) * k() + b * kBlockK;
        std::uint8_t rest[kBlockK];
        if (count < kBlockK) {  // features beyond k have a scale of zero or are the format's zero
          std::memset(rest, zero_, sizeof(rest));
          std::memcpy(rest, q, static_cast<std::size_t>(count));
          q = rest;
        }
        for (std::int64_t i = 0; i < count; ++i) own_seen |= q[i];
        pack_column(layout_, q, zero_, column, out + b * 2 * block_bytes());
      }
    }
    all_seen.fetch_or(own_seen, std::memory_order_relaxed);
  });
  seen = all_seen.load();
}

void AmxWeight::fill_scales(const GroupedRows& rows, ThreadPool& pool) {
  PackedScales packed = pack_scales(rows, kAmxPairCols, num_groups_, pool);
  scale_kind_ = packed.kind;
  groups_per_super_ = packed.groups_per_super;
  num_supers_ = packed.num_supers;
  scales_ = std::move(packed.scales);
  mins_ = std::move(packed.mins);
  super_scales_ = std::move(packed.super_scales);
  super_mins_ = std::move(packed.super_mins);
}

std::unique_ptr<PackedWeight> AmxWeight::pack(const FloatRows& rows, ThreadPool& pool) {
  QUIRE_CHECK(rows.storage == DType::kBf16);
  std::unique_ptr<AmxWeight> weight(new AmxWeight({rows.n, rows.k, kAmxBf16, 0, 0, false}));
  const std::int64_t num_blocks = weight->num_blocks();
  weight->data_ =
      Buffer(static_cast<std::size_t>(weight->num_pairs() * num_blocks * 2 * weight->block_bytes()));
  auto* const data = weight->data_.as<std::uint8_t>();
  pool.run(weight->num_tiles(), [&](std::int64_t tile) {
    std::uint8_t* const out = data + (tile / 2 * num_blocks * 2 + tile % 2) * weight->block_bytes();
    const std::int64_t columns = std::min<std::int64_t>(kTileCols, rows.n - tile * kTileCols);
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto* row =
          static_cast<const std::uint8_t*>(rows.data) + 2 * (tile * kTileCols + column) * rows.k;
      for (std::int64_t c = 0; c < rows.k; c += kBlockK)
        std::memcpy(out + c / kBlockK * 2 * weight->block_bytes() + 64 * column, row + 2 * c,
                    static_cast<std::size_t>(2 * std::min<std::int64_t>(kBlockK, rows.k - c)));
    }
  });
  return weight;
}

PackedImage AmxWeight::image() const {
  PackedImage image;
  image.kind = kKind;
  image.numbers = {{"n", n()},
                   {"k", k()},
                   {"layout", layout_},
                   {"group_size", group_size_},
                   {"zero", zero_},
                   {"has_mins", has_mins_ ? 1 : 0},
                   {"scale_kind", scale_kind_},
                   {"groups_per_super", groups_per_super_}};
  image.arrays = {{"data", data_.bytes()}};
  if (layout_ == kAmxBf16) return image;
  image.arrays.push_back({"scales", scales_.bytes()});
  if (has_mins_) image.arrays.push_back({"mins", mins_.bytes()});
  if (scale_kind_ != kScaleCodes) return image;
  image.arrays.push_back({"super_scales", super_scales_.bytes()});
  if (has_mins_) image.arrays.push_back({"super_mins", super_mins_.bytes()});
  return image;
}

// Every number is checked before it is used: the image may come from a file.
Result<std::unique_ptr<PackedWeight>> AmxWeight::restore(const PackedImage& image,
                                                         std::shared_ptr<const void> owner) {
  constexpr std::int64_t kMaxDim = std::int64_t{1} << 28;  // keeps sizes below 2^63
  const auto misfit = [&](std::string_view what) {
    return invalid(fmt::format("a stored weight of kind \"{}\" has no usable {}", image.kind, what));
  };
  const auto take = [&](std::string_view name, std::int64_t num_bytes) -> Result<Buffer> {
    const auto bytes = image.array(name);
    if (bytes.size() != static_cast<std::size_t>(num_bytes) ||
        reinterpret_cast<std::uintptr_t>(bytes.data()) % kBufferAlignment != 0)
      return misfit(name);
    return Buffer::view(bytes, owner);
  };
  const auto n = image.number("n", 1, kMaxDim);
  const auto k = image.number("k", 1, kMaxDim);
  const auto layout = image.number("layout", 0, kNumAmxLayouts - 1);
  const auto group_size = image.number("group_size", 0, kMaxDim);
  const auto zero = image.number("zero", 0, 255);
  const auto has_mins = image.number("has_mins", 0, 1);
  const auto scale_kind = image.number("scale_kind", kScaleF16, kScaleF32);
  const auto per_super = image.number("groups_per_super", 0, kMaxDim);
  if (!n || !k) return misfit("shape");
  if (!layout || !group_size || !zero || !has_mins) return misfit("layout");
  if (*layout == kAmxBf16 ? *group_size != 0 || *has_mins != 0
                          : *group_size == 0 || *group_size % segment_of(static_cast<int>(*layout)) != 0)
    return misfit("group size");
  if (!scale_kind || !per_super || (*scale_kind == kScaleCodes) != (*per_super > 0)) return misfit("scales");

  std::unique_ptr<AmxWeight> weight(
      new AmxWeight({*n, *k, static_cast<int>(*layout), static_cast<int>(*group_size),
                     static_cast<int>(*zero), *has_mins == 1}));
  weight->scale_kind_ = static_cast<ScaleKind>(*scale_kind);
  const std::int64_t pairs = weight->num_pairs();
  QUIRE_TRY(weight->data_, take("data", pairs * weight->num_blocks() * 2 * weight->block_bytes()));
  if (weight->layout_ == kAmxBf16) return std::unique_ptr<PackedWeight>(std::move(weight));
  const std::int64_t scale_bytes =
      pairs * weight->num_groups_ * kAmxPairCols * static_cast<std::int64_t>(weight->scale_bytes());
  QUIRE_TRY(weight->scales_, take("scales", scale_bytes));
  if (weight->has_mins_) {
    QUIRE_TRY(weight->mins_, take("mins", scale_bytes));
  }
  if (weight->scale_kind_ == kScaleCodes) {
    weight->groups_per_super_ = static_cast<int>(*per_super);
    weight->num_supers_ = ceil_div(weight->num_groups_, *per_super);
    const std::int64_t super_bytes = pairs * weight->num_supers_ * kAmxPairCols * 2;
    QUIRE_TRY(weight->super_scales_, take("super_scales", super_bytes));
    if (weight->has_mins_) {
      QUIRE_TRY(weight->super_mins_, take("super_mins", super_bytes));
    }
  }
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

}  // namespace quire::cpu::gemm
