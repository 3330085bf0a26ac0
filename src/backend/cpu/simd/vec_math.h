// Purpose: exp and tanh of 16 lanes, on the names of vec16_*.h (include one of those first). The polynomials
// are minimax fits made for Quire (Remez exchange in 40-digit arithmetic, coefficients then rounded to
// float32). Internal linkage.
#pragma once

namespace quire::cpu {
namespace {

// 1.5 * 2^23 + 127: adding it to |x| < 2^22 leaves round(x) + 127 in the low bits.
inline constexpr float kRoundToExponent = 12583039.0f;

// 2^x for x <= 0: within 1 ulp; exactly 1 at 0; 0 below -126.5 (and for -inf); NaN for NaN.
inline Vec v_exp2_nonpositive(Vec x) {
  x = v_max(v_splat(-127.0f), x);
  const Vec shifted = v_add(x, v_splat(kRoundToExponent));
  const Vec f = v_sub(x, v_sub(shifted, v_splat(kRoundToExponent)));  // exact, in [-0.5, 0.5]
  // 2^f = 1 + f * P(f), relative error of the fit 2.6e-9.
  Vec p = v_splat(1.55946778e-4f);
  p = v_fma(p, f, v_splat(1.34066441e-3f));
  p = v_fma(p, f, v_splat(9.61769297e-3f));
  p = v_fma(p, f, v_splat(5.55031055e-2f));
  p = v_fma(p, f, v_splat(2.40226528e-1f));
  p = v_fma(p, f, v_splat(6.93147215e-1f));
  p = v_fma(p, f, v_splat(1.0f));
  return v_mul(p, v_shift_to_exponent(shifted));
}

// e^x for x <= 0: within 2 ulp; exactly 1 at 0; 0 below -87.7 (and for -inf); NaN for NaN.
inline Vec v_exp_nonpositive(Vec x) {
  x = v_max(v_splat(-88.0f), x);
  const Vec shifted = v_fma(x, v_splat(1.44269504f), v_splat(kRoundToExponent));
  const Vec n = v_sub(shifted, v_splat(kRoundToExponent));
  // x - n * ln(2), ln(2) in two parts; the first has 15 bits, so that its product with |n| <= 127 is exact.
  Vec r = v_sub(x, v_mul(n, v_splat(0.693145751953125f)));
  r = v_sub(r, v_mul(n, v_splat(1.42860677e-6f)));
  // e^r = 1 + r + r^2 * P(r), relative error of the fit 3.1e-9.
  Vec p = v_splat(1.38145986e-3f);
  p = v_fma(p, r, v_splat(8.36871688e-3f));
  p = v_fma(p, r, v_splat(4.16683880e-2f));
  p = v_fma(p, r, v_splat(1.66665206e-1f));
  p = v_fma(p, r, v_splat(4.99999934e-1f));
  p = v_fma(p, v_mul(r, r), v_add(r, v_splat(1.0f)));
  return v_mul(p, v_shift_to_exponent(shifted));
}

// tanh(x): within 4 ulp.
inline Vec v_tanh(Vec x) {
  const Vec magnitude = v_abs(x);
  // Below 0.625: x + x^3 * P(x^2), relative error of the fit 4.4e-9.
  const Vec x2 = v_mul(x, x);
  Vec p = v_splat(-5.70498812e-3f);
  p = v_fma(p, x2, v_splat(2.06390883e-2f));
  p = v_fma(p, x2, v_splat(-5.37397154e-2f));
  p = v_fma(p, x2, v_splat(1.33314422e-1f));
  p = v_fma(p, x2, v_splat(-3.33332819e-1f));
  const Vec small = v_fma(v_mul(x2, x), p, x);
  // Above: (1 - e) / (1 + e) with e = exp(-2 |x|).
  const Vec e = v_exp_nonpositive(v_mul(magnitude, v_splat(-2.0f)));
  const Vec one = v_splat(1.0f);
  const Vec large = v_copysign(v_div(v_sub(one, e), v_add(one, e)), x);
  return v_if_less(magnitude, v_splat(0.625f), small, large);
}

}  // namespace
}  // namespace quire::cpu
