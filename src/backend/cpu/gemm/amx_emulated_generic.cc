// The AMX kernel body on tiles and vectors in plain C++: see amx.h. (The vectors must come before the body
// that is written on their names.)
// clang-format off
#include "backend/cpu/gemm/amx_vectors_generic.h"
#include "backend/cpu/gemm/amx_tiles_emulated.h"
#include "backend/cpu/gemm/amx_body.h"
// clang-format on

namespace quire::cpu::gemm {

constinit const AmxTable kAmxEmulatedGeneric = {"emulated amx, generic vectors", pack_panel, run_any};

}  // namespace quire::cpu::gemm
