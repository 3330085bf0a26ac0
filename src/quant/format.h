// Purpose: checkpoint formats of linear layers -> the runtime layouts of a backend.
// In: a TensorSource and the name of a layer. Out: a PackedWeight. Thread: load time, one caller; work is
// spread over the backend's pool. Out of scope: which layers a model has and what they are called (model/).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "loader/tensor_source.h"

namespace quire {

// One linear layer of a checkpoint.
struct LayerRequest {
  std::string name;    // without the ".weight" (or ".qweight", ...) at its end
  std::int64_t n = 0;  // output features, as the model's configuration says
  std::int64_t k = 0;  // input features
  // Hold the weight as this float type, rounded to nearest even, whatever the checkpoint holds; absent = as
  // it is.
  std::optional<DType> hold_as;
  // Row j of the runtime weight is row permutation[j] of the file; empty = as in the file. [n]
  std::span<const std::int32_t> permutation;
};

class Format {
 public:
  virtual ~Format() = default;
  virtual const char* name() const = 0;
  // Whether the source holds this layer in this format.
  virtual bool recognises(const TensorSource& source, const std::string& layer) const = 0;
  virtual Result<std::unique_ptr<PackedWeight>> load(const TensorSource& source, const LayerRequest& request,
                                                     Backend& backend) const = 0;
};

// The formats in the order in which they are asked (format_list.cc).
std::span<const Format* const> format_list();

// Loads a layer with the first format that recognises it; an error names the layer and what was looked for.
Result<std::unique_ptr<PackedWeight>> load_layer(const TensorSource& source, const LayerRequest& request,
                                                 Backend& backend);

}  // namespace quire
