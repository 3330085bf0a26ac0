// Purpose: grouped integer weights x float32 activations, avx512. (bytes_avx512.h must come before the body
// that is written on its names.)
#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/grouped_f32_body.h"

namespace quire::cpu::gemm {

constinit const GroupedF32Table kGroupedF32Avx512 = {"avx512", QUIRE_GROUPED_KERNELS(F32Product)};

}  // namespace quire::cpu::gemm
