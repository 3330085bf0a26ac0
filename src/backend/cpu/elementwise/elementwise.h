// Purpose: the operations between the linear layers, for the `cpu` backend: norm, residual sum, gate,
// rotation. In/out: as the functions of the same name in backend/backend.h. Thread: the engine thread calls;
// long inputs are spread over the pool. A value's result depends on its own row only (rms_norm) or on itself
// only (others), not on where in a vector or a part it falls. Accuracy against float64, proved in
// elementwise_test.cc: rms_norm 3 ulp; silu_mul 5 ulp where |gate| < 87, below that the result goes to zero;
// rope 2 ulp of the larger product. Out of scope: linear layers (gemm/).
#pragma once

#include <cstdint>

#include "backend/cpu/elementwise/elementwise_kernel.h"
#include "backend/cpu/isa.h"
#include "base/thread_pool.h"

namespace quire::cpu {

// The best kernels for this tier.
const ElementwiseKernel& elementwise_kernel(Isa isa);

void rms_norm(Isa isa, ThreadPool& pool, const float* x, const float* weight, float eps,
              std::int64_t num_rows, std::int64_t dim, float* out);
void add(Isa isa, ThreadPool& pool, float* x, const float* y, std::int64_t count);
void silu_mul(Isa isa, ThreadPool& pool, const float* gate, const float* up, std::int64_t count, float* out);
void rope(Isa isa, ThreadPool& pool, float* x, std::int64_t num_rows, std::int64_t num_heads,
          std::int64_t head_dim, std::int64_t half_dim, const float* cos, const float* sin,
          const std::int32_t* positions);

}  // namespace quire::cpu
