// Purpose: the elementwise kernels in plain C++.
// The order of the headers matters: vectors, then functions of them, then the kernels.
// clang-format off
#include "backend/cpu/elementwise/elementwise_kernel.h"
#include "backend/cpu/simd/vec16_generic.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/elementwise/elementwise_body.h"
// clang-format on

namespace quire::cpu {

constinit const ElementwiseKernel kElementwiseGeneric = {
    &rms_norm, &add, &silu_mul, &rope, &narrow<&v_store_f16>, &narrow<&v_store_bf16>};

}  // namespace quire::cpu
