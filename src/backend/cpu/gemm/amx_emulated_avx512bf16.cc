// The AMX kernel body on the vectors it runs with, and on tiles in plain C++: see amx.h. (The vectors must
// come before the body that is written on their names.)
// clang-format off
#include "backend/cpu/gemm/amx_vectors_avx512.h"
#include "backend/cpu/gemm/amx_tiles_emulated.h"
#include "backend/cpu/gemm/amx_body.h"
// clang-format on

namespace quire::cpu::gemm {

constinit const AmxTable kAmxEmulatedAvx512Bf16 = {"emulated amx, avx512bf16 vectors", pack_panel, run_any};

}  // namespace quire::cpu::gemm
