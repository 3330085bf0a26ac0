// Purpose: 64 bytes or 16 int32 lanes as two AVX2 registers; see bytes_avx512.h. Include only from *_avx2.cc.
#pragma once

#include "backend/cpu/simd/vec16_avx2.h"

namespace quire::cpu {
namespace {

struct Ints {
  __m256i low;
  __m256i high;
};
constexpr int kRegisterRows = 4;
constexpr int kRegisterTiles = 1;

inline Ints i_zero() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
inline Ints i_load(const void* p) {
  const __m256i* half = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
inline void i_store(void* p, Ints a) {
  __m256i* half = static_cast<__m256i*>(p);
  _mm256_storeu_si256(half, a.low);
  _mm256_storeu_si256(half + 1, a.high);
}
inline Ints i_splat(std::uint32_t value) {
  const __m256i x = _mm256_set1_epi32(static_cast<int>(value));
  return {x, x};
}
inline Ints i_load_splat(const void* p) {
  const __m256i x = _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
  return {x, x};
}
inline Ints i_and(Ints a, Ints b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline Ints i_or(Ints a, Ints b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
inline Ints i_sub_bytes(Ints a, Ints b) {
  return {_mm256_sub_epi8(a.low, b.low), _mm256_sub_epi8(a.high, b.high)};
}
inline Ints i_add(Ints a, Ints b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Ints i_mul(Ints a, Ints b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
template <int kBits>
inline Ints i_left(Ints a) {
  return {_mm256_slli_epi32(a.low, kBits), _mm256_slli_epi32(a.high, kBits)};
}
template <int kBits>
inline Ints i_right(Ints a) {
  return {_mm256_srli_epi32(a.low, kBits), _mm256_srli_epi32(a.high, kBits)};
}
template <int kBits>
inline Ints i_right_signed(Ints a) {
  return {_mm256_srai_epi32(a.low, kBits), _mm256_srai_epi32(a.high, kBits)};
}
inline Vec i_to_float(Ints a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
inline Vec i_as_float(Ints a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
inline Vec v_load_splat(const float* p) {
  const __m256 x = _mm256_broadcast_ss(p);
  return {x, x};
}
inline Vec v_load_i8(const void* p) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
inline Vec v_load_u8(const void* p) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
}
// maddubs adds two products in a saturating int16. Up to 7 weight bits cannot reach its limit (2 * 127 * 128
// = 32512 < 32767); 8 bits go as two nibbles, the upper one weighted by 16 where pairs are summed to int32.
template <int kWeightBits>
inline __m256i dot_half(__m256i sum, __m256i w, __m256i x) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kWeightBits <= 7) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
  } else {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(w, nibble), x);
    const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), x);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, ones));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
  }
}
template <int kWeightBits>
inline Ints i_dot(Ints sum, Ints w, Ints x) {
  return {dot_half<kWeightBits>(sum.low, w.low, x.low), dot_half<kWeightBits>(sum.high, w.high, x.high)};
}

}  // namespace
}  // namespace quire::cpu
