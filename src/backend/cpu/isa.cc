#include "backend/cpu/isa.h"

#include <cstdint>
#include <cstdlib>
#include <iterator>

#include <fmt/core.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu {
namespace {

struct Requirement {
  const char* name;
  bool CpuFeatures::*present;
  bool CpuFeatures::*after = nullptr;  // without that one this one is not asked for
};
constexpr Requirement kAvx2Needs[] = {
    {"AVX registers saved by the operating system", &CpuFeatures::os_saves_avx},
    {"AVX2", &CpuFeatures::avx2},
    {"FMA", &CpuFeatures::fma},
    {"F16C", &CpuFeatures::f16c},
};
constexpr Requirement kAvx512Needs[] = {
    {"AVX-512 registers saved by the operating system", &CpuFeatures::os_saves_avx512},
    {"AVX512F", &CpuFeatures::avx512f},
    {"AVX512BW", &CpuFeatures::avx512bw},
    {"AVX512VL", &CpuFeatures::avx512vl},
    {"AVX512DQ", &CpuFeatures::avx512dq},
    {"AVX512_VNNI", &CpuFeatures::avx512vnni},
};
constexpr Requirement kAvx512Bf16Needs[] = {
    {"AVX512_BF16", &CpuFeatures::avx512bf16},
};
constexpr Requirement kAmxNeeds[] = {
    {"AMX-TILE", &CpuFeatures::amx_tile},
    {"AMX-BF16", &CpuFeatures::amx_bf16},
    {"AMX registers saved by the operating system", &CpuFeatures::os_saves_amx, &CpuFeatures::amx_tile},
    {"the kernel's permission for AMX registers (arch_prctl ARCH_REQ_XCOMP_PERM)",
     &CpuFeatures::amx_permitted, &CpuFeatures::os_saves_amx},
};

struct Tier {
  Isa isa;
  const char* name;
  const Requirement* needs;
  std::size_t num_needs;
};
// From the best to the plainest; a tier needs what all below it need.
constexpr Tier kTiers[] = {
    {Isa::kAmx, "amx", kAmxNeeds, std::size(kAmxNeeds)},
    {Isa::kAvx512Bf16, "avx512bf16", kAvx512Bf16Needs, std::size(kAvx512Bf16Needs)},
    {Isa::kAvx512, "avx512", kAvx512Needs, std::size(kAvx512Needs)},
    {Isa::kAvx2, "avx2", kAvx2Needs, std::size(kAvx2Needs)},
    {Isa::kGeneric, "generic", nullptr, 0},
};

bool bit(std::uint32_t word, int index) {
  return ((word >> index) & 1u) != 0;
}

#if defined(__x86_64__)
CpuProbe::Registers ask_cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  CpuProbe::Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

std::uint64_t ask_xcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

// Linux, Documentation/arch/x86/xstate.rst: the tile data (component 18) are given to a process that asks,
// for all its threads; without it the first tile instruction ends in SIGILL. The answer is checked by asking
// what is permitted.
bool ask_for_amx() {
#if defined(__linux__)
  constexpr long kGetPermitted = 0x1022;  // ARCH_GET_XCOMP_PERM
  constexpr long kRequest = 0x1023;       // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequest, kTileData) != 0) return false;
  std::uint64_t permitted = 0;
  return syscall(SYS_arch_prctl, kGetPermitted, &permitted) == 0 && (permitted >> kTileData & 1) != 0;
#else
  return false;
#endif
}
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  for (const Tier& tier : kTiers)
    if (tier.isa == isa) return tier.name;
  return "?";
}

// Bit positions: Intel SDM volume 2A, CPUID, leaves 1, 7.0 and 7.1; XCR0: volume 1, 13.3.
CpuFeatures detect_cpu_features(const CpuProbe& probe) {
  CpuFeatures found;
  const CpuProbe::Registers basic = probe.cpuid(1, 0);
  found.fma = bit(basic.ecx, 12);
  found.f16c = bit(basic.ecx, 29);
  if (bit(basic.ecx, 27)) {
    const std::uint64_t saved = probe.xcr0();
    found.os_saves_avx = (saved & 0x06u) == 0x06u;
    found.os_saves_avx512 = (saved & 0xe6u) == 0xe6u;
    found.os_saves_amx = (saved & 0x60000u) == 0x60000u;
  }
  const CpuProbe::Registers more = probe.cpuid(7, 0);
  found.avx2 = bit(more.ebx, 5);
  found.avx512f = bit(more.ebx, 16);
  found.avx512dq = bit(more.ebx, 17);
  found.avx512bw = bit(more.ebx, 30);
  found.avx512vl = bit(more.ebx, 31);
  found.avx512vnni = bit(more.ecx, 11);
  found.amx_bf16 = bit(more.edx, 22);
  found.amx_tile = bit(more.edx, 24);
  if (more.eax >= 1) found.avx512bf16 = bit(probe.cpuid(7, 1).eax, 5);
  if (found.amx_tile && found.os_saves_amx) found.amx_permitted = probe.request_amx();
  return found;
}

CpuFeatures detect_cpu_features() {
#if defined(__x86_64__)
  static const CpuFeatures found = detect_cpu_features({ask_cpuid, ask_xcr0, ask_for_amx});
  return found;
#else
  return {};
#endif
}

std::string isa_refusal(Isa isa, const CpuFeatures& features) {
  std::string missing;
  for (const Tier& tier : kTiers) {
    if (tier.isa > isa) continue;
    for (std::size_t i = 0; i < tier.num_needs; ++i) {
      const Requirement& need = tier.needs[i];
      if (need.after != nullptr && !(features.*need.after)) continue;
      if (!(features.*need.present)) missing += (missing.empty() ? "" : ", ") + std::string(need.name);
    }
  }
  return missing.empty() ? "" : "this machine lacks " + missing;
}

Result<IsaChoice> choose_isa(const CpuFeatures& features, const std::string& pin,
                             std::string_view pin_source) {
  std::string runnable;
  for (const Tier& tier : kTiers)
    if (isa_refusal(tier.isa, features).empty())
      runnable += (runnable.empty() ? "" : ", ") + std::string(tier.name);

  IsaChoice choice;
  if (!pin.empty()) {
    for (const Tier& tier : kTiers) {
      if (pin != tier.name) continue;
      const std::string refusal = isa_refusal(tier.isa, features);
      if (!refusal.empty())
        return make_error(ErrorCode::kUnsupported,
                          fmt::format("{} asks for the instruction set '{}', but {}; it can run: {}",
                                      pin_source, pin, refusal, runnable));
      choice.isa = tier.isa;
      choice.report.push_back(fmt::format("instruction set {}: pinned by {}", pin, pin_source));
      return choice;
    }
    return invalid(fmt::format("{} names an unknown instruction set '{}'; this machine can run: {}",
                               pin_source, pin, runnable));
  }
  std::vector<std::string> refused;
  for (const Tier& tier : kTiers) {
    const std::string refusal = isa_refusal(tier.isa, features);
    if (refusal.empty()) {
      choice.isa = tier.isa;
      choice.report.push_back(fmt::format("instruction set {}: the highest of {}", tier.name, runnable));
      break;
    }
    refused.push_back(fmt::format("instruction set {} refused: {}", tier.name, refusal));
  }
  choice.report.insert(choice.report.end(), refused.begin(), refused.end());
  return choice;
}

Result<IsaChoice> choose_isa(const std::string& pin) {
  if (!pin.empty()) return choose_isa(detect_cpu_features(), pin, "the option for the instruction set");
  const char* environment = std::getenv("QUIRE_ISA");
  return choose_isa(detect_cpu_features(), environment == nullptr ? "" : environment, "QUIRE_ISA");
}

}  // namespace quire::cpu
