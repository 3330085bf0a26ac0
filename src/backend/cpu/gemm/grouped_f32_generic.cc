// Purpose: grouped integer weights x float32 activations, generic. (bytes_generic.h must come before the body
// that is written on its names.)
#include "backend/cpu/gemm/bytes_generic.h"
#include "backend/cpu/gemm/grouped_f32_body.h"

namespace quire::cpu::gemm {

constinit const GroupedF32Table kGroupedF32Generic = {"generic", QUIRE_GROUPED_KERNELS(F32Product)};

}  // namespace quire::cpu::gemm
