// Purpose: 16 float32 lanes in plain C++ (four of the compiler's 4-lane vectors, which every target has); the
// same names as vec16_avx512.h. A product and a sum are rounded separately here, so results differ from the
// other tiers in the last bits. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace quire::cpu {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef std::int32_t Int4 __attribute__((vector_size(16)));

struct Vec {
  Float4 part[4];
  float operator[](int lane) const { return part[lane / 4][lane % 4]; }
};

// Registers: 16 or 32 of four lanes, four per Vec.
inline constexpr int kMaxRows = 2;
inline constexpr int kScoreTiles = 1;
constexpr int value_vectors(int num_rows) {
  return 1;
}

inline Vec v_splat(float value) {
  const Float4 x = {value, value, value, value};
  return {{x, x, x, x}};
}
inline Vec v_zero() {
  return v_splat(0.0f);
}
inline Vec v_load(const float* p) {
  Vec x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline void v_store(float* p, Vec x) {
  std::memcpy(p, &x, sizeof(x));
}
// The first n lanes (0..16); the others become 0 and are not read or written.
inline Vec v_load_first(const float* p, std::int64_t n) {
  Vec x = v_zero();
  std::memcpy(&x, p, static_cast<std::size_t>(n) * sizeof(float));
  return x;
}
inline void v_store_first(float* p, Vec x, std::int64_t n) {
  std::memcpy(p, &x, static_cast<std::size_t>(n) * sizeof(float));
}
inline Vec v_load_f16(const void* p) {
  std::uint16_t half[16];
  float wide[16];
  std::memcpy(half, p, sizeof(half));
  for (int i = 0; i < 16; ++i) wide[i] = f16_to_f32(half[i]);
  return v_load(wide);
}
inline Vec v_load_bf16(const void* p) {
  std::uint16_t half[16];
  float wide[16];
  std::memcpy(half, p, sizeof(half));
  for (int i = 0; i < 16; ++i) wide[i] = bf16_to_f32(half[i]);
  return v_load(wide);
}
// Round to nearest even, finite values saturate at +-65504, NaN stays.
inline void v_store_f16(void* p, Vec x) {
  std::uint16_t half[16];
  for (int i = 0; i < 16; ++i) {
    const float value = x[i];
    half[i] = f32_to_f16(value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value);
  }
  std::memcpy(p, half, sizeof(half));
}
// Round to nearest even; NaN stays.
inline void v_store_bf16(void* p, Vec x) {
  std::uint16_t half[16];
  for (int i = 0; i < 16; ++i) half[i] = f32_to_bf16(x[i]);
  std::memcpy(p, half, sizeof(half));
}

// f(part of a, part of b, ...) for each of the four parts.
template <typename F>
inline Vec by_parts(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline Vec v_add(const Vec& a, const Vec& b) {
  return by_parts([&](int i) { return a.part[i] + b.part[i]; });
}
inline Vec v_sub(const Vec& a, const Vec& b) {
  return by_parts([&](int i) { return a.part[i] - b.part[i]; });
}
inline Vec v_mul(const Vec& a, const Vec& b) {
  return by_parts([&](int i) { return a.part[i] * b.part[i]; });
}
inline Vec v_div(const Vec& a, const Vec& b) {
  return by_parts([&](int i) { return a.part[i] / b.part[i]; });
}
inline Vec v_fma(const Vec& a, const Vec& b, const Vec& c) {  // a * b + c, rounded twice
  return by_parts([&](int i) { return a.part[i] * b.part[i] + c.part[i]; });
}
inline Vec v_fms(const Vec& a, const Vec& b, const Vec& c) {  // a * b - c, rounded twice
  return by_parts([&](int i) { return a.part[i] * b.part[i] - c.part[i]; });
}
inline Float4 blend(Int4 mask, Float4 x, Float4 y) {  // mask ? x : y
  return reinterpret_cast<Float4>((mask & reinterpret_cast<Int4>(x)) | (~mask & reinterpret_cast<Int4>(y)));
}
// The larger; b if either is NaN.
inline Vec v_max(const Vec& a, const Vec& b) {
  return by_parts([&](int i) { return blend(a.part[i] > b.part[i], a.part[i], b.part[i]); });
}
inline Vec v_abs(const Vec& a) {
  const Int4 mask = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
  return by_parts([&](int i) { return reinterpret_cast<Float4>(reinterpret_cast<Int4>(a.part[i]) & mask); });
}
inline Vec v_copysign(const Vec& magnitude, const Vec& sign) {
  const Int4 mask = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
  return by_parts([&](int i) { return blend(mask, magnitude.part[i], sign.part[i]); });
}
// a < b ? x : y, lane by lane.
inline Vec v_if_less(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  return by_parts([&](int i) { return blend(a.part[i] < b.part[i], x.part[i], y.part[i]); });
}
inline bool v_any_greater(const Vec& a, const Vec& b) {
  const Int4 any =
      (a.part[0] > b.part[0]) | (a.part[1] > b.part[1]) | (a.part[2] > b.part[2]) | (a.part[3] > b.part[3]);
  return (any[0] | any[1] | any[2] | any[3]) != 0;
}
// Lanes [low, high) of x, `other` elsewhere; 0 <= low <= high <= 16.
inline Vec v_keep(const Vec& x, std::int64_t low, std::int64_t high, const Vec& other) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = i >= low && i < high ? x[i] : other[i];
  return v_load(lanes);
}
// The bits of x as integers, shifted left by 23: an integer n + 127 in the low bits becomes the float 2^n.
inline Vec v_shift_to_exponent(const Vec& x) {
  return by_parts([&](int i) { return reinterpret_cast<Float4>(reinterpret_cast<Int4>(x.part[i]) << 23); });
}
// Across lanes, always by the same tree: 8 apart, 4 apart, 2, 1.
inline float v_sum_lanes(const Vec& x) {
  const Float4 a = (x.part[0] + x.part[2]) + (x.part[1] + x.part[3]);
  return (a[0] + a[2]) + (a[1] + a[3]);
}
inline float v_max_lanes(const Vec& x) {
  float largest = x[0];
  for (int i = 1; i < 16; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}
inline void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 2);  // into the second-level cache, see vec16_avx512.h
}

// The sum of squares in float64; see vec16_avx512.h.
struct SquareSum {
  double part[16] = {};

  void take(const Vec& x) {
    for (int i = 0; i < 16; ++i) {
      const double value = x[i];
      part[i] += value * value;
    }
  }
  double total() const {
    double a[8];
    for (int i = 0; i < 8; ++i) a[i] = part[i] + part[i + 8];
    const double b[4] = {a[0] + a[4], a[1] + a[5], a[2] + a[6], a[3] + a[7]};
    return (b[0] + b[2]) + (b[1] + b[3]);
  }
};

}  // namespace
}  // namespace quire::cpu
