// Linear layers in bf16 mode on AMX: see amx.h. (The vectors must come before the body that is written on
// their names.)
// clang-format off
#include "backend/cpu/gemm/amx_vectors_avx512.h"
#include "backend/cpu/gemm/amx_tiles.h"
#include "backend/cpu/gemm/amx_body.h"
// clang-format on

namespace quire::cpu::gemm {

constinit const AmxTable kAmxLinear = {"amx", pack_panel, run_any};

}  // namespace quire::cpu::gemm
