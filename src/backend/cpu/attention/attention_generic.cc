// Purpose: attention in plain C++, for machines without a tier of their own.
// The order of the headers matters: vectors, then functions of them, then the kernel.
// clang-format off
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/simd/vec16_generic.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/attention/attention_body.h"
// clang-format on

namespace quire::cpu {

constinit const AttentionKernel kAttentionGeneric = {&run_tile};

}  // namespace quire::cpu
