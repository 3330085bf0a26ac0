#include "backend/cpu/gemm/packed_weight.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "base/check.h"

namespace quire::cpu::gemm {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Value of one column and one feature of a block, by the layout in kernel_types.h.
int value_in_block(const std::uint8_t* block, int bits, int column, int feature) {
  const int quad = feature / 4;
  const int byte = 4 * column + feature % 4;
  if (bits == 8) return block[64 * quad + byte];
  const int pair = block[64 * (quad % 4) + byte];
  int value = quad < 4 ? pair & 15 : pair >> 4;
  if (bits == 5) value |= ((block[256 + byte] >> quad) & 1) << 4;
  if (bits == 6) value |= ((block[256 + 64 * (quad / 4) + byte] >> (2 * (quad % 4))) & 3) << 4;
  return value;
}

}  // namespace

const CpuWeight& CpuWeight::cast(const PackedWeight& weight) {
  const auto* own = dynamic_cast<const CpuWeight*>(&weight);
  QUIRE_CHECK(own != nullptr) << "weight was packed by another backend: " << weight.layout_name();
  return *own;
}

GroupedWeight::GroupedWeight(const GroupedRows& rows)
    : GroupedWeight(rows.n, rows.k,
                    rows.bits <= 4   ? 4
                    : rows.bits == 7 ? 8
                                     : rows.bits,
                    rows.group_size, rows.constant_zero, !rows.mins.empty()) {}

GroupedWeight::GroupedWeight(std::int64_t n, std::int64_t k, int bits, int group_size, int zero,
                             bool has_mins)
    : CpuWeight(n, k),
      bits_(bits),
      group_size_(group_size),
      segment_(group_size % kBlockK == 0 ? kBlockK : kBlockK / 2),
      zero_(zero),
      has_mins_(has_mins),
      num_groups_(ceil_div(num_blocks() * kBlockK, group_size)) {}

std::size_t GroupedWeight::num_bytes() const {
  return data_.size() + scales_.size() + mins_.size() + super_scales_.size() + super_mins_.size();
}

std::size_t GroupedWeight::tile_bytes() const {
  return num_bytes() / static_cast<std::size_t>(num_tiles());
}

std::string GroupedWeight::layout_name() const {
  const char* scales = scale_kind_ == kScaleCodes ? "code" : scale_kind_ == kScaleF16 ? "f16" : "f32";
  return fmt::format("int{} g{} {}-scale{}", bits_, group_size_, scales, has_mins_ ? "+min" : "");
}

GroupedTile GroupedWeight::tile(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const std::size_t groups = at * static_cast<std::size_t>(num_groups_) * kTileCols;
  const std::size_t supers = at * static_cast<std::size_t>(num_supers_) * kTileCols;
  GroupedTile tile = {};
  tile.data = data_.as<std::uint8_t>() + at * static_cast<std::size_t>(num_blocks() * 64 * bits_);
  tile.scales = scales_.data() + groups * scale_bytes();
  tile.mins = has_mins_ ? mins_.data() + groups * scale_bytes() : nullptr;
  if (scale_kind_ == kScaleCodes) {
    tile.super_scales = super_scales_.as<std::uint16_t>() + supers;
    tile.super_mins = has_mins_ ? super_mins_.as<std::uint16_t>() + supers : nullptr;
  }
  tile.num_blocks = num_blocks();
  tile.scale_kind = scale_kind_;
  tile.zero = zero_;
  tile.segments_per_group = group_size_ / segment_;
  tile.groups_per_super = groups_per_super_;
  return tile;
}

float GroupedWeight::scale_at(const Buffer& values, const Buffer& supers, std::int64_t tile,
                              std::int64_t group, int column, bool is_min) const {
  const std::int64_t at = (tile * num_groups_ + group) * kTileCols + column;
  if (scale_kind_ == kScaleF32) return values.as<float>()[at];
  if (scale_kind_ == kScaleF16) return f16_to_f32(values.as<std::uint16_t>()[at]);
  const std::int64_t super_at = (tile * num_supers_ + group / groups_per_super_) * kTileCols + column;
  const float super = f16_to_f32(supers.as<std::uint16_t>()[super_at]);
  return super * static_cast<float>(is_min ? values.as<std::uint8_t>()[at] : values.as<std::int8_t>()[at]);
}

void GroupedWeight::dequantize_row(std::int64_t row, float* out) const {
  const std::int64_t tile_index = row / kTileCols;
  const int column = static_cast<int>(row % kTileCols);
  const GroupedTile packed = tile(tile_index);
  for (std::int64_t begin = 0; begin < k(); begin += segment_) {
    const std::int64_t group = begin / group_size_;
    const float scale = scale_at(scales_, super_scales_, tile_index, group, column, false);
    const float min = has_mins_ ? scale_at(mins_, super_mins_, tile_index, group, column, true) : 0.0f;
    const std::uint8_t* block = packed.data + begin / kBlockK * 64 * bits_;
    for (std::int64_t c = begin; c < std::min(begin + segment_, k()); ++c) {
      const int q = value_in_block(block, bits_, column, static_cast<int>(c % kBlockK));
      out[c] = has_mins_ ? scale * static_cast<float>(q) - min : scale * static_cast<float>(q - zero_);
    }
  }
}

std::size_t DenseWeight::tile_bytes() const {
  return static_cast<std::size_t>(num_blocks() * kBlockK * kTileCols) * dtype_bytes(storage_);
}

std::string DenseWeight::layout_name() const {
  const std::string name(dtype_name(storage_));
  return origin_.empty() ? name : fmt::format("{} (from {})", name, origin_);
}

void DenseWeight::dequantize_row(std::int64_t row, float* out) const {
  const std::byte* data = tile(row / kTileCols);
  const std::int64_t column = row % kTileCols;
  for (std::int64_t c = 0; c < k(); ++c) {
    if (storage_ == DType::kF32) {
      std::memcpy(&out[c], data + 4 * (c * kTileCols + column), 4);
      continue;
    }
    const std::int64_t at =
        storage_ == DType::kF16 ? c * kTileCols + column : (c / 2 * kTileCols + column) * 2 + c % 2;
    std::uint16_t half;
    std::memcpy(&half, data + 2 * at, 2);
    out[c] = storage_ == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
}

}  // namespace quire::cpu::gemm
