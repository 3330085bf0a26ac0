#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/logit_adjust.h"
#include "engine/logit_math.h"
#include "engine/philox.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sequence make_sequence(const SamplingParams& params, std::vector<std::int32_t> prompt = {0},
                       const std::vector<std::int32_t>& output = {}) {
  Sequence sequence;
  sequence.params = params;
  sequence.seed = params.seed.value_or(1);
  sequence.num_prompt = static_cast<std::int64_t>(prompt.size());
  sequence.tokens = std::move(prompt);
  if (params.repetition_penalty != 1.0) {
    for (const std::int32_t token : sequence.tokens) sequence.output_counts.emplace(token, 0);
  }
  for (const std::int32_t token : output) {
    sequence.tokens.push_back(token);
    ++sequence.output_counts[token];
  }
  sequence.max_known = sequence.num_known() + 10;
  return sequence;
}

std::vector<float> random_logits(std::uint64_t seed, std::size_t size, double spread) {
  std::vector<float> logits;
  for (std::size_t i = 0; i < size; ++i) {
    logits.push_back(
        static_cast<float>((random_uniform(seed, i) + random_uniform(seed + 1, i) - 1) * spread));
  }
  return logits;
}

std::int32_t choose(const SamplingParams& params, const std::vector<float>& logits) {
  return choose_token(make_sequence(params), logits).value();
}

// How often each token is drawn over `num_draws` output positions.
std::vector<int> draw_many(const SamplingParams& params, const std::vector<float>& logits, int num_draws) {
  std::vector<int> counts(logits.size());
  Sequence sequence = make_sequence(params);
  for (int i = 0; i < num_draws; ++i) {
    ++counts.at(static_cast<std::size_t>(choose_token(sequence, logits).value()));
    sequence.tokens.push_back(0);
  }
  return counts;
}

// Tokens of probability 0 must not occur; of the others, Pearson's chi-square must stay below a value that
// one seed in about 10,000 exceeds (Wilson-Hilferty approximation with z = 3.72).
void expect_distribution(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const int num_draws = std::accumulate(counts.begin(), counts.end(), 0);
  double chi_square = 0;
  int num_cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * num_draws;
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    ASSERT_GT(expected, 5) << "too few draws for token " << i;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++num_cells;
  }
  const double freedom = std::max(num_cells - 1, 1);
  const double limit = freedom * std::pow(1 - 2 / (9 * freedom) + 3.72 * std::sqrt(2 / (9 * freedom)), 3);
  EXPECT_LT(chi_square, limit);
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> probabilities;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) probabilities.push_back(std::exp((logit - max) / temperature));
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

// Zeroes all but `kept` and renormalizes.
std::vector<double> keep(std::vector<double> probabilities, const std::vector<std::size_t>& kept) {
  double sum = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) probabilities[i] = 0;
    sum += probabilities[i];
  }
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

// ---- Random numbers ----

TEST(Philox, KnownAnswers) {
  // Random123's kat_vectors (github.com/DEShawResearch/random123, tests/kat_vectors), philox4x32 10.
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, UniformNumbersStayBelowOne) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double value = random_uniform(9, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.004);
}

// ---- Passes over a row ----

TEST(LogitMath, ExponentialIsAccurate) {
  EXPECT_EQ(exp_nonpositive(0), 1.0f);
  double worst = 0;
  for (float x = -87.0f; x <= 0; x += 0.00173f) {
    worst = std::max(worst, std::abs(exp_nonpositive(x) / std::exp(static_cast<double>(x)) - 1));
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(LogitMath, SumsAgreeWithSingleWeights) {
  for (const std::size_t size : {1, 3, 16, 19, 4096, 9000}) {
    const std::vector<float> row = random_logits(size, size, 60);
    for (const double temperature : {0.02, 0.7, 1.0, 3.0}) {
      for (const float cut : {Weighting::kMinExponent, -2.0f}) {
        const Weighting weighting{find_max(row).value, 1 / temperature, cut};
        double sum = 0;
        for (const float logit : row) {
          const double exponent = (static_cast<double>(logit) - weighting.max) / temperature;
          const auto weight = static_cast<double>(weight_of(logit, weighting));
          if (std::abs(exponent - cut) > 1e-4) {
            EXPECT_NEAR(weight, exponent >= cut ? std::exp(exponent) : 0, 1e-5 * weight);
          }
          sum += weight;
        }
        EXPECT_NEAR(sum_weights(row, weighting), sum, 1e-13 * sum);  // the order differs, the terms do not
      }
    }
  }
}

TEST(LogitMath, MaximumOverOddSizes) {
  for (const std::size_t size : {1, 2, 15, 16, 17, 4095, 4096, 4097, 10000}) {
    std::vector<float> row = random_logits(size, size, 10);
    const auto expected = std::max_element(row.begin(), row.end()) - row.begin();
    EXPECT_EQ(find_max(row).id, expected);
    EXPECT_TRUE(find_max(row).usable);
    row[size / 2] = 99;
    row.back() = 99;
    EXPECT_EQ(find_max(row).id, static_cast<std::int32_t>(size / 2)) << "a tie goes to the lowest id";
    for (const float bad : {kNan, kInfinity}) {
      for (const std::size_t at : {std::size_t{0}, size / 3, size - 1}) {
        std::vector<float> damaged = row;
        damaged[at] = bad;
        EXPECT_FALSE(find_max(damaged).usable) << size << " " << at;
      }
    }
  }
  EXPECT_FALSE(find_max(std::vector<float>(20, -kInfinity)).usable);
}

TEST(LogitMath, LargestFewAgreeWithASort) {
  for (const std::size_t size : {1, 7, 100, 5000}) {
    std::vector<float> row = random_logits(size, size, 5);
    for (float& value : row) value = std::round(value * 4) / 4;  // many ties
    if (size > 50) row[3] = row[40] = -kInfinity;
    std::vector<std::int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
    });
    if (size > 50) order.resize(size - 2);
    for (const std::int64_t count : {0, 1, 2, 5, 64, 4999, 5000, 1000000}) {
      const std::vector<Candidate> largest = select_largest(row, count);
      ASSERT_EQ(largest.size(), std::min(order.size(), static_cast<std::size_t>(count)));
      for (std::size_t i = 0; i < largest.size(); ++i) {
        ASSERT_EQ(largest[i].id, order[i]);
        ASSERT_EQ(rank_of(row, order[i]), static_cast<std::int32_t>(i) + 1);
      }
    }
  }
}

TEST(LogitMath, DrawsReachEveryBlockAndNeverAnImpossibleToken) {
  std::vector<float> row(10000, -kInfinity);
  row[100] = row[5000] = row[9999] = 1;
  const Weighting weighting{1.0f};
  EXPECT_EQ(draw_by_id(row, weighting, 0), 100);
  EXPECT_EQ(draw_by_id(row, weighting, 0.32), 100);
  EXPECT_EQ(draw_by_id(row, weighting, 0.34), 5000);
  EXPECT_EQ(draw_by_id(row, weighting, 0.68), 9999);
  EXPECT_EQ(draw_by_id(row, weighting, 1 - 0x1.0p-53), 9999);
}

// ---- Choosing ----

TEST(Sampler, TinyTemperaturesAreGreedy) {  // SMP-01
  const std::vector<float> logits{1.0f, 11.06f, 11.0599f, 3.0f, 11.06f};
  for (const double temperature : {0.0, 5e-324, 1e-30, 1e-5}) {
    SamplingParams params;
    params.temperature = temperature;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      params.seed = seed;
      EXPECT_EQ(choose(params, logits), 1) << temperature;
    }
  }
  // Just above: nothing overflows, and the clear winner wins.
  SamplingParams params;
  params.temperature = 1.1e-5;
  EXPECT_EQ(choose(params, {-3e38f, 5.0f, 3e38f, 0.0f}), 2);
  // The other end of the scale is uniform.
  params.temperature = 1e308;
  expect_distribution(draw_many(params, {5.0f, -5.0f, 0.0f, 1.0f}, 4000), {0.25, 0.25, 0.25, 0.25});
}

TEST(Sampler, EdgeValuesOfTopPAndTopK) {  // SMP-02
  const std::vector<float> logits{1.0f, 2.0f, 2.0f, 0.5f};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SamplingParams params;
    params.seed = seed;
    params.top_p = 1e-9;
    EXPECT_EQ(choose(params, logits), 1);
    params.top_p = 0;
    EXPECT_EQ(choose(params, logits), 1);
    params.top_p = 1;
    params.top_k = 1;
    EXPECT_EQ(choose(params, logits), 1);
  }
  // top_k at or above the vocabulary, 0 and negative are all off.
  SamplingParams params;
  const std::vector<int> all = draw_many(params, logits, 3000);
  expect_distribution(all, softmax(logits, 1));
  for (const std::int64_t top_k : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1000000000}}) {
    params.top_k = top_k;
    EXPECT_EQ(draw_many(params, logits, 3000), all);
  }
}

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> logits{0.3f, 1.5f, -0.8f, 2.0f, 0.0f, -1.2f};
  SamplingParams params;
  params.seed = 7;
  expect_distribution(draw_many(params, logits, 20000), softmax(logits, 1));
  params.temperature = 0.7;
  expect_distribution(draw_many(params, logits, 20000), softmax(logits, 0.7));
  params.temperature = 2.5;
  expect_distribution(draw_many(params, logits, 20000), softmax(logits, 2.5));
  params.temperature = 1;
  // Probabilities: 3: 0.470, 1: 0.285, 0: 0.086, 4: 0.064, 2: 0.029, 5: 0.019 (rounded; sum of the first two
  // 0.76).
  params.top_k = 3;
  expect_distribution(draw_many(params, logits, 20000), keep(softmax(logits, 1), {3, 1, 0}));
  params.top_k = 0;
  params.top_p = 0.8;  // 3 and 1 are not enough
  expect_distribution(draw_many(params, logits, 20000), keep(softmax(logits, 1), {3, 1, 0}));
  params.top_p = 0.7;
  expect_distribution(draw_many(params, logits, 20000), keep(softmax(logits, 1), {3, 1}));
  params.top_p = 1;
  params.min_p = 0.13;  // of 0.470: 0.061
  expect_distribution(draw_many(params, logits, 20000), keep(softmax(logits, 1), {3, 1, 0, 4}));
  params.min_p = 1;
  expect_distribution(draw_many(params, logits, 200), keep(softmax(logits, 1), {3}));
}

TEST(Sampler, TopPCountsWhatTopKAndMinPLeave) {
  const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SamplingParams params;
  params.top_k = 2;    // 0.571, 0.429
  params.top_p = 0.5;  // of that: the first alone; of the whole distribution it would be two
  expect_distribution(draw_many(params, logits, 2000), {1, 0, 0, 0});
  params.top_k = 0;
  params.min_p = 0.6;  // drops below 0.24: again 0.571, 0.429
  expect_distribution(draw_many(params, logits, 2000), {1, 0, 0, 0});
  params.min_p = 0;
  expect_distribution(draw_many(params, logits, 2000), keep({0.4, 0.3, 0.2, 0.1}, {0, 1}));
}

TEST(Sampler, TopPIsExactOverAFlatVocabulary) {
  // 0.9 of 20,000 nearly equal tokens is far more than the first sorted few.
  std::vector<float> logits = random_logits(3, 20000, 0.01);
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0;
  for (const float logit : sorted) total += std::exp(static_cast<double>(logit));
  double sum = 0;
  std::size_t num_kept = 0;
  while (sum < 0.9 * total) sum += std::exp(static_cast<double>(sorted[num_kept++]));
  SamplingParams params;
  params.top_p = 0.9;
  const std::vector<int> counts = draw_many(params, logits, 300);
  double lowest = 1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) lowest = std::min(lowest, static_cast<double>(logits[i]));
  }
  EXPECT_GE(lowest, sorted[num_kept - 1]);         // nothing below the border
  EXPECT_LT(lowest, sorted[num_kept * 97 / 100]);  // and down close to it
}

TEST(Sampler, DrawsDependOnSeedAndPositionOnly) {  // SMP-08
  const std::vector<float> logits = random_logits(5, 1000, 4);
  SamplingParams params;
  params.seed = 42;
  Sequence sequence = make_sequence(params, {1, 2, 3});
  const std::int32_t first = choose_token(sequence, logits).value();
  EXPECT_EQ(choose_token(sequence, logits).value(), first);
  Sequence other_prompt = make_sequence(params, {9});
  EXPECT_EQ(choose_token(other_prompt, logits).value(), first);
  int num_same = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    params.seed = seed;
    num_same += choose_token(make_sequence(params), logits).value() == first ? 1 : 0;
  }
  EXPECT_LT(num_same, 5);
}

// ---- Masks, bias, penalties ----

std::vector<float> adjust(const Sequence& sequence, std::vector<float> logits) {
  EXPECT_TRUE(wants_adjusting(sequence));
  adjust_logits(sequence, logits);
  return logits;
}

TEST(LogitAdjust, PenaltyScopeAndSigns) {  // SMP-13
  SamplingParams params;
  params.repetition_penalty = 2;
  // Prompt 0, 1; output 2, 2, 3. Positive logits are divided, negative multiplied; 4 is untouched.
  Sequence sequence = make_sequence(params, {0, 1, 0}, {2, 2, 3});
  EXPECT_THAT(adjust(sequence, {4, -4, 4, -4, 4}), ElementsAre(2, -8, 2, -8, 4));
  params.repetition_penalty = 1;
  params.presence_penalty = 0.5;
  sequence = make_sequence(params, {0, 1, 0}, {2, 2, 3});
  EXPECT_THAT(adjust(sequence, {4, -4, 4, -4, 4}), ElementsAre(4, -4, 3.5f, -4.5f, 4));
  params.presence_penalty = 0;
  params.frequency_penalty = 0.25;
  sequence = make_sequence(params, {0, 1, 0}, {2, 2, 3});
  EXPECT_THAT(adjust(sequence, {4, -4, 4, -4, 4}), ElementsAre(4, -4, 3.5f, -4.25f, 4));
  // All three: repetition first, then the subtractions.
  params.repetition_penalty = 2;
  params.presence_penalty = 0.5;
  sequence = make_sequence(params, {0, 1, 0}, {2, 2, 3});
  EXPECT_THAT(adjust(sequence, {4, -4, 4, -4, 4}), ElementsAre(2, -8, 1, -8.75f, 4));
}

TEST(LogitAdjust, BiasIsAddedBeforePenalties) {
  SamplingParams params;
  params.logit_bias = {{1, 6.0f}, {2, -100.0f}};
  EXPECT_THAT(adjust(make_sequence(params), {4, -4, 4}), ElementsAre(4, 2, -96));
  params.repetition_penalty = 2;
  EXPECT_THAT(adjust(make_sequence(params, {1}), {4, -4, 4}), ElementsAre(4, 1, -96));
}

TEST(LogitAdjust, Masks) {
  SamplingParams params;
  params.allowed_token_ids = {1, 3, 1};
  params.logit_bias = {{0, 100.0f}};  // what is not allowed stays so
  EXPECT_THAT(adjust(make_sequence(params), {4, 5, 6, 7}), ElementsAre(-kInfinity, 5, -kInfinity, 7));

  params = {};
  params.bad_words = {{0}, {1, 2}, {3, 1, 2, 3}};
  EXPECT_THAT(adjust(make_sequence(params), {1, 1, 1, 1}), ElementsAre(-kInfinity, 1, 1, 1));
  EXPECT_THAT(adjust(make_sequence(params, {0}, {1}), {1, 1, 1, 1}),
              ElementsAre(-kInfinity, 1, -kInfinity, 1));
  EXPECT_THAT(adjust(make_sequence(params, {1}), {1, 1, 1, 1}), ElementsAre(-kInfinity, 1, 1, 1))
      << "the prompt does not count";
  EXPECT_THAT(adjust(make_sequence(params, {0}, {3, 1, 2}), {1, 1, 1, 1}),
              ElementsAre(-kInfinity, 1, 1, -kInfinity));

  params = {};
  params.min_tokens = 2;
  params.stop_token_ids = {3};
  Sequence sequence = make_sequence(params, {0}, {1});
  sequence.eos_ids = {2, 1000000, -1};  // ids that the vocabulary lacks do no harm
  EXPECT_THAT(adjust(sequence, {1, 1, 1, 1}), ElementsAre(1, 1, -kInfinity, -kInfinity));
  sequence.params.ignore_eos = true;
  EXPECT_THAT(adjust(sequence, {1, 1, 1, 1}), ElementsAre(1, 1, 1, -kInfinity));
  sequence.tokens.push_back(1);
  EXPECT_FALSE(wants_adjusting(sequence)) << "the minimum is reached";
}

TEST(Sampler, SaysSoWhenNothingIsPossible) {
  SamplingParams params;
  params.allowed_token_ids = {1};
  params.bad_words = {{1}};
  const auto result = choose_token(make_sequence(params), std::vector<float>{1, 2, 3});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(result.error().message, HasSubstr("no token is possible"));
}

// ---- Logprobs ----

TEST(Logprobs, AreThoseOfTheModelItself) {
  const std::vector<float> logits = random_logits(11, 5000, 6);
  const std::vector<double> probabilities = softmax(logits, 1);
  const PositionLogprobs scored = score_token(logits, 17, 5).value();
  EXPECT_EQ(scored.chosen.token, 17);
  EXPECT_NEAR(scored.chosen.logprob, std::log(probabilities[17]), 1e-6);
  EXPECT_EQ(scored.chosen.rank, rank_of(logits, 17));
  ASSERT_EQ(scored.top.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto id = static_cast<std::size_t>(scored.top[i].token);
    EXPECT_EQ(scored.top[i].rank, static_cast<std::int32_t>(i) + 1);
    EXPECT_NEAR(scored.top[i].logprob, std::log(probabilities[id]), 1e-6);
    EXPECT_EQ(rank_of(logits, scored.top[i].token), scored.top[i].rank);
  }
  EXPECT_EQ(score_token(logits, 17, 1000000).value().top.size(), 5000u);
}

TEST(Logprobs, NearCertaintyKeepsItsDigits) {  // SMP-10: about -4e-8 and -22.63
  std::vector<float> logits(256, 0.0f);
  logits[7] = 22.63f;
  const PositionLogprobs scored = score_token(logits, 7, 2).value();
  EXPECT_NEAR(scored.chosen.logprob, -std::log1p(255 * std::exp(-22.63)), 1e-13);
  EXPECT_NEAR(scored.top[1].logprob, -22.63, 1e-5);
  EXPECT_EQ(scored.top[1].token, 0);
}

// ---- A whole step ----

// One step with sequences of all kinds, any number of threads: the same bits, and errors where they belong.
TEST(Sampler, AStepIsTheSameForAnyNumberOfThreads) {
  constexpr std::int64_t kVocab = 3000;
  std::vector<std::unique_ptr<Sequence>> sequences;
  StepPlan plan;
  std::vector<float> logits;
  for (std::uint64_t i = 0; i < 12; ++i) {
    SamplingParams params;
    params.seed = i;
    params.num_logprobs = 2;
    params.num_prompt_logprobs = 1;
    if (i % 3 == 0) params.top_p = 0.9;
    if (i % 4 == 0) params.repetition_penalty = 1.2;
    auto& sequence = sequences.emplace_back(std::make_unique<Sequence>(make_sequence(params, {1, 2, 3, 4})));
    PlannedSequence planned;
    planned.sequence = sequence.get();
    planned.count = 4;
    planned.num_scored = static_cast<std::int64_t>(i % 4);
    planned.samples = i % 4 == 3 || i % 2 == 0;
    plan.num_rows += planned.num_rows();
    plan.sequences.push_back(planned);
    for (std::int64_t r = 0; r < planned.num_rows(); ++r) {
      const auto row = random_logits(i * 10 + static_cast<std::uint64_t>(r), kVocab, 5);
      logits.insert(logits.end(), row.begin(), row.end());
      if (i == 6 && r == 1) logits.back() = kNan;
    }
  }
  std::vector<SampledTokens> runs;
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    runs.push_back(Sampler(pool).sample(plan, {logits.data(), plan.num_rows, kVocab}));
  }
  for (std::size_t i = 0; i < runs[0].size(); ++i) {
    const SampledSequence& first = runs[0][i];
    EXPECT_EQ(first.error.has_value(), i == 6);
    if (first.error) continue;
    EXPECT_EQ(first.token.has_value(), plan.sequences[i].samples);
    ASSERT_EQ(first.prompt_logprobs.size(), i % 4);
    for (std::size_t p = 0; p < first.prompt_logprobs.size(); ++p) {
      EXPECT_EQ(first.prompt_logprobs[p].chosen.token, static_cast<std::int32_t>(p) + 2);
    }
    for (const SampledTokens& other : runs) {
      EXPECT_EQ(other[i].token, first.token);
      if (!first.logprobs) continue;
      EXPECT_EQ(other[i].logprobs->chosen.logprob, first.logprobs->chosen.logprob);
    }
  }
}

}  // namespace
}  // namespace quire
