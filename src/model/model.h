// Purpose: a loaded model: its sizes, its KV memory and its forward pass.
// In: Batch. Out: Logits. Thread: forward() and copy_block() on the engine thread only; config() from any.
// Out of scope: text (text/), which blocks are whose (engine/), arithmetic (backend/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "loader/checkpoint.h"
#include "model/batch.h"
#include "model/config.h"

namespace quire {

class EngineFile;
class EngineWriter;

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  // Must be called once before forward().
  virtual Status allocate_kv(std::int64_t num_blocks, std::int64_t block_size, DType dtype) = 0;
  virtual std::size_t kv_block_bytes(std::int64_t block_size, DType dtype) const = 0;
  virtual Logits forward(const Batch& batch) = 0;
  virtual void copy_block(std::int32_t from, std::int32_t to) = 0;
  virtual std::size_t weight_bytes() const = 0;
  // Lines for the start-up report: layouts, tied embeddings, ignored tensors, rope scaling.
  virtual std::vector<std::string> report() const = 0;
};

struct LoadOptions {
  std::int64_t max_model_len = 0;  // positions to prepare; 0 = the model's own context length
  // Hold every matrix as this float type (rounded) instead of as the checkpoint has it; see docs/flow.md,
  // Numbers.
  std::optional<DType> weight_dtype;
  std::function<void(std::size_t done, std::size_t total)> progress;  // bytes of tensor data packed
  // Take the weights from here instead of from the checkpoint's tensors, whose data is then not read.
  const EngineFile* engine = nullptr;
  // Give it every weight that was packed; all is written when the model is loaded.
  EngineWriter* engine_writer = nullptr;
};
// The backend must outlive the model. Errors name the tensor or the key that is missing or wrong.
Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, Backend& backend,
                                          const LoadOptions& options);

}  // namespace quire
