// Purpose: how tokens are chosen for one request. Filled and range-checked in api/; vLLM's names and defaults
// (docs.vllm.ai, SamplingParams). Thread: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace quire {

struct SamplingParams {
  double temperature = 1.0;                                // >= 0; up to 1e-5 greedy
  double top_p = 1.0;                                      // (0, 1]; 0 is taken as greedy
  std::int64_t top_k = 0;                                  // <= 0 = all
  double min_p = 0.0;                                      // [0, 1]
  double presence_penalty = 0.0;                           // [-2, 2], output tokens only
  double frequency_penalty = 0.0;                          // [-2, 2], output tokens only
  double repetition_penalty = 1.0;                         // (0, 10], prompt and output
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // added to logits at every step; [-100, 100]
  std::vector<std::int32_t> allowed_token_ids;             // empty = all
  std::vector<std::vector<std::int32_t>> bad_words;        // token sequences that must not be completed
  std::optional<std::uint64_t> seed;  // absent = drawn by the engine, different for each request
  std::int64_t max_tokens = 16;       // output tokens; 0 = score the prompt only
  std::int64_t min_tokens = 0;        // stop ids are masked until then
  bool ignore_eos = false;            // eos_ids of the request do not stop it (stop_token_ids still do)
  std::vector<std::int32_t> stop_token_ids;
  // Log-probabilities of the chosen token plus the num_logprobs most likely ones; -1 = none wanted, 0 =
  // chosen only. They are of the model's own distribution, before everything above (vLLM's default
  // logprobs-mode, raw_logprobs), so sums over an output are the model's likelihood of it.
  std::int64_t num_logprobs = -1;
  std::int64_t num_prompt_logprobs = -1;  // likewise for each prompt token given those before it
};

}  // namespace quire
