// Purpose: what `quire inspect` shows of a checkpoint: a few facts a user asks for first. In: a Checkpoint.
// Out: plain values. Thread: any. Out of scope: whether the model can be run (model/), building its tokenizer
// (text/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loader/checkpoint.h"

namespace quire {

struct CheckpointSummary {
  struct TypeUse {
    std::string type;
    std::int64_t num_tensors = 0;
    std::int64_t num_values = 0;
    std::uint64_t bytes = 0;
  };
  std::string architecture;         // "llama", "Qwen2ForCausalLM"; "" if not said
  std::string title;                // general.name, or ""
  std::int64_t num_parameters = 0;  // values in all tensors, as stored
  std::optional<std::int64_t> context_length;
  std::string tokenizer;  // "gpt2 (qwen2)", "BPE"; "" if there is none
  std::optional<std::int64_t> vocabulary_size;
  std::optional<std::int64_t> chat_template_bytes;  // nullopt: no template
  std::vector<TypeUse> types;                       // most bytes first
};

// An unreadable side file (config.json that is no JSON) is an error that names it.
Result<CheckpointSummary> summarize(const Checkpoint& checkpoint);

}  // namespace quire
