// Purpose: the elementwise kernels, written once on 16 lanes; elementwise_{generic,avx2,avx512}.cc include a
// simd/vec16_*.h and then this file. The last, short vector goes through the same operations as the others,
// so a value's bits do not depend on its place. Internal linkage.
#pragma once

namespace quire::cpu {
namespace {

inline constexpr std::int64_t kLanes = 16;

// Calls f(i, n) for each vector: n lanes from index i, n = 16 but for the last.
template <typename F>
inline void for_vectors(std::int64_t count, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, kLanes);
  if (i < count) f(i, count - i);
}
inline Vec load_n(const float* p, std::int64_t n) {
  return n == kLanes ? v_load(p) : v_load_first(p, n);
}
inline void store_n(float* p, Vec x, std::int64_t n) {
  if (n == kLanes) {
    v_store(p, x);
  } else {
    v_store_first(p, x, n);
  }
}

// The sum is taken in float64: float32 squares overflow at 1.8e19 and activations have outliers.
void rms_norm(const float* x, const float* weight, float eps, std::int64_t dim, float* out) {
  SquareSum sum;
  for_vectors(dim, [&](std::int64_t i, std::int64_t n) { sum.take(load_n(x + i, n)); });
  const double mean = sum.total() / static_cast<double>(dim) + static_cast<double>(eps);
  const Vec factor = v_splat(static_cast<float>(1.0 / __builtin_sqrt(mean)));
  for_vectors(dim, [&](std::int64_t i, std::int64_t n) {
    store_n(out + i, v_mul(v_mul(load_n(x + i, n), factor), load_n(weight + i, n)), n);
  });
}

void add(float* x, const float* y, std::int64_t count) {
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    store_n(x + i, v_add(load_n(x + i, n), load_n(y + i, n)), n);
  });
}

// silu(g) = g / (1 + e^-g). With e = e^-|g| nothing overflows: g * (g < 0 ? e : 1) / (1 + e).
void silu_mul(const float* gate, const float* up, std::int64_t count, float* out) {
  for_vectors(count, [&](std::int64_t i, std::int64_t n) {
    const Vec g = load_n(gate + i, n);
    const Vec one = v_splat(1.0f);
    const Vec e = v_exp_nonpositive(v_sub(v_zero(), v_abs(g)));
    const Vec numerator = v_mul(g, v_if_less(g, v_zero(), e, one));
    store_n(out + i, v_mul(v_div(numerator, v_add(one, e)), load_n(up + i, n)), n);
  });
}

void rope(float* head, std::int64_t half_dim, const float* cos, const float* sin) {
  float* other = head + half_dim;
  for_vectors(half_dim, [&](std::int64_t i, std::int64_t n) {
    const Vec a = load_n(head + i, n);
    const Vec b = load_n(other + i, n);
    const Vec c = load_n(cos + i, n);
    const Vec s = load_n(sin + i, n);
    store_n(head + i, v_fms(a, c, v_mul(b, s)), n);
    store_n(other + i, v_fma(b, c, v_mul(a, s)), n);
  });
}

template <void (*kStore)(void*, Vec)>
void narrow(const float* x, std::int64_t count, std::uint16_t* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) kStore(out + i, v_load(x + i));
  if (i == count) return;
  std::uint16_t rest[kLanes];
  kStore(rest, v_load_first(x + i, count - i));
  for (std::int64_t j = 0; i + j < count; ++j) out[i + j] = rest[j];
}

}  // namespace
}  // namespace quire::cpu
