#include "model/tensor_names.h"

#include <string_view>

namespace quire {
namespace {

struct NamePair {
  std::string_view hugging_face;
  std::string_view gguf;
};

// Source: the tensor names of the GGUF specification and of Hugging Face's Llama and Qwen models.
constexpr NamePair kWhole[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};
constexpr NamePair kInLayer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr std::string_view kLayerPrefix = "model.layers.";

}  // namespace

std::string gguf_layer_name(const std::string& name) {
  for (const NamePair& pair : kWhole) {
    if (name == pair.hugging_face) return std::string(pair.gguf);
  }
  if (name.starts_with(kLayerPrefix)) {
    const auto dot = name.find('.', kLayerPrefix.size());
    if (dot != std::string::npos) {
      const std::string_view rest = std::string_view(name).substr(dot + 1);
      for (const NamePair& pair : kInLayer) {
        if (rest != pair.hugging_face) continue;
        return "blk." + name.substr(kLayerPrefix.size(), dot - kLayerPrefix.size()) + "." +
               std::string(pair.gguf);
      }
    }
  }
  return name;
}

}  // namespace quire
