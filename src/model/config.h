// Purpose: the sizes and constants of a decoder model, from config.json or GGUF keys, checked for sense.
// In: Checkpoint. Out: ModelConfig. Thread: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/checkpoint.h"

namespace quire {

enum class RopeScalingType { kNone, kLinear, kDynamic, kYarn, kLlama3 };

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;
  double original_context = 0;  // original_max_position_embeddings; 0 = the model's context length
  // YaRN (arXiv:2309.00071)
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0;  // 0 = 0.1 ln(factor) + 1
  double mscale = 0;            // DeepSeek's extension; 0 = unused
  double mscale_all_dim = 0;
  // Llama 3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
};

struct ModelConfig {
  std::string architecture;     // "llama", "qwen2", "qwen3"
  std::int64_t vocab_size = 0;  // rows of the embedding: logits per token
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;        // values per head that rotate, <= head_dim, even
  std::int64_t context_length = 0;  // max_position_embeddings
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  std::vector<float>
      rope_freq_factors;  // GGUF rope_freqs.weight: divides each frequency; [rope_dim / 2] or empty
  bool tie_word_embeddings = false;
  std::int64_t sliding_window = 0;  // 0 = none
  // Of a model with a window: its first layers that do not use it (Qwen2's max_window_layers).
  std::int64_t full_attention_layers = 0;
  std::vector<std::int32_t> eos_ids;  // from config and generation_config, without duplicates
  std::int32_t bos_id = -1;
  // generation_config.json's sampling defaults; NaN / -1 = not given.
  double default_temperature = -1;
  double default_top_p = -1;
  std::int64_t default_top_k = -1;
  double default_repetition_penalty = -1;
  double default_min_p = -1;
  std::string torch_dtype;  // as the file says, or ""
};

Result<ModelConfig> read_model_config(const Checkpoint& checkpoint);

}  // namespace quire
