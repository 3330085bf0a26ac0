// Llama 1, 2, 3 and what shares their shape (SmolLM2, Mistral 7B, TinyLlama).
#include "model/decoder.h"
#include "model/model_list.h"

namespace quire {

Result<std::unique_ptr<Model>> load_llama(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options) {
  DecoderTraits traits;
  traits.gguf_rotates_neighbours = true;
  return load_decoder(traits, std::move(config), checkpoint, backend, options);
}

}  // namespace quire
