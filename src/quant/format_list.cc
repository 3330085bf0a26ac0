#include <fmt/core.h>

#include "quant/float_format.h"
#include "quant/format.h"
#include "quant/ggml_format.h"

namespace quire {
namespace {

// One line per format. GGUF block types come before plain floats only for readability: they exclude each
// other.
const Format* const kFormats[] = {&ggml_format(), &float_format()};

}  // namespace

std::span<const Format* const> format_list() {
  return kFormats;
}

Result<std::unique_ptr<PackedWeight>> load_layer(const TensorSource& source, const LayerRequest& request,
                                                 Backend& backend) {
  for (const Format* format : format_list()) {
    if (format->recognises(source, request.name)) return format->load(source, request, backend);
  }
  std::string formats;
  for (const Format* format : format_list())
    formats += fmt::format("{}{}", formats.empty() ? "" : ", ", format->name());
  const TensorView* tensor = source.find(request.name + ".weight");
  if (tensor == nullptr) {
    return invalid(
        fmt::format("the checkpoint has no tensor {}.weight, which the model needs", request.name));
  }
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("tensor {} has type {}, which none of the formats ({}) can load as a weight",
                                tensor->name, tensor_type_info(tensor->type).name, formats));
}

}  // namespace quire
