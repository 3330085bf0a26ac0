// Purpose: linear layer, grouped integer weights x float32 activations. Included by grouped_f32_*.cc after
// one bytes_*.h. Arithmetic per output:
//   each segment: part = sum of (q - zero) * x by fma, features in ascending order
//   segments in ascending order: sum = fma(part, scale, sum); with minimums: sum = fma(min, -(sum of x), sum)
#pragma once

#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

template <int kQuad, int kByte, int kRows>
inline __attribute__((always_inline)) void add_feature(Ints w, const F32Block* const (&row)[kRows],
                                                       Vec (&parts)[kRows]) {
  Ints spread = w;
  if constexpr (kByte < 3) spread = i_left<24 - 8 * kByte>(w);
  const Vec value = i_to_float(i_right_signed<24>(spread));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    parts[r] = v_fma(value, v_load_splat(row[r]->x + 4 * kQuad + kByte), parts[r]);
}

template <int kBits, int kQuad, int kRows>
inline __attribute__((always_inline)) void add_quad(const std::uint8_t* block, Ints zero,
                                                    const F32Block* const (&row)[kRows],
                                                    Vec (&parts)[kRows]) {
  const Ints w = i_sub_bytes(quad_bytes<kBits, kQuad>(block), zero);
  add_feature<kQuad, 0>(w, row, parts);
  add_feature<kQuad, 1>(w, row, parts);
  add_feature<kQuad, 2>(w, row, parts);
  add_feature<kQuad, 3>(w, row, parts);
}

// kWhich: 0, 1 = half of a block, 2 = all of it.
template <int kBits, int kWhich, int kRows>
inline __attribute__((always_inline)) void add_segment(const std::uint8_t* block, const float* scales,
                                                       const float* mins, Ints zero,
                                                       const F32Block* const (&row)[kRows],
                                                       Vec (&sums)[kRows]) {
  Vec parts[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) parts[r] = v_zero();
  if constexpr (kWhich != 1) {
    add_quad<kBits, 0>(block, zero, row, parts);
    add_quad<kBits, 1>(block, zero, row, parts);
    add_quad<kBits, 2>(block, zero, row, parts);
    add_quad<kBits, 3>(block, zero, row, parts);
  }
  if constexpr (kWhich != 0) {
    add_quad<kBits, 4>(block, zero, row, parts);
    add_quad<kBits, 5>(block, zero, row, parts);
    add_quad<kBits, 6>(block, zero, row, parts);
    add_quad<kBits, 7>(block, zero, row, parts);
  }
  const Vec scale = v_load(scales);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = v_fma(parts[r], scale, sums[r]);
  if (mins != nullptr) {
    const Vec min = v_load(mins);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = v_fma(min, v_load_splat(&row[r]->neg_sum[kWhich]), sums[r]);
  }
}

template <int kBits, int kSegments, int kRows>
void f32_rows(const GroupedTile& tile, const Stretch& stretch, int byte_zero, std::int64_t first_block,
              int num_blocks, const F32Block* x, std::int64_t row_stride, float* out) {
  Vec sums[kRows];
  const F32Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride + first_block;
    sums[r] = first_block == 0 ? v_zero() : v_load(out + r * kTileCols);
  }
  const Ints zero = i_splat(static_cast<std::uint32_t>(byte_zero) * 0x01010101u);
  const std::uint8_t* block = tile.data + first_block * block_bytes(kBits);
  const float* scales = stretch.scales;
  const float* mins = tile.mins == nullptr ? nullptr : stretch.mins;
  for (int b = 0; b < num_blocks; ++b) {
    if constexpr (kSegments == 1) {
      add_segment<kBits, 2>(block, scales, mins, zero, row, sums);
    } else {
      add_segment<kBits, 0>(block, scales, mins, zero, row, sums);
      add_segment<kBits, 1>(block, scales + kTileCols, mins == nullptr ? nullptr : mins + kTileCols, zero,
                            row, sums);
    }
    block += block_bytes(kBits);
    scales += kSegments * kTileCols;
    if (mins != nullptr) mins += kSegments * kTileCols;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) v_store(out + r * kTileCols, sums[r]);
}

template <int kBits, int kSegments>
void f32_tile(const GroupedTile& tile, const F32Block* x, std::int64_t row_stride, int num_rows, float* out) {
  // The bytes are taken as signed. Eight bits with minimums (0..255) are shifted by 128, and scale * 128
  // moves into the minimum.
  const bool shifted = kBits == 8 && tile.mins != nullptr;
  const int byte_zero = shifted ? 128 : tile.zero;
  Stretch stretch;
  for (std::int64_t first = 0; first < tile.num_blocks; first += kStretchBlocks) {
    const int count =
        static_cast<int>(tile.num_blocks - first < kStretchBlocks ? tile.num_blocks - first : kStretchBlocks);
    load_scales(tile, first * kSegments, count * kSegments, shifted ? 128.0f : 0.0f, stretch);
    int r = 0;
    const auto rows = [&](auto rows_kernel, int step) {
      for (; r + step <= num_rows; r += step)
        rows_kernel(tile, stretch, byte_zero, first, count, x + r * row_stride, row_stride,
                    out + r * kTileCols);
    };
    if constexpr (kRegisterRows >= 8) rows(f32_rows<kBits, kSegments, 8>, 8);
    if constexpr (kRegisterRows >= 4) rows(f32_rows<kBits, kSegments, 4>, 4);
    rows(f32_rows<kBits, kSegments, 2>, 2);
    rows(f32_rows<kBits, kSegments, 1>, 1);
  }
}

}  // namespace
}  // namespace quire::cpu::gemm

#define QUIRE_GROUPED_F32_KERNELS                                                                           \
  {                                                                                                         \
    {f32_tile<4, 1>, f32_tile<4, 2>}, {f32_tile<5, 1>, f32_tile<5, 2>}, {f32_tile<6, 1>, f32_tile<6, 2>}, { \
      f32_tile<8, 1>, f32_tile<8, 2>                                                                        \
    }                                                                                                       \
  }
