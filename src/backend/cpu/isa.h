// Purpose: the instruction-set tiers of the `cpu` backend, which of them this machine can run, and the choice
// of one, with a reason for each that was refused. In: CPUID, XGETBV, a pin (option or QUIRE_ISA). Out:
// IsaChoice. Thread: any. Out of scope: which kernel a tier has for an operation (the tables beside the
// kernels).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::cpu {

// In ascending order: a tier can run the kernels of all before it.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view isa_name(Isa isa);  // "generic", "avx2", "avx512", "avx512bf16": the names QUIRE_ISA takes

// What matters here of the processor, and whether the operating system saves the registers it needs.
struct CpuFeatures {
  bool os_saves_avx = false;     // XCR0: xmm, ymm
  bool os_saves_avx512 = false;  // XCR0: opmask, zmm
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512vnni = false;
  bool avx512bf16 = false;
};
CpuFeatures detect_cpu_features();

// Why this tier cannot run with these features, or "" if it can.
std::string isa_refusal(Isa isa, const CpuFeatures& features);

struct IsaChoice {
  Isa isa = Isa::kGeneric;
  std::vector<std::string> report;  // the choice, then one line per refused tier above it
};
// The highest tier that can run, or the pinned one. pin: "" (then the environment variable QUIRE_ISA, if set)
// or a name; an unknown name or a tier that cannot run is an error that lists the tiers that can.
Result<IsaChoice> choose_isa(const std::string& pin);
Result<IsaChoice> choose_isa(const CpuFeatures& features, const std::string& pin,
                             std::string_view pin_source);

}  // namespace quire::cpu
