// Purpose: the architectures there are. To add one: write model/<arch>.cc and add a line in model_list.cc.
#pragma once

#include <span>
#include <string_view>

#include "model/model.h"

namespace quire {

struct Architecture {
  std::string_view name;  // model_type of config.json, general.architecture of GGUF
  Result<std::unique_ptr<Model>> (*load)(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                         const LoadOptions& options);
};

std::span<const Architecture> architecture_list();

Result<std::unique_ptr<Model>> load_llama(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options);
Result<std::unique_ptr<Model>> load_qwen2(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options);
Result<std::unique_ptr<Model>> load_qwen3(ModelConfig config, const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options);

}  // namespace quire
