// Purpose: linear layer, grouped integer weights x int8 activations. Included by grouped_int8_*.cc after one
// bytes_*.h. Arithmetic per output, segments in ascending order:
//   dot = exact integer sum of q * x;  sum = fma(dot - zero * sum(x), x_scale * scale, sum)
//   with minimums: sum = fma(min, -(x_scale * sum(x)), sum)
// Both integers stay below 2^24 (32 * 255 * 127), so their difference in float32 is exact.
#pragma once

#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

template <int kBits, int kQuad, int kRows>
inline __attribute__((always_inline)) void dot_quad(const std::uint8_t* block,
                                                    const Int8Block* const (&row)[kRows],
                                                    Ints (&dots)[kRows]) {
  const Ints w = quad_bytes<kBits, kQuad>(block);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) dots[r] = i_dot<kBits>(dots[r], w, i_load_splat(row[r]->q + 4 * kQuad));
}

// kWhich: 0, 1 = half of a block, 2 = all of it.
template <int kBits, int kWhich, int kRows>
inline __attribute__((always_inline)) void add_segment(const std::uint8_t* block, const float* scales,
                                                       const float* mins, Vec neg_zero,
                                                       const Int8Block* const (&row)[kRows],
                                                       Vec (&sums)[kRows]) {
  Ints dots[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) dots[r] = i_zero();
  if constexpr (kWhich != 1) {
    dot_quad<kBits, 0>(block, row, dots);
    dot_quad<kBits, 1>(block, row, dots);
    dot_quad<kBits, 2>(block, row, dots);
    dot_quad<kBits, 3>(block, row, dots);
  }
  if constexpr (kWhich != 0) {
    dot_quad<kBits, 4>(block, row, dots);
    dot_quad<kBits, 5>(block, row, dots);
    dot_quad<kBits, 6>(block, row, dots);
    dot_quad<kBits, 7>(block, row, dots);
  }
  const Vec scale = v_load(scales);
  if (mins != nullptr) {
    const Vec min = v_load(mins);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r] = v_fma(i_to_float(dots[r]), v_mul(scale, v_load_splat(&row[r]->scale)), sums[r]);
      sums[r] = v_fma(min, v_load_splat(&row[r]->neg_sum[kWhich]), sums[r]);
    }
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec dot = v_fma(neg_zero, v_load_splat(&row[r]->sum[kWhich]), i_to_float(dots[r]));
      sums[r] = v_fma(dot, v_mul(scale, v_load_splat(&row[r]->scale)), sums[r]);
    }
  }
}

template <int kBits, int kSegments, int kRows>
void int8_rows(const GroupedTile& tile, const Stretch& stretch, std::int64_t first_block, int num_blocks,
               const Int8Block* x, std::int64_t row_stride, float* out) {
  Vec sums[kRows];
  const Int8Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride + first_block;
    sums[r] = first_block == 0 ? v_zero() : v_load(out + r * kTileCols);
  }
  const Vec neg_zero = v_splat(static_cast<float>(-tile.zero));
  const std::uint8_t* block = tile.data + first_block * block_bytes(kBits);
  const float* scales = stretch.scales;
  const float* mins = tile.mins == nullptr ? nullptr : stretch.mins;
  for (int b = 0; b < num_blocks; ++b) {
    if constexpr (kSegments == 1) {
      add_segment<kBits, 2>(block, scales, mins, neg_zero, row, sums);
    } else {
      add_segment<kBits, 0>(block, scales, mins, neg_zero, row, sums);
      add_segment<kBits, 1>(block, scales + kTileCols, mins == nullptr ? nullptr : mins + kTileCols, neg_zero,
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
void int8_tile(const GroupedTile& tile, const Int8Block* x, std::int64_t row_stride, int num_rows,
               float* out) {
  Stretch stretch;
  for (std::int64_t first = 0; first < tile.num_blocks; first += kStretchBlocks) {
    const int count =
        static_cast<int>(tile.num_blocks - first < kStretchBlocks ? tile.num_blocks - first : kStretchBlocks);
    load_scales(tile, first * kSegments, count * kSegments, 0.0f, stretch);
    int r = 0;
    const auto rows = [&](auto rows_kernel, int step) {
      for (; r + step <= num_rows; r += step)
        rows_kernel(tile, stretch, first, count, x + r * row_stride, row_stride, out + r * kTileCols);
    };
    if constexpr (kRegisterRows >= 8) rows(int8_rows<kBits, kSegments, 8>, 8);
    if constexpr (kRegisterRows >= 4) rows(int8_rows<kBits, kSegments, 4>, 4);
    rows(int8_rows<kBits, kSegments, 2>, 2);
    rows(int8_rows<kBits, kSegments, 1>, 1);
  }
}

}  // namespace
}  // namespace quire::cpu::gemm

#define QUIRE_GROUPED_INT8_KERNELS                                          \
  {                                                                         \
    {int8_tile<4, 1>, int8_tile<4, 2>}, {int8_tile<5, 1>, int8_tile<5, 2>}, \
        {int8_tile<6, 1>, int8_tile<6, 2>}, {                               \
      int8_tile<8, 1>, int8_tile<8, 2>                                      \
    }                                                                       \
  }
