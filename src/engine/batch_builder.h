// Purpose: lays a StepPlan out as the flat arrays of a Batch. Thread: engine thread. The batch is valid until
// the next build(): its memory is used again.
#pragma once

#include "engine/step_plan.h"
#include "model/batch.h"

namespace quire {

class BatchBuilder {
 public:
  explicit BatchBuilder(std::int64_t block_size) : block_size_(block_size) {}
  const Batch& build(const StepPlan& plan);

 private:
  void add_eviction(const KvEviction& eviction, std::int64_t first, std::int64_t end);

  const std::int64_t block_size_;
  Batch batch_;
};

}  // namespace quire
