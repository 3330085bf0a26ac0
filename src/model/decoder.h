// Purpose: the dense decoder that Llama and Qwen models share: RMSNorm, grouped-query attention with rotary
// embeddings, SwiGLU. What differs between them is a DecoderTraits, filled in llama.cc, qwen2.cc, qwen3.cc.
// Thread: engine thread. Source: the models' Hugging Face implementations, for the order of operations.
#pragma once

#include <memory>

#include "model/model.h"

namespace quire {

struct DecoderTraits {
  bool qkv_bias_required =
      false;             // Qwen2: q, k and v have biases; elsewhere a bias is applied if the file has one
  bool qk_norm = false;  // Qwen3: RMSNorm over each head of q and k, before the rotation
  bool gguf_rotates_neighbours = false;  // GGUF Llama stores q and k rows for rotating pairs (2i, 2i + 1)
};

Result<std::unique_ptr<Model>> load_decoder(const DecoderTraits& traits, ModelConfig config,
                                            const Checkpoint& checkpoint, Backend& backend,
                                            const LoadOptions& options);

}  // namespace quire
