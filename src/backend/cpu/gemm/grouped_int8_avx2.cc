// Purpose: grouped integer weights x int8 activations, avx2. (bytes_avx2.h must come before the body that is
// written on its names.)
#include "backend/cpu/gemm/bytes_avx2.h"
#include "backend/cpu/gemm/grouped_int8_body.h"

namespace quire::cpu::gemm {

constinit const GroupedInt8Table kGroupedInt8Avx2 = {"avx2", QUIRE_GROUPED_KERNELS(Int8Product)};

}  // namespace quire::cpu::gemm
