// Purpose: grouped integer weights x float32 activations, avx2. (bytes_avx2.h must come before the body that
// is written on its names.)
#include "backend/cpu/gemm/bytes_avx2.h"
#include "backend/cpu/gemm/grouped_f32_body.h"

namespace quire::cpu::gemm {

constinit const GroupedF32Table kGroupedF32Avx2 = {"avx2", QUIRE_GROUPED_KERNELS(F32Product)};

}  // namespace quire::cpu::gemm
