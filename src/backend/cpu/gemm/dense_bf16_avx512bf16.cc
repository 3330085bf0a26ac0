// Purpose: bfloat16 weights x bfloat16 activations with the native pairwise dot product (vdpbf16ps).
// Arithmetic per output: two chains, over the pairs of even and of odd number, each ascending; their sum at
// the end.
#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

template <int kRows>
void dense_rows(const std::uint8_t* tile, std::int64_t num_blocks, const Bf16Block* x,
                std::int64_t row_stride, float* out) {
  Vec evens[kRows];
  Vec odds[kRows];
  const Bf16Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride;
    evens[r] = v_zero();
    odds[r] = v_zero();
  }
  for (std::int64_t b = 0; b < num_blocks; ++b) {
#pragma GCC unroll 8
    for (int i = 0; i < kBlockK / 4; ++i) {
      const __m512bh even = (__m512bh)i_load(tile);
      const __m512bh odd = (__m512bh)i_load(tile + 64);
      tile += 128;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        evens[r] = _mm512_dpbf16_ps(evens[r], even, (__m512bh)i_load_splat(row[r]->x + 4 * i));
        odds[r] = _mm512_dpbf16_ps(odds[r], odd, (__m512bh)i_load_splat(row[r]->x + 4 * i + 2));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) v_store(out + r * kTileCols, v_add(evens[r], odds[r]));
}

void dense_tile(const void* tile, std::int64_t num_blocks, const Bf16Block* x, std::int64_t row_stride,
                int num_rows, float* out) {
  const auto* data = static_cast<const std::uint8_t*>(tile);
  int r = 0;
  const auto rows = [&](auto rows_kernel, int step) {
    for (; r + step <= num_rows; r += step)
      rows_kernel(data, num_blocks, x + r * row_stride, row_stride, out + r * kTileCols);
  };
  rows(dense_rows<8>, 8);
  rows(dense_rows<4>, 4);
  rows(dense_rows<2>, 2);
  rows(dense_rows<1>, 1);
}

}  // namespace

constinit const DenseBf16Table kDenseBf16Avx512Bf16 = {"avx512bf16", dense_tile};

}  // namespace quire::cpu::gemm
