// Purpose: grouped integer weights x int8 activations, generic. (bytes_generic.h must come before the body
// that is written on its names.)
#include "backend/cpu/gemm/bytes_generic.h"
#include "backend/cpu/gemm/grouped_int8_body.h"

namespace quire::cpu::gemm {

constinit const GroupedInt8Table kGroupedInt8Generic = {"generic", QUIRE_GROUPED_KERNELS(Int8Product)};

}  // namespace quire::cpu::gemm
