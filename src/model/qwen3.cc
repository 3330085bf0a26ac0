// Qwen3 dense models (arXiv:2505.09388): no biases, RMSNorm over each head of q and k, head_dim of its own.
#include "model/decoder.h"
#include "model/model_list.h"

namespace quire {

Result<std::unique_ptr<Model>> load_qwen3(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options) {
  DecoderTraits traits;
  traits.qk_norm = true;
  return load_decoder(traits, std::move(config), checkpoint, backend, options);
}

}  // namespace quire
