// Purpose: the instruction-set tiers of the `cpu` backend, which of them this machine can run, and the choice
// of one, with a reason for each that was refused. In: CPUID, XGETBV, the kernel's permission for AMX tiles,
// a pin (option or QUIRE_ISA). Out: IsaChoice. Thread: any. Out of scope: which kernel a tier has for an
// operation (the tables beside the kernels).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::cpu {

// In ascending order: a tier can run the kernels of all before it.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// "generic", "avx2", "avx512", "avx512bf16", "amx": the names QUIRE_ISA takes
std::string_view isa_name(Isa isa);

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
  bool os_saves_amx = false;  // XCR0: tile configuration, tile data
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_permitted = false;  // the kernel lets this process use the tiles
};

// What detection asks the machine; replaced in tests.
struct CpuProbe {
  struct Registers {
    std::uint32_t eax = 0;
    std::uint32_t ebx = 0;
    std::uint32_t ecx = 0;
    std::uint32_t edx = 0;
  };
  Registers (*cpuid)(std::uint32_t leaf, std::uint32_t subleaf);  // zeros if there is no such leaf
  std::uint64_t (*xcr0)();                                        // asked only if the system uses XSAVE
  // Asks for the tile registers, for the whole process; asked only if the processor has them. Whether it may.
  bool (*request_amx)();
};
CpuFeatures detect_cpu_features(const CpuProbe& probe);
// This machine; asked once.
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
