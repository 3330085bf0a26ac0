// Purpose: attention in float32 in plain C++, for machines without a tier of their own.
// The order of the headers matters: vectors, then functions of them, then the kernel.
// clang-format off
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/simd/vec16_generic.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/attention/attention_common.h"
#include "backend/cpu/attention/attention_f32_body.h"
// clang-format on

namespace quire::cpu {

constinit const AttentionKernel kAttentionF32Generic = {"float32, plain C++", kMaxUnitRows,   &run_tile,
                                                        &merge_states,        &scratch_bytes, nullptr};

}  // namespace quire::cpu
