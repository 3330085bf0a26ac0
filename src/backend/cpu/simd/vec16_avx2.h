// Purpose: 16 float32 lanes as two AVX2 registers; the same names as vec16_avx512.h, and for the same input
// the same bits. Include only from *_avx2.cc. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace quire::cpu {
namespace {

struct Vec {
  __m256 low;
  __m256 high;
};

// Registers: 16, two per Vec.
inline constexpr int kMaxRows = 6;
inline constexpr int kScoreTiles = 1;
constexpr int value_vectors(int num_rows) {
  return num_rows <= 2 ? 2 : 1;
}

// All ones in lane i (of 8 lanes that begin at lane `first`) if i < n.
inline __m256i lanes_below(std::int64_t n, int first) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}
inline Vec v_zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Vec v_splat(float value) {
  const __m256 x = _mm256_set1_ps(value);
  return {x, x};
}
inline Vec v_load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void v_store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
// The first n lanes (0..16); the others become 0 and are not read or written.
inline Vec v_load_first(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, lanes_below(n, 0)), _mm256_maskload_ps(p + 8, lanes_below(n, 8))};
}
inline void v_store_first(float* p, Vec x, std::int64_t n) {
  _mm256_maskstore_ps(p, lanes_below(n, 0), x.low);
  _mm256_maskstore_ps(p + 8, lanes_below(n, 8), x.high);
}
inline Vec v_load_f16(const void* p) {
  const __m128i* half = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))};
}
inline Vec v_load_bf16(const void* p) {
  const __m128i* half = static_cast<const __m128i*>(p);
  const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(half));
  const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(half + 1));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
inline __m128i to_f16(__m256 x) {
  const __m256 limit = _mm256_set1_ps(65504.0f);
  const __m256 low = _mm256_set1_ps(-65504.0f);
  x = _mm256_max_ps(low, _mm256_min_ps(limit, x));  // both return the second operand if one is NaN
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}
// Round to nearest even, finite values saturate at +-65504, NaN stays.
inline void v_store_f16(void* p, Vec x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), to_f16(x.low));
  _mm_storeu_si128(static_cast<__m128i*>(p) + 1, to_f16(x.high));
}
inline __m256i to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
// Round to nearest even; NaN stays.
inline void v_store_bf16(void* p, Vec x) {
  const __m256i packed = _mm256_packus_epi32(to_bf16(x.low), to_bf16(x.high));  // by 128-bit halves
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}
inline Vec v_add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec v_sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec v_mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec v_div(Vec a, Vec b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vec v_fma(Vec a, Vec b, Vec c) {  // a * b + c
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec v_fms(Vec a, Vec b, Vec c) {  // a * b - c
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
// The larger; b if either is NaN.
inline Vec v_max(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec v_abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Vec v_copysign(Vec magnitude, Vec sign) {
  const __m256 mask = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(mask, magnitude.low), _mm256_and_ps(mask, sign.low)),
          _mm256_or_ps(_mm256_andnot_ps(mask, magnitude.high), _mm256_and_ps(mask, sign.high))};
}
// a < b ? x : y, lane by lane.
inline Vec v_if_less(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline bool v_any_greater(Vec a, Vec b) {
  const __m256 low = _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ);
  const __m256 high = _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}
// Lanes [low, high) of x, `other` elsewhere; 0 <= low <= high <= 16.
inline Vec v_keep(Vec x, std::int64_t low, std::int64_t high, Vec other) {
  const __m256i keep_low = _mm256_andnot_si256(lanes_below(low, 0), lanes_below(high, 0));
  const __m256i keep_high = _mm256_andnot_si256(lanes_below(low, 8), lanes_below(high, 8));
  return {_mm256_blendv_ps(other.low, x.low, _mm256_castsi256_ps(keep_low)),
          _mm256_blendv_ps(other.high, x.high, _mm256_castsi256_ps(keep_high))};
}
// The bits of x as integers, shifted left by 23: an integer n + 127 in the low bits becomes the float 2^n.
inline Vec v_shift_to_exponent(Vec x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.low), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.high), 23))};
}
// Across lanes, always by the same tree: 8 apart, 4 apart, 2, 1.
inline float v_sum_lanes(Vec x) {
  const __m256 a = _mm256_add_ps(x.low, x.high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float v_max_lanes(Vec x) {
  const __m256 a = _mm256_max_ps(x.low, x.high);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
// Into the second-level cache: that queue holds far more open misses than the first level's (measured on Zen
// 4 over scattered blocks of 8 KiB: 10 GB/s without, 12 GB/s into the first level, 20 GB/s into the second).
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// The sum of squares in float64; see vec16_avx512.h.
struct SquareSum {
  __m256d part[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};

  void take(Vec x) {
    const __m256d v[4] = {
        _mm256_cvtps_pd(_mm256_castps256_ps128(x.low)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.low, 1)),
        _mm256_cvtps_pd(_mm256_castps256_ps128(x.high)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.high, 1))};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) part[i] = _mm256_fmadd_pd(v[i], v[i], part[i]);
  }
  double total() const {
    const __m256d a0 = _mm256_add_pd(part[0], part[2]);
    const __m256d a1 = _mm256_add_pd(part[1], part[3]);
    const __m256d b = _mm256_add_pd(a0, a1);
    const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
  }
};

}  // namespace
}  // namespace quire::cpu
