// Purpose: grouped integer weights x 16-bit activations, avx2. (bytes_avx2.h must come before the body that
// is written on its names.)
#include "backend/cpu/gemm/bytes_avx2.h"
#include "backend/cpu/gemm/grouped_int16_body.h"

namespace quire::cpu::gemm {

constinit const GroupedInt16Table kGroupedInt16Avx2 = {"avx2", QUIRE_GROUPED_KERNELS(Int16Product)};

}  // namespace quire::cpu::gemm
