// Purpose: fetch a model's weights by their Hugging Face names from either kind of checkpoint, and note what
// was read. Thread: load time, one caller.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "loader/checkpoint.h"

namespace quire {

class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, Backend& backend, std::optional<DType> hold_as,
               std::function<void(std::size_t done, std::size_t total)> progress);

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

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const std::optional<DType> hold_as_;
  std::function<void(std::size_t, std::size_t)> progress_;
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
