// Purpose: the border between the elementwise driver and its kernels (one per ISA): plain data only.
#pragma once

#include <cstdint>

namespace quire::cpu {

struct ElementwiseKernel {
  // One row.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t dim, float* out);
  void (*add)(float* x, const float* y, std::int64_t count);
  void (*silu_mul)(const float* gate, const float* up, std::int64_t count, float* out);
  // One head: cos, sin: [half_dim].
  void (*rope)(float* head, std::int64_t half_dim, const float* cos, const float* sin);
  // Round to nearest even; float16 saturates at +-65504; NaN stays NaN.
  void (*to_f16)(const float* x, std::int64_t count, std::uint16_t* out);
  void (*to_bf16)(const float* x, std::int64_t count, std::uint16_t* out);
};

extern const ElementwiseKernel kElementwiseGeneric;
#if defined(__x86_64__)
extern const ElementwiseKernel kElementwiseAvx2;
extern const ElementwiseKernel kElementwiseAvx512;
#endif

}  // namespace quire::cpu
