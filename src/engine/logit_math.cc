#include "engine/logit_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace quire {
namespace {

// Independent partial results per pass: wide enough for the compiler to use vectors, and part of the fixed
// order of every sum.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 4096;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Four at once, by the vector extension of GCC and Clang: at -O2 neither vectorizes these loops by itself.
// The scalar and the vector form do the same operations in the same order, so their results are equal.
constexpr std::size_t kWidth = 4;
using Floats [[gnu::vector_size(16)]] = float;
using Ints [[gnu::vector_size(16)]] = std::int32_t;
using Doubles [[gnu::vector_size(32)]] = double;

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

inline float weight_inline(float logit, const Weighting& weighting) {
  const auto exponent = static_cast<float>((static_cast<double>(logit) - static_cast<double>(weighting.max)) *
                                           weighting.inv_temperature);
  const bool kept = exponent >= weighting.cut;
  const float weight = exp_of<float, std::int32_t>(kept ? exponent : 0.0f);
  return kept ? weight : 0.0f;
}

// weights[0, kWidth) of logits[0, kWidth).
inline void weights_inline(const float* logits, const Weighting& weighting, float* weights) {
  constexpr Floats kZeros{};
  Floats logit;
  std::memcpy(&logit, logits, sizeof(logit));
  const Doubles scaled = (__builtin_convertvector(logit, Doubles) - static_cast<double>(weighting.max)) *
                         weighting.inv_temperature;
  const Floats exponent = __builtin_convertvector(scaled, Floats);
  const Ints kept = exponent >= weighting.cut;
  const Floats weight = exp_of<Floats, Ints>(kept ? exponent : kZeros);
  const Floats result = kept ? weight : kZeros;
  std::memcpy(weights, &result, sizeof(result));
}

// Sum of the lanes in a fixed order.
double add_up(std::array<double, kLanes>& lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double sum_block(std::span<const float> block, const Weighting& weighting) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    std::array<float, kLanes> weights;
    for (std::size_t lane = 0; lane < kLanes; lane += kWidth) {
      weights_inline(&block[i + lane], weighting, &weights[lane]);
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(weights[lane]);
  }
  for (std::size_t lane = 0; i + lane < block.size(); ++lane) {
    lanes[lane] += static_cast<double>(weight_inline(block[i + lane], weighting));
  }
  return add_up(lanes);
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
  for_each_block(row, [&](std::size_t start, std::span<const float> block) {
    std::array<float, kLanes> lanes;
    lanes.fill(-kInfinity);
    std::array<std::int32_t, kLanes> nans{};
    std::size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float value = block[i + lane];
        lanes[lane] = value > lanes[lane] ? value : lanes[lane];
        nans[lane] |= value != value ? 1 : 0;
      }
    }
    for (std::size_t lane = 0; i + lane < block.size(); ++lane) {
      lanes[lane] = std::max(lanes[lane], block[i + lane]);
      nans[lane] |= std::isnan(block[i + lane]) ? 1 : 0;
    }
    const float value = *std::max_element(lanes.begin(), lanes.end());
    has_nan |= std::any_of(nans.begin(), nans.end(), [](std::int32_t nan) { return nan != 0; });
    if (value > best.value) {
      const auto found = std::find(block.begin(), block.end(), value);
      best.id = static_cast<std::int32_t>(start) + static_cast<std::int32_t>(found - block.begin());
      best.value = value;
    }
  });
  best.usable = !has_nan && std::isfinite(best.value);
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
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!(row[i] > threshold)) continue;
    kept.push_back({row[i], static_cast<std::int32_t>(i)});
    if (kept.size() >= capacity) cut_back();
  }
  cut_back();
  std::sort(kept.begin(), kept.end(), comes_before);
  return kept;
}

std::int32_t rank_of(std::span<const float> row, std::int32_t id) {
  const float value = row[static_cast<std::size_t>(id)];
  std::array<std::int32_t, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += row[i + lane] > value ? 1 : 0;
  }
  for (; i < row.size(); ++i) lanes[0] += row[i] > value ? 1 : 0;
  const auto num_equal_before = std::count(row.begin(), row.begin() + id, value);
  return std::accumulate(lanes.begin(), lanes.end(), 1 + static_cast<std::int32_t>(num_equal_before));
}

}  // namespace quire
