#include "model/weight_reader.h"

#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "model/engine_file.h"
#include "model/engine_writer.h"
#include "model/tensor_names.h"
#include "quant/float_format.h"
#include "quant/format.h"

namespace quire {

WeightReader::WeightReader(const Checkpoint& checkpoint, Backend& backend, const LoadOptions& options)
    : checkpoint_(checkpoint), backend_(backend), options_(options) {}

WeightReader::~WeightReader() {
  if (options_.engine_writer != nullptr) options_.engine_writer->wait();
}

std::string WeightReader::file_name(const std::string& tensor) const {
  if (checkpoint_.format != CheckpointFormat::kGguf) return tensor;
  const auto dot = tensor.find_last_of('.');  // between the layer and "weight" or "bias"
  return gguf_layer_name(tensor.substr(0, dot)) + tensor.substr(dot);
}

bool WeightReader::has(const std::string& tensor) const {
  return checkpoint_.tensors->find(file_name(tensor)) != nullptr;
}

void WeightReader::note_progress(std::size_t bytes) {
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(done_bytes_, checkpoint_.total_bytes);
}

Result<std::unique_ptr<PackedWeight>> WeightReader::linear(const std::string& layer, std::int64_t n,
                                                           std::int64_t k,
                                                           std::span<const std::int32_t> permutation) {
  LayerRequest request;
  const std::string name = file_name(layer + ".weight");
  request.name = name.substr(0, name.size() - std::string_view(".weight").size());
  request.n = n;
  request.k = k;
  request.hold_as = options_.weight_dtype;
  request.permutation = permutation;
  auto weight = load_packed(name, request);
  if (!weight.ok()) return weight;
  read_.insert(name);
  LayoutTotal& total = layouts_[(*weight)->layout_name()];
  total.count += 1;
  total.bytes += (*weight)->num_bytes();
  packed_bytes_ += (*weight)->num_bytes();
  if (const TensorView* tensor = checkpoint_.tensors->find(name)) note_progress(tensor->data.size());
  return weight;
}

// An engine file has weights in the order in which they were asked for, permuted and rounded already.
Result<std::unique_ptr<PackedWeight>> WeightReader::load_packed(const std::string& name,
                                                                const LayerRequest& request) {
  if (options_.engine != nullptr) {
    auto weight = options_.engine->weight(name, times_loaded_[name]++, backend_);
    if (weight.ok() && ((*weight)->n() != request.n || (*weight)->k() != request.k)) {
      return invalid(
          fmt::format("{}: weight {} has shape [{}, {}], but the model's configuration asks for [{}, {}]",
                      options_.engine->path(), name, (*weight)->n(), (*weight)->k(), request.n, request.k));
    }
    return weight;
  }
  auto weight = load_layer(*checkpoint_.tensors, request, backend_);
  if (weight.ok() && options_.engine_writer != nullptr) options_.engine_writer->add_weight(name, **weight);
  return weight;
}

Result<std::vector<float>> WeightReader::read_vector(const TensorView& tensor) {
  if (options_.engine != nullptr) {
    auto stored = options_.engine->vector(tensor.name);
    if (stored.ok() && static_cast<std::int64_t>(stored->size()) != tensor.num_values())
      return invalid(fmt::format("{}: vector {} has another length", options_.engine->path(), tensor.name));
    return stored;
  }
  auto values = read_as_f32(tensor);
  if (values.ok() && options_.engine_writer != nullptr)
    options_.engine_writer->add_vector(tensor.name, *values);
  return values;
}

Result<std::vector<float>> WeightReader::vector(const std::string& tensor, std::int64_t length) {
  const std::string name = file_name(tensor);
  const TensorView* view = checkpoint_.tensors->find(name);
  if (view == nullptr)
    return invalid(fmt::format("the checkpoint has no tensor {}, which the model needs", name));
  if (view->shape.size() != 1 || view->shape[0] != length) {
    return invalid(fmt::format("tensor {} has shape [{}], but the model's configuration asks for [{}]", name,
                               fmt::join(view->shape, ", "), length));
  }
  read_.insert(name);
  note_progress(view->data.size());
  packed_bytes_ += static_cast<std::size_t>(length) * sizeof(float);
  auto values = read_vector(*view);
  if (!values.ok() || !options_.weight_dtype.has_value()) return values;
  // Kept as float32, but with the values that the type can hold: --dtype means every weight.
  for (float& value : *values) value = round_to(*options_.weight_dtype, value);
  return values;
}

Result<std::vector<float>> WeightReader::optional_bias(const std::string& layer, std::int64_t n,
                                                       std::span<const std::int32_t> permutation) {
  if (!has(layer + ".bias")) return std::vector<float>();
  QUIRE_TRY(std::vector<float> values, vector(layer + ".bias", n));
  if (permutation.empty()) return values;
  std::vector<float> permuted(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    permuted[i] = values[static_cast<std::size_t>(permutation[i])];
  return permuted;
}

std::vector<std::string> WeightReader::unread() const {
  std::vector<std::string> names;
  for (const TensorView& tensor : checkpoint_.tensors->tensors()) {
    if (read_.count(tensor.name) == 0) names.push_back(tensor.name);
  }
  return names;
}

std::vector<std::string> WeightReader::layout_report() const {
  std::vector<std::pair<std::string, LayoutTotal>> sorted(layouts_.begin(), layouts_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::vector<std::string> lines;
  for (const auto& [layout, total] : sorted) {
    lines.push_back(fmt::format("{}: {} weights, {:.1f} MiB", layout, total.count,
                                static_cast<double>(total.bytes) / (1 << 20)));
  }
  return lines;
}

}  // namespace quire
