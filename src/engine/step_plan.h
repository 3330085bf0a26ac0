// Purpose: what one step computes: for each sequence which of its known tokens, and which logits are wanted.
// Made by scheduler, read by batch_builder, sampler and commit, changed by none of them. Thread: engine
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"

namespace quire {

struct PlannedSequence {
  Sequence* sequence = nullptr;
  std::int64_t first = 0;  // position of the first token
  std::int64_t count = 0;  // tokens, >= 1
  // Rows whose logits are wanted: positions [first_scored, first_scored + num_scored) give the logprobs of
  // the prompt tokens after them; then, if `samples`, the last position gives the next token.
  std::int64_t first_scored = 0;
  std::int64_t num_scored = 0;
  bool samples = false;

  std::int64_t num_rows() const { return num_scored + (samples ? 1 : 0); }
};

struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

struct StepPlan {
  std::vector<PlannedSequence> sequences;
  std::vector<BlockCopy> copies;  // before the forward pass: copy-on-write
  std::int64_t num_tokens = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_preempted = 0;  // sequences that gave up their blocks for this plan
};

}  // namespace quire
