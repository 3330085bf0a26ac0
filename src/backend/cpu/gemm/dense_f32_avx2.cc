// Purpose: float weights x float32 activations, avx2. (bytes_avx2.h must come before the body that is written
// on its names.)
#include "backend/cpu/gemm/bytes_avx2.h"
#include "backend/cpu/gemm/dense_body.h"

namespace quire::cpu::gemm {

constinit const DenseF32Table kDenseF32Avx2 = {"avx2", QUIRE_DENSE_F32_KERNELS};

}  // namespace quire::cpu::gemm
