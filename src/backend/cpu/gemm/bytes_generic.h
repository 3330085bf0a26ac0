// Purpose: 64 bytes or 16 int32 lanes in plain C++; see bytes_avx512.h. Everything has internal linkage.
#pragma once

#include <cstring>

#include "backend/cpu/simd/vec16_generic.h"

namespace quire::cpu {
namespace {

typedef std::uint32_t Bits4 __attribute__((vector_size(16)));

struct Ints {
  Bits4 part[4];
};
constexpr int kRegisterRows = 2;
constexpr int kRegisterTiles = 1;

inline Ints i_splat(std::uint32_t value) {
  const Bits4 x = {value, value, value, value};
  return {{x, x, x, x}};
}
inline Ints i_zero() {
  return i_splat(0);
}
inline Ints i_load(const void* p) {
  Ints x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline void i_store(void* p, Ints a) {
  std::memcpy(p, &a, sizeof(a));
}
inline Ints i_load_splat(const void* p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return i_splat(value);
}
inline Ints i_and(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] &= b.part[i];
  return a;
}
inline Ints i_or(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] |= b.part[i];
  return a;
}
// Byte by byte, without borrows between them.
inline Ints i_sub_bytes(Ints a, Ints b) {
  constexpr std::uint32_t kTops = 0x80808080u;
  for (int i = 0; i < 4; ++i)
    a.part[i] = ((a.part[i] | kTops) - (b.part[i] & ~kTops)) ^ ((a.part[i] ^ ~b.part[i]) & kTops);
  return a;
}
inline Ints i_add(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] += b.part[i];
  return a;
}
inline Ints i_mul(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] *= b.part[i];
  return a;
}
template <int kBits>
inline Ints i_left(Ints a) {
  for (int i = 0; i < 4; ++i) a.part[i] <<= kBits;
  return a;
}
template <int kBits>
inline Ints i_right(Ints a) {
  for (int i = 0; i < 4; ++i) a.part[i] >>= kBits;
  return a;
}
template <int kBits>
inline Ints i_right_signed(Ints a) {
  for (int i = 0; i < 4; ++i) a.part[i] = (Bits4)((Int4)a.part[i] >> kBits);
  return a;
}
inline Vec i_to_float(Ints a) {
  Vec x;
  for (int i = 0; i < 4; ++i) x.part[i] = __builtin_convertvector((Int4)a.part[i], Float4);
  return x;
}
inline Vec i_as_float(Ints a) {
  Vec x;
  std::memcpy(&x, &a, sizeof(x));
  return x;
}
inline Vec v_load_splat(const float* p) {
  return v_splat(*p);
}
inline Vec v_load_i8(const void* p) {
  float wide[16];
  for (int i = 0; i < 16; ++i) wide[i] = static_cast<float>(static_cast<const std::int8_t*>(p)[i]);
  return v_load(wide);
}
inline Vec v_load_u8(const void* p) {
  float wide[16];
  for (int i = 0; i < 16; ++i) wide[i] = static_cast<float>(static_cast<const std::uint8_t*>(p)[i]);
  return v_load(wide);
}
// sum + the dot products of four bytes per lane, w unsigned below 2^kWeightBits, x signed. Exact.
template <int kWeightBits>
inline Ints i_dot(Ints sum, Ints w, Ints x) {
  for (int i = 0; i < 4; ++i) {
    const Int4 w4 = (Int4)w.part[i];
    const Int4 x4 = (Int4)x.part[i];
    Int4 dot = (Int4)sum.part[i];
    dot += (w4 & 255) * ((x4 << 24) >> 24);
    dot += ((w4 >> 8) & 255) * ((x4 << 16) >> 24);
    dot += ((w4 >> 16) & 255) * ((x4 << 8) >> 24);
    dot += ((w4 >> 24) & 255) * (x4 >> 24);
    sum.part[i] = (Bits4)dot;
  }
  return sum;
}

}  // namespace
}  // namespace quire::cpu
