// Purpose: 64 bytes or 16 int32 lanes as one AVX-512 register, for the kernel bodies of the linear layers;
// the same names as bytes_avx2.h and bytes_generic.h. Include only from *_avx512*.cc. Everything has internal
// linkage.
#pragma once

#include "backend/cpu/simd/vec16_avx512.h"

namespace quire::cpu {
namespace {

using Ints = __m512i;
// Rows and tiles whose sums stay in registers at once: 6 x 2 integer and as many float sums fill 24 of the 32
// registers, and each value of an activation is loaded once for two dot products (measured on Zen 4: 153
// GMAC/s of 233, against 142 with 8 x 1; three of eleven operations on the multiplier scale the groups).
constexpr int kRegisterRows = 6;
constexpr int kRegisterTiles = 2;

inline Ints i_zero() {
  return _mm512_setzero_si512();
}
inline Ints i_load(const void* p) {
  return _mm512_loadu_si512(p);
}
inline void i_store(void* p, Ints a) {
  _mm512_storeu_si512(p, a);
}
inline Ints i_splat(std::uint32_t value) {
  return _mm512_set1_epi32(static_cast<int>(value));
}
// The four bytes at p (of any alignment, of any type) in each lane.
inline Ints i_load_splat(const void* p) {
  return _mm512_castps_si512(_mm512_broadcastss_ps(_mm_load_ss(static_cast<const float*>(p))));
}
inline Ints i_and(Ints a, Ints b) {
  return _mm512_and_si512(a, b);
}
inline Ints i_or(Ints a, Ints b) {
  return _mm512_or_si512(a, b);
}
inline Ints i_sub_bytes(Ints a, Ints b) {
  return _mm512_sub_epi8(a, b);
}
// 32-bit lanes, from here on.
inline Ints i_add(Ints a, Ints b) {
  return _mm512_add_epi32(a, b);
}
inline Ints i_mul(Ints a, Ints b) {
  return _mm512_mullo_epi32(a, b);
}
template <int kBits>
inline Ints i_left(Ints a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline Ints i_right(Ints a) {
  return _mm512_srli_epi32(a, kBits);
}
template <int kBits>
inline Ints i_right_signed(Ints a) {
  return _mm512_srai_epi32(a, kBits);
}
inline Vec i_to_float(Ints a) {
  return _mm512_cvtepi32_ps(a);
}
inline Vec i_as_float(Ints a) {
  return _mm512_castsi512_ps(a);
}
inline Vec v_load_splat(const float* p) {
  return _mm512_broadcastss_ps(_mm_load_ss(p));
}
inline Vec v_load_i8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline Vec v_load_u8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// sum + the dot products of four bytes per lane, w unsigned below 2^kWeightBits, x signed. Exact.
template <int kWeightBits>
inline Ints i_dot(Ints sum, Ints w, Ints x) {
  return _mm512_dpbusd_epi32(sum, w, x);
}

}  // namespace
}  // namespace quire::cpu
