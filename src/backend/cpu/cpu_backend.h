// Purpose: the `cpu` backend: the operations of backend.h on vector units, by the tier that isa.h chooses.
// In/out/thread: as Backend. Out of scope: the operations themselves (gemm/, attention/, elementwise/,
// kv_cache.h).
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/result.h"

namespace quire::cpu {

// An error if options.isa (or QUIRE_ISA) names a tier that cannot run here.
Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);

}  // namespace quire::cpu
