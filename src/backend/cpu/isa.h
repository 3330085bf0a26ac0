// Purpose: the instruction-set tiers of the `cpu` backend.
#pragma once

namespace quire::cpu {

enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16 };

}  // namespace quire::cpu
