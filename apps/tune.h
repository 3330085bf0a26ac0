// Purpose: measure how the `cpu` backend should cut its work on this machine, with a model's own layers and
// shapes. In: an engine file. Out: the best CpuTuning and what it gains. Results of the model never depend on
// it (docs/flow.md, Exactness), so only time is compared. Thread: the main thread; every candidate has its
// own backend.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "loader/checkpoint.h"
#include "model/engine_file.h"

namespace quire {

struct TuneShapes {
  std::int64_t batch_size = 32;   // sequences that decode at once
  std::int64_t input_len = 256;   // tokens of a prompt
  std::int64_t context_len = 64;  // tokens before each decoded one
};

struct TuneResult {
  CpuTuning tuning;
  std::vector<EngineInfo::Measurement> measurements;
};

Result<TuneResult> tune(const EngineFile& engine, const Checkpoint& checkpoint, const BackendOptions& options,
                        std::optional<DType> hold_as, const TuneShapes& shapes,
                        const std::function<void(double)>& progress);

}  // namespace quire
