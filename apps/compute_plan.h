// Purpose: how a model is computed and how its weights are held, by flags, by the checkpoint and by the
// engine file that it comes from, and why. Thread: plain functions.
#pragma once

#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "model/engine_format.h"

namespace quire {

struct ModelFlags;

struct ComputePlan {
  BackendOptions options;
  ComputeChoice compute;
  CpuBudget cpus;
  std::optional<DType> hold_as;  // nullopt: as the file has them
  std::string hold_as_reason;
};
// built: what `quire build` recorded, or null.
Result<ComputePlan> plan_compute(const ModelFlags& flags, const Checkpoint& checkpoint,
                                 const EngineInfo* built);

}  // namespace quire
