// Purpose: one request (one choice of it) as the engine sees it: the tokens known so far, how many of them
// are in the KV cache, and the blocks that hold them. Made in inbox.cc; changed by scheduler (blocks,
// num_computed on preemption) and commit (tokens, num_computed, results) only. Thread: engine thread after
// the inbox. There is no prefill or decode state: a sequence wants tokens[num_computed, num_known) computed,
// always.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_eviction.h"
#include "engine/sampling_params.h"
#include "engine/token_stream.h"

namespace quire {

using SteadyTime = std::chrono::steady_clock::time_point;

struct Sequence {
  // Fixed when it is made.
  std::string id;
  SamplingParams params;
  std::vector<std::int32_t> eos_ids;
  std::shared_ptr<TokenStream> stream;
  std::int32_t choice = 0;
  std::int32_t priority = 0;
  KvEviction eviction;
  std::uint64_t arrival = 0;    // order of submission
  std::uint64_t seed = 0;       // of its random numbers; those of output i are philox(seed, i)
  std::int64_t num_prompt = 0;  // tokens[0, num_prompt) are the prompt
  std::int64_t max_known = 0;   // prompt and output at most

  std::vector<std::int32_t> tokens;        // prompt, then output
  std::int64_t num_computed = 0;           // tokens whose keys and values are in the cache
  std::vector<std::int32_t> blocks;        // position p lies in blocks[p / block_size], or is kEvictedBlock
  std::vector<std::int32_t> spare_blocks;  // of a sequence that evicts: held for its next positions
  std::int64_t first_live_block = 0;       // likewise: blocks between the sinks' and this one are evicted

  // If penalties are wanted: how often each token occurs in the output; tokens of the prompt are there with 0
  // if repetition_penalty asks for them.
  std::unordered_map<std::int32_t, std::int32_t> output_counts;
  // If prompt logprobs are wanted: those known so far, until they leave with the first event. Positions
  // [0, num_scored) are done, which a preemption does not change.
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  std::int64_t num_scored = 0;

  std::int64_t num_overtaken = 0;       // later sequences that were admitted while this one did not fit
  std::int64_t num_prompt_counted = 0;  // prompt tokens already in the statistics
  std::int32_t num_preemptions = 0;
  SteadyTime submitted_at;
  std::optional<SteadyTime> scheduled_at;  // first time
  std::optional<SteadyTime> first_token_at;
  std::optional<SteadyTime> preempted_at;  // while it waits after a preemption
  std::chrono::duration<double> preempted_for{0};

  std::int64_t num_known() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_output() const { return num_known() - num_prompt; }
  std::span<const std::int32_t> output() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(num_prompt));
  }
  bool wants_tokens() const { return max_known > num_prompt; }  // no = score the prompt only
  bool wants_prompt_logprobs() const { return params.num_prompt_logprobs >= 0; }
  bool wants_penalties() const {
    return params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 ||
           params.presence_penalty != 0.0;
  }
  // What is forgotten shows in the keys and values of later positions, so such blocks are no one else's.
  bool shares_blocks() const { return !eviction.evicts(); }
  bool is_cancelled() const { return stream->cancelled(choice); }
};

}  // namespace quire
