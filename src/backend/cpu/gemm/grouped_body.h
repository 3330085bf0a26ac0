// Purpose: what the kernels of grouped integer tiles share: bytes of a quad, scales of a stretch of blocks.
// Written on the vector names of bytes_*.h; a kernel file includes one of those first. Internal linkage only.
// Out of scope: the layout itself (kernel_types.h), the arithmetic (grouped_int8_body.h, grouped_f32_body.h).
#pragma once

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

// Blocks per stretch: its weights (8 KiB of int4) and scales stay in the first-level cache while all rows of
// the call pass over them.
constexpr int kStretchBlocks = 32;

constexpr std::int64_t block_bytes(int bits) {
  return 64 * bits;
}

// The bytes of quad kQuad of a block, unsigned.
template <int kBits, int kQuad>
inline __attribute__((always_inline)) Ints quad_bytes(const std::uint8_t* block) {
  if constexpr (kBits == 8) {
    return i_load(block + 64 * kQuad);
  } else {
    const Ints pair = i_load(block + 64 * (kQuad % 4));
    const Ints nibble = i_splat(0x0f0f0f0fu);
    Ints low;
    if constexpr (kQuad < 4) {
      low = i_and(pair, nibble);
    } else {
      low = i_and(i_right<4>(pair), nibble);
    }
    if constexpr (kBits == 5) {
      const Ints plane = i_load(block + 256);
      const Ints top = i_splat(0x10101010u);
      if constexpr (kQuad <= 4) {
        return i_or(low, i_and(i_left<4 - kQuad>(plane), top));
      } else {
        return i_or(low, i_and(i_right<kQuad - 4>(plane), top));
      }
    } else if constexpr (kBits == 6) {
      const Ints plane = i_load(block + 256 + 64 * (kQuad / 4));
      const Ints top = i_splat(0x30303030u);
      constexpr int kFrom = 2 * (kQuad % 4);
      if constexpr (kFrom <= 4) {
        return i_or(low, i_and(i_left<4 - kFrom>(plane), top));
      } else {
        return i_or(low, i_and(i_right<kFrom - 4>(plane), top));
      }
    } else {
      return low;
    }
  }
}

// float32 scales and minimums of the segments of one stretch, [segments, 16].
struct Stretch {
  alignas(64) float scales[2 * kStretchBlocks * kTileCols];
  alignas(64) float mins[2 * kStretchBlocks * kTileCols];
};

// min_shift * scale is subtracted from each minimum (for kernels that see q - min_shift).
inline void load_scales(const GroupedTile& tile, std::int64_t first_segment, int num_segments,
                        float min_shift, Stretch& stretch) {
  std::int64_t group = first_segment / tile.segments_per_group;
  int left_in_group = tile.segments_per_group - static_cast<int>(first_segment % tile.segments_per_group);
  const auto* scale_codes = static_cast<const std::int8_t*>(tile.scales);
  const auto* min_codes = static_cast<const std::uint8_t*>(tile.mins);
  const auto* scale_halves = static_cast<const std::uint16_t*>(tile.scales);
  const auto* min_halves = static_cast<const std::uint16_t*>(tile.mins);
  const auto* scale_floats = static_cast<const float*>(tile.scales);
  const auto* min_floats = static_cast<const float*>(tile.mins);
  const Vec shift = v_splat(-min_shift);
  for (int segment = 0; segment < num_segments;) {
    Vec scale;
    Vec min = v_zero();
    const std::int64_t at = group * kTileCols;
    if (tile.scale_kind == kScaleCodes) {
      const std::int64_t super = group / tile.groups_per_super * kTileCols;
      scale = v_mul(v_load_f16(tile.super_scales + super), v_load_i8(scale_codes + at));
      if (tile.mins != nullptr) min = v_mul(v_load_f16(tile.super_mins + super), v_load_u8(min_codes + at));
    } else if (tile.scale_kind == kScaleF16) {
      scale = v_load_f16(scale_halves + at);
      if (tile.mins != nullptr) min = v_load_f16(min_halves + at);
    } else {
      scale = v_load(scale_floats + at);
      if (tile.mins != nullptr) min = v_load(min_floats + at);
    }
    if (min_shift != 0.0f) min = v_fma(shift, scale, min);
    for (; left_in_group > 0 && segment < num_segments; --left_in_group, ++segment) {
      v_store(stretch.scales + segment * kTileCols, scale);
      if (tile.mins != nullptr) v_store(stretch.mins + segment * kTileCols, min);
    }
    left_in_group = tile.segments_per_group;
    ++group;
  }
}

}  // namespace
}  // namespace quire::cpu::gemm
