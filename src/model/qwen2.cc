// Qwen2 and Qwen2.5 dense models (arXiv:2407.10671, arXiv:2412.15115): Llama with biases on q, k and v.
#include "model/decoder.h"
#include "model/model_list.h"

namespace quire {

Result<std::unique_ptr<Model>> load_qwen2(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options) {
  DecoderTraits traits;
  traits.qkv_bias_required = true;
  return load_decoder(traits, std::move(config), checkpoint, backend, options);
}

}  // namespace quire
