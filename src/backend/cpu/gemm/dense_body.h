// Purpose: linear layer, float weights as stored (f32, f16, bf16) x float32 activations. Included by
// dense_*.cc after one bytes_*.h. Arithmetic per output: two chains of fma, over the even and over the odd
// features, each in ascending order; their sum at the end.
#pragma once

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

enum Storage : int { kStoreF32, kStoreF16, kStoreBf16 };

constexpr std::int64_t dense_block_bytes(int storage) {
  return kBlockK * kTileCols * (storage == kStoreF32 ? 4 : 2);
}

// Features 2i and 2i + 1 of a block.
template <int kStorage>
inline __attribute__((always_inline)) void load_pair(const std::uint8_t* block, int i, Vec& even, Vec& odd) {
  if constexpr (kStorage == kStoreF32) {
    const auto* values = static_cast<const float*>(static_cast<const void*>(block)) + 2 * i * kTileCols;
    even = v_load(values);
    odd = v_load(values + kTileCols);
  } else if constexpr (kStorage == kStoreF16) {
    even = v_load_f16(block + 64 * i);
    odd = v_load_f16(block + 64 * i + 32);
  } else {
    const Ints pair = i_load(block + 64 * i);
    even = i_as_float(i_left<16>(pair));
    odd = i_as_float(i_and(pair, i_splat(0xffff0000u)));
  }
}

template <int kStorage, int kRows, int kTiles>
void dense_rows(const std::uint8_t* first, std::int64_t stride_bytes, std::int64_t num_blocks,
                const F32Block* x, std::int64_t row_stride, float* out, std::int64_t out_stride) {
  Vec evens[kRows][kTiles];
  Vec odds[kRows][kTiles];
  const F32Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride;
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) evens[r][t] = odds[r][t] = v_zero();
  }
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const std::uint8_t* block = first + b * dense_block_bytes(kStorage);
#pragma GCC unroll 4
    for (int i = 0; i < kBlockK / 2; ++i) {
      Vec even[kTiles];
      Vec odd[kTiles];
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) load_pair<kStorage>(block + t * stride_bytes, i, even[t], odd[t]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec x_even = v_load_splat(row[r]->x + 2 * i);
        const Vec x_odd = v_load_splat(row[r]->x + 2 * i + 1);
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) {
          evens[r][t] = v_fma(even[t], x_even, evens[r][t]);
          odds[r][t] = v_fma(odd[t], x_odd, odds[r][t]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t)
      v_store(out + t * out_stride + r * kTileCols, v_add(evens[r][t], odds[r][t]));
}

template <int kStorage, int kTiles>
void dense_panel(const std::uint8_t* first, const DenseTiles& tiles, const F32Block* x,
                 std::int64_t row_stride, int num_rows, float* out) {
  const std::int64_t out_stride = static_cast<std::int64_t>(num_rows) * kTileCols;
  int r = 0;
  const auto rows = [&](auto kernel, int step) {
    for (; r + step <= num_rows; r += step)
      kernel(first, tiles.stride_bytes, tiles.num_blocks, x + r * row_stride, row_stride, out + r * kTileCols,
             out_stride);
  };
  rows(dense_rows<kStorage, kRegisterRows, kTiles>, kRegisterRows);
  if constexpr (kRegisterRows > 4) rows(dense_rows<kStorage, 4, kTiles>, 4);
  if constexpr (kRegisterRows > 2) rows(dense_rows<kStorage, 2, kTiles>, 2);
  rows(dense_rows<kStorage, 1, kTiles>, 1);
}

template <int kStorage>
void dense_tiles(const DenseTiles& tiles, int num_tiles, const F32Block* x, std::int64_t row_stride,
                 int num_rows, float* out) {
  const std::int64_t out_stride = static_cast<std::int64_t>(num_rows) * kTileCols;
  const auto* first = static_cast<const std::uint8_t*>(tiles.first);
  int t = 0;
  if constexpr (kRegisterTiles == 2) {
    for (; num_rows > 1 && t + 2 <= num_tiles; t += 2)
      dense_panel<kStorage, 2>(first + t * tiles.stride_bytes, tiles, x, row_stride, num_rows,
                               out + t * out_stride);
  }
  for (; t < num_tiles; ++t)
    dense_panel<kStorage, 1>(first + t * tiles.stride_bytes, tiles, x, row_stride, num_rows,
                             out + t * out_stride);
}

}  // namespace
}  // namespace quire::cpu::gemm

#define QUIRE_DENSE_F32_KERNELS \
  { dense_tiles<kStoreF32>, dense_tiles<kStoreF16>, dense_tiles<kStoreBf16> }
