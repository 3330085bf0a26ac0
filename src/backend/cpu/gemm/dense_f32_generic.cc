// Purpose: float weights x float32 activations, generic. (bytes_generic.h must come before the body that is
// written on its names.)
#include "backend/cpu/gemm/bytes_generic.h"
#include "backend/cpu/gemm/dense_body.h"

namespace quire::cpu::gemm {

constinit const DenseF32Table kDenseF32Generic = {"generic", QUIRE_DENSE_F32_KERNELS};

}  // namespace quire::cpu::gemm
