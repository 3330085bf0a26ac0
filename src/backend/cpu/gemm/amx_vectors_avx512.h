// Purpose: what the AMX kernel body needs of AVX-512 beyond bytes_avx512.h; the same names as
// amx_vectors_generic.h. Include only from *_avx512bf16.cc and *_amx.cc. Everything has internal linkage.
#pragma once

#include "backend/cpu/gemm/bytes_avx512.h"

namespace quire::cpu {
namespace {

inline void i_put(void* p, Ints x) {
  _mm512_storeu_si512(p, x);
}
// Shift of 16-bit words.
template <int kBits>
inline Ints i_right_words(Ints x) {
  return _mm512_srli_epi16(x, kBits);
}
template <int kBits>
inline Ints i_left_words(Ints x) {
  return _mm512_slli_epi16(x, kBits);
}
// mask ? a : b, bit by bit.
inline Ints i_select(Ints mask, Ints a, Ints b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
// Word index[i] % 32 of the table in word i.
inline Ints i_look_up_words(Ints index, Ints table) {
  return _mm512_permutexvar_epi16(index, table);
}
// 32 bytes in both halves.
inline Ints i_load_twice(const void* p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
// bf16 of `low` in words 0..15 and of `high` in words 16..31: nearest even, denormals become zero.
inline Ints v_round_to_bf16(Vec high, Vec low) {
  return (Ints)_mm512_cvtne2ps_pbh(high, low);
}
// a * b - c, rounded once.
inline Vec v_fms_once(Vec a, Vec b, Vec c) {
  return _mm512_fmsub_ps(a, b, c);
}

// from: [16][16] float32 or pairs, contiguous. Rows 0..num_rows-1 of its transpose, num_lanes values each, to
// rows to_stride values apart. Four 128-bit pieces of four rows make one register (loads and p05), which
// leaves 8 shuffles (p5) for four rows of the result.
inline void transpose(const void* from, int num_rows, int num_lanes, float* to, std::int64_t to_stride) {
  const auto* values = static_cast<const float*>(from);
  const auto lanes = lanes_below(num_lanes);
  for (int q = 0; 4 * q < num_rows; ++q) {
    Vec row[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float* at = values + 16 * i + 4 * q;
      Vec x = _mm512_castps128_ps512(_mm_loadu_ps(at));
      x = _mm512_insertf32x4(x, _mm_loadu_ps(at + 64), 1);
      x = _mm512_insertf32x4(x, _mm_loadu_ps(at + 128), 2);
      row[i] = _mm512_insertf32x4(x, _mm_loadu_ps(at + 192), 3);
    }
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(row[0], row[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(row[0], row[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(row[2], row[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(row[2], row[3]));
    const Vec result[4] = {
        _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
        _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(b, d))};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      if (4 * q + i < num_rows) _mm512_mask_storeu_ps(to + (4 * q + i) * to_stride, lanes, result[i]);
  }
}

}  // namespace
}  // namespace quire::cpu
