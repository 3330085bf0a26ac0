// Purpose: turns logits into tokens and logprobs. In: StepPlan, Logits. Out: SampledTokens, one entry per
// planned sequence. Thread: engine thread; rows are spread over the pool. A row's result depends only on that
// row and its own sequence, bit for bit. Out of scope: what a chosen token means (commit).
//
// Order for a sampled token, as in vLLM (docs.vllm.ai, v1/sample/sampler.py):
//   1. logprobs, if wanted: of the model's own distribution (vLLM's default logprobs-mode, raw_logprobs)
//   2. masks, bias and penalties (logit_adjust.h)
//   3. greedy if temperature <= 1e-5, top_k = 1 or top_p = 0: the largest logit, lowest id first
//   4. temperature; min_p; top_k; top_p: what remains is renormalized after each
//   5. a draw by inverse cumulative distribution: in order of id, or after top_k or top_p in the order
//      in which those leave the tokens (descending logit, but for a top_p that keeps more than 512)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/step_plan.h"
#include "engine/token_stream.h"
#include "model/batch.h"

namespace quire {

struct SampledSequence {
  std::vector<PositionLogprobs> prompt_logprobs;  // of the num_scored rows
  std::optional<std::int32_t> token;              // if it samples
  std::optional<PositionLogprobs> logprobs;       // of that token, if wanted
  std::optional<Error> error;                     // then nothing else counts
};
using SampledTokens = std::vector<SampledSequence>;  // parallel to StepPlan::sequences

class Sampler {
 public:
  explicit Sampler(ThreadPool& pool) : pool_(pool) {}
  SampledTokens sample(const StepPlan& plan, const Logits& logits);

 private:
  ThreadPool& pool_;
};

// The next token of a sequence, given its logits.
Result<std::int32_t> choose_token(const Sequence& sequence, std::span<const float> logits);
// Logprobs of one token and the num_top most likely ones.
Result<PositionLogprobs> score_token(std::span<const float> logits, std::int32_t token, std::int64_t num_top);

}  // namespace quire
