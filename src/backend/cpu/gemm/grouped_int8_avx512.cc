// Purpose: grouped integer weights x int8 activations, avx512. (bytes_avx512.h must come before the body that
// is written on its names.)
#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/grouped_int8_body.h"

namespace quire::cpu::gemm {

constinit const GroupedInt8Table kGroupedInt8Avx512 = {"avx512", QUIRE_GROUPED_KERNELS(Int8Product)};

}  // namespace quire::cpu::gemm
