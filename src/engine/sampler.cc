#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

#include <fmt/core.h>

#include "base/check.h"
#include "engine/logit_adjust.h"
#include "engine/logit_math.h"
#include "engine/philox.h"

namespace quire {
namespace {

// Temperatures up to here are greedy (vLLM's _SAMPLING_EPS, which it compares with <).
constexpr double kGreedyTemperature = 1e-5;
// Most distributions reach a usual top_p within so many tokens, which are then simply sorted.
constexpr std::size_t kSortedTopP = 512;

bool is_greedy(const SamplingParams& params) {
  return params.temperature <= kGreedyTemperature || params.top_k == 1 || params.top_p <= 0;
}

Weighting weighting_of(const SamplingParams& params, float max) {
  Weighting weighting{max, 1.0 / params.temperature, Weighting::kMinExponent};
  // p_i >= min_p * p_max, seen from the exponent: the maximum has exponent 0.
  if (params.min_p > 0) {
    weighting.cut = std::max(weighting.cut, static_cast<float>(std::log(params.min_p)));
  }
  return weighting;
}

double add_weights(std::span<const Candidate> candidates, const Weighting& weighting) {
  double sum = 0;
  for (const Candidate& candidate : candidates)
    sum += static_cast<double>(weight_of(candidate.logit, weighting));
  return sum;
}

// How many of the first candidates are needed for `mass`; 0 if all together have less.
std::size_t count_for_mass(std::span<const Candidate> candidates, const Weighting& weighting, double mass) {
  double sum = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += static_cast<double>(weight_of(candidates[i].logit, weighting));
    if (sum >= mass) return i + 1;
  }
  return 0;
}

// Orders `candidates` so far that its first ones are the most likely that together reach `mass`, and drops
// the rest: a search that halves the range in which the last one kept must lie, in linear time on average.
// Their order is a function of the row, as everything here.
void keep_mass(std::vector<Candidate>& candidates, const Weighting& weighting, double mass) {
  std::size_t first = 0;  // all before it are kept; they weigh `before`
  std::size_t last = candidates.size();
  double before = 0;
  const auto at = [&](std::size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  while (last - first > kSortedTopP) {
    const std::size_t middle = first + (last - first) / 2;
    std::nth_element(at(first), at(middle), at(last), comes_before);
    const double half = add_weights(std::span(candidates).subspan(first, middle - first), weighting);
    if (before + half >= mass) {
      last = middle;
    } else {
      before += half;
      first = middle;
    }
  }
  std::sort(at(first), at(last), comes_before);
  const auto range = std::span(candidates).subspan(first, last - first);
  const std::size_t num_kept = count_for_mass(range, weighting, mass - before);
  // Rounding may leave the sum of all of them just below the mass.
  candidates.resize(num_kept > 0 ? first + num_kept : last);
}

// The smallest set of most likely tokens whose weights reach top_p of the whole row.
std::vector<Candidate> select_mass(std::span<const float> row, const Weighting& weighting, double top_p) {
  const double mass = top_p * sum_weights(row, weighting);
  std::vector<Candidate> candidates = select_largest(row, kSortedTopP);
  if (const std::size_t num_kept = count_for_mass(candidates, weighting, mass); num_kept > 0) {
    candidates.resize(num_kept);
    return candidates;
  }
  candidates.clear();
  for (std::size_t id = 0; id < row.size(); ++id) {
    if (weight_of(row[id], weighting) > 0) candidates.push_back({row[id], static_cast<std::int32_t>(id)});
  }
  keep_mass(candidates, weighting, mass);
  return candidates;
}

std::int32_t draw(const std::vector<Candidate>& candidates, const Weighting& weighting, double uniform) {
  const double target = uniform * add_weights(candidates, weighting);
  double running = 0;
  std::int32_t id = candidates.front().id;
  for (const Candidate& candidate : candidates) {
    const float weight = weight_of(candidate.logit, weighting);
    if (weight > 0) id = candidate.id;
    running += static_cast<double>(weight);
    if (running > target) break;
  }
  return id;
}

Error unusable_row() {
  return make_error(ErrorCode::kInternal,
                    "the model's logits for this request hold NaN or infinity; the model file may be damaged "
                    "or its activations overflow with these settings");
}

// One row of the step and what comes of it.
struct Row {
  const PlannedSequence* planned = nullptr;
  std::int64_t scored_position = -1;  // or -1: the row of the token to sample
  std::optional<std::int32_t> token = std::nullopt;
  std::optional<PositionLogprobs> logprobs = std::nullopt;
  std::optional<Error> error = std::nullopt;
};

Status score_prompt_row(Row& row, std::span<const float> logits) {
  const Sequence& sequence = *row.planned->sequence;
  const std::int32_t token = sequence.tokens[static_cast<std::size_t>(row.scored_position + 1)];
  QUIRE_TRY(row.logprobs, score_token(logits, token, sequence.params.num_prompt_logprobs));
  return {};
}

Status sample_row(Row& row, std::span<const float> logits) {
  const Sequence& sequence = *row.planned->sequence;
  QUIRE_TRY(row.token, choose_token(sequence, logits));
  if (sequence.params.num_logprobs >= 0) {
    QUIRE_TRY(row.logprobs, score_token(logits, *row.token, sequence.params.num_logprobs));
  }
  return {};
}

}  // namespace

Result<PositionLogprobs> score_token(std::span<const float> logits, std::int32_t token,
                                     std::int64_t num_top) {
  const RowMax max = find_max(logits);
  if (!max.usable) return unusable_row();
  const double log_sum = std::log(sum_weights(logits, Weighting{max.value}));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max.value) - log_sum);
  };
  PositionLogprobs scored;
  scored.chosen = {token, logprob(logits[static_cast<std::size_t>(token)]), rank_of(logits, token)};
  std::int32_t rank = 0;
  for (const Candidate& candidate : select_largest(logits, num_top)) {
    scored.top.push_back({candidate.id, logprob(candidate.logit), ++rank});
  }
  return scored;
}

Result<std::int32_t> choose_token(const Sequence& sequence, std::span<const float> logits) {
  const SamplingParams& params = sequence.params;
  // Capacity stays with the thread: a vocabulary's worth of floats.
  thread_local std::vector<float> adjusted;
  const bool is_adjusted = wants_adjusting(sequence);
  if (is_adjusted) {
    adjusted.assign(logits.begin(), logits.end());
    adjust_logits(sequence, adjusted);
  }
  const std::span<const float> row = is_adjusted ? std::span<const float>(adjusted) : logits;

  const RowMax max = find_max(row);
  if (!max.usable) {
    if (is_adjusted && find_max(logits).usable && max.value < 0 && std::isinf(max.value)) {
      return invalid(
          "no token is possible: allowed_token_ids, bad_words and min_tokens together exclude every one",
          "allowed_token_ids");
    }
    return unusable_row();
  }
  if (is_greedy(params)) return max.id;

  const Weighting weighting = weighting_of(params, max.value);
  const double uniform = random_uniform(sequence.seed, static_cast<std::uint64_t>(sequence.num_output()));
  const bool limits_count = params.top_k > 0 && params.top_k < static_cast<std::int64_t>(row.size());
  if (limits_count) {
    std::vector<Candidate> candidates = select_largest(row, params.top_k);
    if (params.top_p < 1) {
      const double mass = params.top_p * add_weights(candidates, weighting);
      const std::size_t num_kept = count_for_mass(candidates, weighting, mass);
      if (num_kept > 0) candidates.resize(num_kept);
    }
    return draw(candidates, weighting, uniform);
  }
  if (params.top_p < 1) return draw(select_mass(row, weighting, params.top_p), weighting, uniform);
  return draw_by_id(row, weighting, uniform);
}

SampledTokens Sampler::sample(const StepPlan& plan, const Logits& logits) {
  QUIRE_CHECK_EQ(logits.num_rows, plan.num_rows);
  std::vector<Row> rows;
  rows.reserve(static_cast<std::size_t>(plan.num_rows));
  for (const PlannedSequence& planned : plan.sequences) {
    for (std::int64_t i = 0; i < planned.num_scored; ++i)
      rows.push_back({&planned, planned.first_scored + i});
    if (planned.samples) rows.push_back({&planned});
  }

  pool_.run(plan.num_rows, [&](std::int64_t index) {
    Row& row = rows[static_cast<std::size_t>(index)];
    const std::span<const float> values(logits.row(index), static_cast<std::size_t>(logits.vocab_size));
    try {
      const Status status =
          row.scored_position >= 0 ? score_prompt_row(row, values) : sample_row(row, values);
      if (!status.ok()) row.error = status.error();
    } catch (const std::exception& exception) {
      row.error = make_error(ErrorCode::kInternal, fmt::format("sampling failed: {}", exception.what()));
    }
  });

  SampledTokens sampled(plan.sequences.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    for (std::int64_t r = 0; r < plan.sequences[i].num_rows(); ++r) {
      Row& row = rows[next++];
      if (row.error && !sampled[i].error) sampled[i].error = std::move(row.error);
      if (row.scored_position < 0) {
        sampled[i].token = row.token;
        sampled[i].logprobs = std::move(row.logprobs);
      } else if (row.logprobs) {
        sampled[i].prompt_logprobs.push_back(std::move(*row.logprobs));
      }
    }
  }
  return sampled;
}

}  // namespace quire
