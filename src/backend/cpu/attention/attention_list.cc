#include "backend/cpu/attention/attention_list.h"

#include <fmt/core.h>

#include "backend/compute_mode.h"

namespace quire::cpu {
namespace {

struct Entry {
  Isa needs;
  const AttentionKernel* kernel;
};
constexpr Entry kF32[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, &kAttentionF32Avx512},
    {Isa::kAvx2, &kAttentionF32Avx2},
#endif
    {Isa::kGeneric, &kAttentionF32Generic},
};
// Rounds queries, keys, values and weights to 12 bits or more of the largest of each vector, and holds keys
// and values so, in the place of float16: for the modes that round activations anyway.
constexpr Entry kRounded[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, &kAttentionInt16Avx512},
#else
    {Isa::kGeneric, nullptr},
#endif
};

}  // namespace

AttentionKernels select_attention_kernels(Isa isa, ComputeMode mode) {
  AttentionKernels chosen;
  std::string refused;
  for (const Entry& entry : kF32) {
    if (entry.needs <= isa) {
      chosen.for_floats = entry.kernel;
      break;
    }
    refused += fmt::format("; {} refused: the tier is {}", entry.kernel->name, isa_name(isa));
  }
  chosen.report.push_back(
      fmt::format("attention, float32 or bfloat16 cache: {}{}", chosen.for_floats->name, refused));

  std::string rounded_refused;
  for (const Entry& entry : kRounded) {
    if (entry.kernel == nullptr) continue;
    if (mode == ComputeMode::kF32) {
      rounded_refused += fmt::format("; {} refused: compute f32 rounds nothing", entry.kernel->name);
    } else if (entry.needs > isa) {
      rounded_refused += fmt::format("; {} refused: the tier is {}", entry.kernel->name, isa_name(isa));
    } else {
      chosen.for_f16 = entry.kernel;
      break;
    }
  }
  if (chosen.for_f16 == nullptr) {
    chosen.for_f16 = chosen.for_floats;
    rounded_refused += refused;
  }
  chosen.report.push_back(fmt::format(
      "attention, float16 cache{}: {}{}",
      chosen.for_f16->store != nullptr ? " (held as 16-bit integers with a scale per key and per value)" : "",
      chosen.for_f16->name, rounded_refused));
  return chosen;
}

}  // namespace quire::cpu
