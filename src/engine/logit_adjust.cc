#include "engine/logit_adjust.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace quire {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Ids of a request were checked by the inbox; those of eos_ids come from a model's files and may be anything.
void mask(std::span<float> row, std::int32_t id) {
  if (id >= 0 && static_cast<std::size_t>(id) < row.size()) row[static_cast<std::size_t>(id)] = kImpossible;
}

void mask_all_but(std::span<float> row, const std::vector<std::int32_t>& allowed) {
  std::vector<float> kept;
  kept.reserve(allowed.size());
  for (const std::int32_t id : allowed) kept.push_back(row[static_cast<std::size_t>(id)]);
  std::fill(row.begin(), row.end(), kImpossible);
  for (std::size_t i = 0; i < allowed.size(); ++i) row[static_cast<std::size_t>(allowed[i])] = kept[i];
}

void mask_bad_words(const Sequence& sequence, std::span<float> row) {
  const auto output = sequence.output();
  for (const std::vector<std::int32_t>& word : sequence.params.bad_words) {
    const std::size_t num_before = word.size() - 1;
    if (num_before > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<std::ptrdiff_t>(num_before))) {
      mask(row, word.back());
    }
  }
}

void mask_stop_tokens(const Sequence& sequence, std::span<float> row) {
  if (!sequence.params.ignore_eos) {
    for (const std::int32_t id : sequence.eos_ids) mask(row, id);
  }
  for (const std::int32_t id : sequence.params.stop_token_ids) mask(row, id);
}

void penalize(const Sequence& sequence, std::span<float> row) {
  const SamplingParams& params = sequence.params;
  const auto repetition = static_cast<float>(params.repetition_penalty);
  for (const auto& [id, count] : sequence.output_counts) {
    float& logit = row[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count > 0) {
      logit -= static_cast<float>(params.frequency_penalty * count + params.presence_penalty);
    }
  }
}

bool is_below_minimum(const Sequence& sequence) {
  return sequence.num_output() < sequence.params.min_tokens;
}

}  // namespace

bool wants_adjusting(const Sequence& sequence) {
  const SamplingParams& params = sequence.params;
  return !params.allowed_token_ids.empty() || !params.bad_words.empty() || is_below_minimum(sequence) ||
         !params.logit_bias.empty() || sequence.wants_penalties();
}

void adjust_logits(const Sequence& sequence, std::span<float> row) {
  const SamplingParams& params = sequence.params;
  if (!params.allowed_token_ids.empty()) mask_all_but(row, params.allowed_token_ids);
  mask_bad_words(sequence, row);
  if (is_below_minimum(sequence)) mask_stop_tokens(sequence, row);
  for (const auto& [id, bias] : params.logit_bias) row[static_cast<std::size_t>(id)] += bias;
  if (sequence.wants_penalties()) penalize(sequence, row);
}

bool is_stop_token(const Sequence& sequence, std::int32_t token) {
  const auto contains = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return (!sequence.params.ignore_eos && contains(sequence.eos_ids)) ||
         contains(sequence.params.stop_token_ids);
}

}  // namespace quire
