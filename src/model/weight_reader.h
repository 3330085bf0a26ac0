// Purpose: fetch a model's weights by their Hugging Face names from either kind of checkpoint, or packed from
// an engine file made of it, and note what was read. Thread: load time, one caller.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "quant/format.h"

namespace quire {

class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, Backend& backend, const LoadOptions& options);
  ~WeightReader();  // waits for the engine writer, which reads the weights
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

  bool has(const std::string& tensor) const;  // e.g. "model.layers.0.self_attn.q_proj.bias"
  // The weight of a linear layer (or of the embedding): [n, k]. permutation: see quant/format.h.
  Result<std::unique_ptr<PackedWeight>> linear(const std::string& layer, std::int64_t n, std::int64_t k,
                                               std::span<const std::int32_t> permutation = {});
  // A vector such as a norm's weight or a bias, e.g. "model.norm.weight"; its length is checked.
  Result<std::vector<float>> vector(const std::string& tensor, std::int64_t length);
  // A bias if the checkpoint has one, else empty; permuted as its weight.
  Result<std::vector<float>> optional_bias(const std::string& layer, std::int64_t n,
                                           std::span<const std::int32_t> permutation = {});
  // Tensors of the file that nothing has asked for.
  std::vector<std::string> unread() const;
  void ignore(const std::string& tensor) { read_.insert(file_name(tensor)); }
  // "int4 g32 f16+min: 168 weights, 250.1 MiB", one line per layout, largest first.
  std::vector<std::string> layout_report() const;
  std::size_t packed_bytes() const { return packed_bytes_; }

 private:
  std::string file_name(const std::string& tensor) const;
  void note_progress(std::size_t bytes);
  // The vector of this tensor of the file, from wherever it is.
  Result<std::vector<float>> read_vector(const TensorView& tensor);
  Result<std::unique_ptr<PackedWeight>> load_packed(const std::string& name, const LayerRequest& request);

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const LoadOptions& options_;
  std::map<std::string, int> times_loaded_;  // weights by name
  std::set<std::string> read_;
  struct LayoutTotal {
    int count = 0;
    std::size_t bytes = 0;
  };
  std::map<std::string, LayoutTotal> layouts_;
  std::size_t done_bytes_ = 0;
  std::size_t packed_bytes_ = 0;
};

}  // namespace quire
