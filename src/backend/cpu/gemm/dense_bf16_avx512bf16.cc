// Purpose: bfloat16 weights x bfloat16 activations with the native pairwise dot product (vdpbf16ps).
// Arithmetic per output: two chains, over the pairs of even and of odd number, each ascending; their sum at
// the end.
#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

template <int kRows, int kTiles>
void dense_rows(const std::uint8_t* first, std::int64_t stride_bytes, std::int64_t num_blocks,
                const Bf16Block* x, std::int64_t row_stride, float* out, std::int64_t out_stride) {
  Vec evens[kRows][kTiles];
  Vec odds[kRows][kTiles];
  const Bf16Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride;
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) evens[r][t] = odds[r][t] = v_zero();
  }
  for (std::int64_t b = 0; b < num_blocks; ++b) {
#pragma GCC unroll 8
    for (int i = 0; i < kBlockK / 4; ++i) {
      __m512bh even[kTiles];
      __m512bh odd[kTiles];
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        even[t] = (__m512bh)i_load(first + t * stride_bytes);
        odd[t] = (__m512bh)i_load(first + t * stride_bytes + 64);
      }
      first += 128;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto x_even = (__m512bh)i_load_splat(row[r]->x + 4 * i);
        const auto x_odd = (__m512bh)i_load_splat(row[r]->x + 4 * i + 2);
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) {
          evens[r][t] = _mm512_dpbf16_ps(evens[r][t], even[t], x_even);
          odds[r][t] = _mm512_dpbf16_ps(odds[r][t], odd[t], x_odd);
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

template <int kTiles>
void dense_panel(const std::uint8_t* first, const DenseTiles& tiles, const Bf16Block* x,
                 std::int64_t row_stride, int num_rows, float* out) {
  const std::int64_t out_stride = static_cast<std::int64_t>(num_rows) * kTileCols;
  int r = 0;
  const auto rows = [&](auto kernel, int step) {
    for (; r + step <= num_rows; r += step)
      kernel(first, tiles.stride_bytes, tiles.num_blocks, x + r * row_stride, row_stride, out + r * kTileCols,
             out_stride);
  };
  rows(dense_rows<kRegisterRows, kTiles>, kRegisterRows);
  rows(dense_rows<4, kTiles>, 4);
  rows(dense_rows<2, kTiles>, 2);
  rows(dense_rows<1, kTiles>, 1);
}

void dense_tiles(const DenseTiles& tiles, int num_tiles, const Bf16Block* x, std::int64_t row_stride,
                 int num_rows, float* out) {
  const auto* first = static_cast<const std::uint8_t*>(tiles.first);
  int t = 0;
  if (num_rows > 1 && num_tiles == 2) {
    dense_panel<2>(first, tiles, x, row_stride, num_rows, out);
    t = 2;
  }
  for (; t < num_tiles; ++t)
    dense_panel<1>(first + t * tiles.stride_bytes, tiles, x, row_stride, num_rows,
                   out + static_cast<std::int64_t>(t) * num_rows * kTileCols);
}

}  // namespace

constinit const DenseBf16Table kDenseBf16Avx512Bf16 = {"avx512bf16", dense_tiles};

}  // namespace quire::cpu::gemm
