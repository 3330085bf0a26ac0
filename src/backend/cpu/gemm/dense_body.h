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

template <int kStorage, int kRows>
void dense_rows(const std::uint8_t* tile, std::int64_t num_blocks, const F32Block* x, std::int64_t row_stride,
                float* out) {
  Vec evens[kRows];
  Vec odds[kRows];
  const F32Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride;
    evens[r] = v_zero();
    odds[r] = v_zero();
  }
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const std::uint8_t* block = tile + b * dense_block_bytes(kStorage);
#pragma GCC unroll 4
    for (int i = 0; i < kBlockK / 2; ++i) {
      Vec even;
      Vec odd;
      load_pair<kStorage>(block, i, even, odd);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        evens[r] = v_fma(even, v_load_splat(row[r]->x + 2 * i), evens[r]);
        odds[r] = v_fma(odd, v_load_splat(row[r]->x + 2 * i + 1), odds[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) v_store(out + r * kTileCols, v_add(evens[r], odds[r]));
}

template <int kStorage>
void dense_tile(const void* tile, std::int64_t num_blocks, const F32Block* x, std::int64_t row_stride,
                int num_rows, float* out) {
  const auto* data = static_cast<const std::uint8_t*>(tile);
  int r = 0;
  const auto rows = [&](auto rows_kernel, int step) {
    for (; r + step <= num_rows; r += step)
      rows_kernel(data, num_blocks, x + r * row_stride, row_stride, out + r * kTileCols);
  };
  if constexpr (kRegisterRows >= 8) rows(dense_rows<kStorage, 8>, 8);
  if constexpr (kRegisterRows >= 4) rows(dense_rows<kStorage, 4>, 4);
  rows(dense_rows<kStorage, 2>, 2);
  rows(dense_rows<kStorage, 1>, 1);
}

}  // namespace
}  // namespace quire::cpu::gemm

#define QUIRE_DENSE_F32_KERNELS \
  { dense_tile<kStoreF32>, dense_tile<kStoreF16>, dense_tile<kStoreBf16> }
