// Purpose: attention in float32 for AVX-512 (F, BW, DQ, VL).
// The order of the headers matters: vectors, then functions of them, then the kernel.
// clang-format off
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/simd/vec16_avx512.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/attention/attention_common.h"
#include "backend/cpu/attention/attention_f32_body.h"
// clang-format on

namespace quire::cpu {

constinit const AttentionKernel kAttentionF32Avx512 = {"float32, AVX-512", kMaxUnitRows,   &run_tile,
                                                       &merge_states,      &scratch_bytes, nullptr};

}  // namespace quire::cpu
