// Purpose: what GGUF calls the layers that models name in the Hugging Face way.
#pragma once

#include <string>

namespace quire {

// "model.layers.3.self_attn.q_proj" -> "blk.3.attn_q"; names without a counterpart come back unchanged.
std::string gguf_layer_name(const std::string& name);

}  // namespace quire
