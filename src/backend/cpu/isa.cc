#include "backend/cpu/isa.h"

#include <cstdint>
#include <cstdlib>
#include <iterator>

#include <fmt/core.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire::cpu {
namespace {

struct Requirement {
  const char* name;
  bool CpuFeatures::*present;
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

struct Tier {
  Isa isa;
  const char* name;
  const Requirement* needs;
  std::size_t num_needs;
};
// From the best to the plainest; a tier needs what all below it need.
constexpr Tier kTiers[] = {
    {Isa::kAvx512Bf16, "avx512bf16", kAvx512Bf16Needs, std::size(kAvx512Bf16Needs)},
    {Isa::kAvx512, "avx512", kAvx512Needs, std::size(kAvx512Needs)},
    {Isa::kAvx2, "avx2", kAvx2Needs, std::size(kAvx2Needs)},
    {Isa::kGeneric, "generic", nullptr, 0},
};

bool bit(std::uint32_t word, int index) {
  return ((word >> index) & 1u) != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  for (const Tier& tier : kTiers)
    if (tier.isa == isa) return tier.name;
  return "?";
}

// Bit positions: Intel SDM volume 2A, CPUID, leaves 1, 7.0 and 7.1; XCR0: volume 1, 13.3.
CpuFeatures detect_cpu_features() {
  CpuFeatures found;
#if defined(__x86_64__)
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return found;
  const bool os_uses_xsave = bit(ecx, 27);
  found.fma = bit(ecx, 12);
  found.f16c = bit(ecx, 29);
  if (os_uses_xsave) {
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    found.os_saves_avx = (low & 0x06u) == 0x06u;
    found.os_saves_avx512 = (low & 0xe6u) == 0xe6u;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  const std::uint32_t max_subleaf = eax;
  found.avx2 = bit(ebx, 5);
  found.avx512f = bit(ebx, 16);
  found.avx512dq = bit(ebx, 17);
  found.avx512bw = bit(ebx, 30);
  found.avx512vl = bit(ebx, 31);
  found.avx512vnni = bit(ecx, 11);
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0)
    found.avx512bf16 = bit(eax, 5);
#endif
  return found;
}

std::string isa_refusal(Isa isa, const CpuFeatures& features) {
  std::string missing;
  for (const Tier& tier : kTiers) {
    if (tier.isa > isa) continue;
    for (std::size_t i = 0; i < tier.num_needs; ++i)
      if (!(features.*tier.needs[i].present))
        missing += (missing.empty() ? "" : ", ") + std::string(tier.needs[i].name);
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
