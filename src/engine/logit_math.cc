#include "engine/logit_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace quire {
namespace {

// Independent partial results per pass, part of the fixed order of every sum.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 4096;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Four at once, by the vector extension of GCC and Clang: at -O2 neither vectorizes these loops by itself.
// Baseline vectors are enough: a pass over a vocabulary reads it from the third-level cache or memory, and
// results cannot depend on the instruction set. The scalar and the vector form do the same operations in the
// same order, so their results are equal.
constexpr std::size_t kWidth = 4;
constexpr std::size_t kVectors = kLanes / kWidth;
using Floats [[gnu::vector_size(16)]] = float;
using Ints [[gnu::vector_size(16)]] = std::int32_t;
using Words [[gnu::vector_size(16)]] = std::int64_t;
using Doubles [[gnu::vector_size(16)]] = double;
using FloatPair [[gnu::vector_size(8)]] = float;

inline Floats load(const float* p) {
  Floats x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline Floats splat(float x) {
  return Floats{x, x, x, x};
}
inline bool any(Ints mask) {
  const Words words = std::bit_cast<Words>(mask);
  return (words[0] | words[1]) != 0;
}
inline FloatPair low_half(Floats x) {
  return __builtin_shufflevector(x, x, 0, 1);
}
inline FloatPair high_half(Floats x) {
  return __builtin_shufflevector(x, x, 2, 3);
}

template <typename Float, typename Int>
inline Float exp_of(Float x) {
  // exp(x) = 2^n exp(r): n = round(x / ln 2) by adding 1.5 * 2^23, r = x - n ln 2 in two steps. Polynomial
  // and split of ln 2 as in Cephes' expf (S. L. Moshier, netlib.org/cephes).
  constexpr float kRound = 12582912.0f;
  const Float shifted = x * 1.44269504088896341f + kRound;
  const Float n = shifted - kRound;
  const Float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Int exponent = std::bit_cast<Int>(shifted) - std::bit_cast<std::int32_t>(kRound);
  return p * std::bit_cast<Float>((exponent + 127) << 23);
}

// Without a temperature the difference is rounded to float32 at once, which costs half the time; else float64
// keeps tiny temperatures from overflowing.
inline float exponent_of(float logit, const Weighting& weighting) {
  if (weighting.inv_temperature == 1.0) return logit - weighting.max;
  return static_cast<float>((static_cast<double>(logit) - static_cast<double>(weighting.max)) *
                            weighting.inv_temperature);
}

inline float weight_inline(float logit, const Weighting& weighting) {
  const float exponent = exponent_of(logit, weighting);
  const bool kept = exponent >= weighting.cut;
  const float weight = exp_of<float, std::int32_t>(kept ? exponent : 0.0f);
  return kept ? weight : 0.0f;
}

template <bool kScaled>
inline Floats exponents(Floats logits, const Weighting& weighting) {
  if constexpr (!kScaled) return logits - splat(weighting.max);
  const auto max = static_cast<double>(weighting.max);
  const Doubles low = (__builtin_convertvector(low_half(logits), Doubles) - max) * weighting.inv_temperature;
  const Doubles high =
      (__builtin_convertvector(high_half(logits), Doubles) - max) * weighting.inv_temperature;
  return __builtin_shufflevector(__builtin_convertvector(low, FloatPair),
                                 __builtin_convertvector(high, FloatPair), 0, 1, 2, 3);
}

template <bool kScaled>
inline Floats weights_inline(Floats logits, const Weighting& weighting) {
  constexpr Floats kZeros{};
  const Floats exponent = exponents<kScaled>(logits, weighting);
  const Ints kept = exponent >= splat(weighting.cut);
  // A mask selects: 0 where not kept.
  const Floats weight = exp_of<Floats, Ints>(kept ? exponent : kZeros);
  return kept ? weight : kZeros;
}

// Sum of the lanes in a fixed order.
double add_up(std::array<double, kLanes>& lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <bool kScaled>
double sum_block(std::span<const float> block, const Weighting& weighting) {
  Doubles low[kVectors] = {};
  Doubles high[kVectors] = {};
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Floats weights = weights_inline<kScaled>(load(&block[i + v * kWidth]), weighting);
      low[v] += __builtin_convertvector(low_half(weights), Doubles);
      high[v] += __builtin_convertvector(high_half(weights), Doubles);
    }
  }
  std::array<double, kLanes> lanes;
  for (std::size_t v = 0; v < kVectors; ++v) {
    std::memcpy(&lanes[v * kWidth], &low[v], sizeof(Doubles));
    std::memcpy(&lanes[v * kWidth + 2], &high[v], sizeof(Doubles));
  }
  for (std::size_t lane = 0; i + lane < block.size(); ++lane) {
    lanes[lane] += static_cast<double>(weight_inline(block[i + lane], weighting));
  }
  return add_up(lanes);
}

double sum_block(std::span<const float> block, const Weighting& weighting) {
  return weighting.inv_temperature == 1.0 ? sum_block<false>(block, weighting)
                                          : sum_block<true>(block, weighting);
}

template <typename Visit>
void for_each_block(std::span<const float> row, Visit visit) {
  for (std::size_t start = 0; start < row.size(); start += kBlock) {
    visit(start, row.subspan(start, std::min(kBlock, row.size() - start)));
  }
}

}  // namespace

RowMax find_max(std::span<const float> row) {
  RowMax best{0, -kInfinity, false};
  bool has_nan = false;
  std::span<const float> best_block;
  for_each_block(row, [&](std::size_t, std::span<const float> block) {
    Floats max[kVectors];
    std::fill(max, max + kVectors, splat(-kInfinity));
    Ints nans{};
    std::size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Floats values = load(&block[i + v * kWidth]);
        max[v] = values > max[v] ? values : max[v];
        nans |= values != values;
      }
    }
    float value = -kInfinity;
    for (std::size_t v = 0; v < kVectors; ++v) {
      for (std::size_t lane = 0; lane < kWidth; ++lane) value = std::max(value, max[v][lane]);
    }
    has_nan |= any(nans);
    for (; i < block.size(); ++i) {
      value = block[i] > value ? block[i] : value;
      has_nan |= std::isnan(block[i]);
    }
    if (value > best.value) {
      best.value = value;
      best_block = block;
    }
  });
  best.usable = !has_nan && std::isfinite(best.value);
  const auto found = std::find(best_block.begin(), best_block.end(), best.value);
  if (found != best_block.end()) best.id = static_cast<std::int32_t>(&*found - row.data());
  return best;
}

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

float exp_nonpositive(float x) {
  return exp_of<float, std::int32_t>(x);
}

float weight_of(float logit, const Weighting& weighting) {
  return weight_inline(logit, weighting);
}

double sum_weights(std::span<const float> row, const Weighting& weighting) {
  double sum = 0;
  for_each_block(row, [&](std::size_t, std::span<const float> block) { sum += sum_block(block, weighting); });
  return sum;
}

std::int32_t draw_by_id(std::span<const float> row, const Weighting& weighting, double uniform) {
  std::vector<double> sums;
  double total = 0;
  for_each_block(row, [&](std::size_t, std::span<const float> block) {
    sums.push_back(sum_block(block, weighting));
    total += sums.back();
  });
  const double target = uniform * total;
  // The block in which the running sum passes the target; if rounding keeps it below, the last with a weight.
  std::size_t chosen = 0;
  double before = 0;
  double running = 0;
  for (std::size_t b = 0; b < sums.size() && running <= target; ++b) {
    if (sums[b] > 0) {
      chosen = b;
      before = running;
    }
    running += sums[b];
  }
  const std::size_t start = chosen * kBlock;
  const auto block = row.subspan(start, std::min(kBlock, row.size() - start));
  std::int32_t id = 0;
  running = before;
  for (std::size_t i = 0; i < block.size() && running <= target; ++i) {
    const float weight = weight_inline(block[i], weighting);
    if (weight > 0) id = static_cast<std::int32_t>(start + i);
    running += static_cast<double>(weight);
  }
  return id;
}

std::vector<Candidate> select_largest(std::span<const float> row, std::int64_t count) {
  const auto wanted = std::min(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), row.size());
  std::vector<Candidate> kept;
  if (wanted == 0) return kept;
  // Collect what beats the wanted-th largest seen so far, and cut the list back whenever it has doubled. An
  // equal value further on has a higher id and does not beat it.
  const std::size_t capacity = 2 * wanted + 64;
  kept.reserve(std::min(capacity, row.size()));
  float threshold = -kInfinity;
  const auto cut_back = [&] {
    if (kept.size() <= wanted) return;
    const auto last = kept.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::nth_element(kept.begin(), last, kept.end(), comes_before);
    threshold = last->logit;
    kept.resize(wanted);
  };
  const auto take = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!(row[i] > threshold)) continue;
      kept.push_back({row[i], static_cast<std::int32_t>(i)});
      if (kept.size() >= capacity) cut_back();
    }
  };
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    Ints greater{};
    for (std::size_t v = 0; v < kVectors; ++v) greater |= load(&row[i + v * kWidth]) > splat(threshold);
    if (any(greater)) take(i, i + kLanes);
  }
  take(i, row.size());
  cut_back();
  std::sort(kept.begin(), kept.end(), comes_before);
  return kept;
}

std::int32_t rank_of(std::span<const float> row, std::int32_t id) {
  const float value = row[static_cast<std::size_t>(id)];
  const auto count = [](std::span<const float> part, auto comes_first) {
    Ints lanes{};
    std::size_t i = 0;
    for (; i + kWidth <= part.size(); i += kWidth) lanes -= comes_first(load(&part[i]));  // a true lane is -1
    std::int32_t sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    for (; i < part.size(); ++i) sum -= comes_first(splat(part[i]))[0];
    return sum;
  };
  const auto place = static_cast<std::size_t>(id);
  return 1 + count(row.first(place), [&](Floats x) { return x >= splat(value); }) +
         count(row.subspan(place + 1), [&](Floats x) { return x > splat(value); });
}

}  // namespace quire
