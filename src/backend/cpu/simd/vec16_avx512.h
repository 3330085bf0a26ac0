// Purpose: 16 float32 lanes as one AVX-512 register; the same names as vec16_avx2.h and vec16_generic.h, so
// that a kernel body is written once (attention_body.h, elementwise_body.h). Include only from *_avx512*.cc.
// Everything has internal linkage: see docs/flow.md on instruction sets and the linker.
#pragma once

#include <cstddef>
#include <cstdint>

// GCC 12 takes the deliberately undefined operands inside its own header for a mistake (GCC bug 105593).
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

namespace quire::cpu {
namespace {

using Vec = __m512;

// Registers: 32. Query rows that one pass over keys or values serves, key tiles per pass, and vectors of
// values per pass for few and for many rows.
inline constexpr int kMaxRows = 8;
inline constexpr int kScoreTiles = 2;
constexpr int value_vectors(int num_rows) {
  return num_rows <= 4 ? 4 : 2;
}

inline __mmask16 lanes_below(std::int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);  // n in [0, 16]
}
inline Vec v_zero() {
  return _mm512_setzero_ps();
}
inline Vec v_splat(float value) {
  return _mm512_set1_ps(value);
}
inline Vec v_load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void v_store(float* p, Vec x) {
  _mm512_storeu_ps(p, x);
}
// The first n lanes (0..16); the others become 0 and are not read or written.
inline Vec v_load_first(const float* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
inline void v_store_first(float* p, Vec x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, lanes_below(n), x);
}
inline Vec v_load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline Vec v_load_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// Round to nearest even, finite values saturate at +-65504, NaN stays.
inline void v_store_f16(void* p, Vec x) {
  const Vec limit = _mm512_set1_ps(65504.0f);
  const Vec low = _mm512_set1_ps(-65504.0f);
  x = _mm512_max_ps(low, _mm512_min_ps(limit, x));  // both return the second operand if one is NaN
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Round to nearest even; NaN stays.
inline void v_store_bf16(void* p, Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i half = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(half));
}
inline Vec v_add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
inline Vec v_sub(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
inline Vec v_mul(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
inline Vec v_div(Vec a, Vec b) {
  return _mm512_div_ps(a, b);
}
inline Vec v_fma(Vec a, Vec b, Vec c) {  // a * b + c
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec v_fms(Vec a, Vec b, Vec c) {  // a * b - c
  return _mm512_fmsub_ps(a, b, c);
}
// The larger; b if either is NaN.
inline Vec v_max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec v_abs(Vec a) {
  return _mm512_abs_ps(a);
}
inline Vec v_copysign(Vec magnitude, Vec sign) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      mask, _mm512_castps_si512(sign), _mm512_castps_si512(magnitude), 0xca));  // mask ? b : c
}
// a < b ? x : y, lane by lane.
inline Vec v_if_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline bool v_any_greater(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
// Lanes [low, high) of x, `other` elsewhere; 0 <= low <= high <= 16.
inline Vec v_keep(Vec x, std::int64_t low, std::int64_t high, Vec other) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(lanes_below(high) & ~lanes_below(low)), other, x);
}
// The bits of x as integers, shifted left by 23: an integer n + 127 in the low bits becomes the float 2^n.
inline Vec v_shift_to_exponent(Vec x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}
// Across lanes, always by the same tree: 8 apart, 4 apart, 2, 1.
inline float v_sum_lanes(Vec x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float v_max_lanes(Vec x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
// Into the second-level cache: that queue holds far more open misses than the first level's (measured on Zen
// 4 over scattered blocks of 8 KiB: 10 GB/s without, 12 GB/s into the first level, 20 GB/s into the second).
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// The sum of squares in float64: lane i of 16 takes x[i], x[i + 16], ... in order; then pairs 8, 4, 2, 1
// apart. The squares are exact in float64, so the result is the same in every tier.
struct SquareSum {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();

  void take(Vec x) {
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  double total() const {
    const __m512d a = _mm512_add_pd(low, high);
    const __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
  }
};

}  // namespace
}  // namespace quire::cpu
