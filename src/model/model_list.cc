#include "model/model_list.h"

#include <optional>

#include <fmt/core.h>

#include "base/heap_reuse.h"

namespace quire {
namespace {

// Mistral 7B is Llama with a sliding window, which its config.json gives.
constexpr Architecture kArchitectures[] = {
    {"llama", load_llama},
    {"mistral", load_llama},
    {"qwen2", load_qwen2},
    {"qwen3", load_qwen3},
};

}  // namespace

std::span<const Architecture> architecture_list() {
  return kArchitectures;
}

Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options) {
  auto config = read_model_config(checkpoint);
  if (!config.ok()) {
    Error error = config.error();
    error.message = checkpoint.name + ": " + error.message;
    return error;
  }
  std::string known;
  for (const Architecture& architecture : architecture_list()) {
    if (architecture.name == config->architecture) {
      // Unpacking allocates a byte for each value of one weight after another.
      std::optional<HeapReuse> reuse;
      if (options.engine == nullptr) reuse.emplace();
      auto model = architecture.load(*std::move(config), checkpoint, backend, options);
      if (model.ok()) return model;
      Error error = model.error();
      error.message = checkpoint.name + ": " + error.message;
      return error;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  }
  return make_error(ErrorCode::kUnsupported, fmt::format("{}: architecture \"{}\" is not supported ({} are)",
                                                         checkpoint.name, config->architecture, known));
}

}  // namespace quire
