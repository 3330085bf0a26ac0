// Purpose: attention for AVX2, FMA and F16C.
// The order of the headers matters: vectors, then functions of them, then the kernel.
// clang-format off
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/simd/vec16_avx2.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/attention/attention_body.h"
// clang-format on

namespace quire::cpu {

constinit const AttentionKernel kAttentionAvx2 = {&run_tile};

}  // namespace quire::cpu
