// Purpose: float weights x float32 activations, avx512. (bytes_avx512.h must come before the body that is
// written on its names.)
#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/dense_body.h"

namespace quire::cpu::gemm {

constinit const DenseF32Table kDenseF32Avx512 = {"avx512", QUIRE_DENSE_F32_KERNELS};

}  // namespace quire::cpu::gemm
