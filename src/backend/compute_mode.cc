#include "backend/compute_mode.h"

#include <fmt/core.h>

#include "backend/backend.h"
#include "backend/cpu/isa.h"

namespace quire {

std::string_view compute_mode_name(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kF32:
      return "f32";
    case ComputeMode::kBf16:
      return "bf16";
    case ComputeMode::kInt8:
      return "int8";
  }
  return "?";
}

// The rule of `--compute auto`, in order:
//   1. backend ref, or only float32 weights: f32 (nothing rounds what the user asked to be exact);
//   2. a native bf16 dot product: bf16, whose error (0.003 to 0.006 of a logprob) is a fifth of int8's;
//   3. quantized weights and a vector int8 dot product (AVX2 or AVX-512): int8, the fastest there;
//   4. otherwise f32: rounding activations would cost accuracy and gain no speed.
ComputeChoice choose_compute_mode(std::string_view backend_name, const std::string& isa,
                                  bool weights_quantized, bool weights_all_f32) {
  if (backend_name == "ref") return {ComputeMode::kF32, "backend ref is the reference: float32 activations"};
  if (weights_all_f32) return {ComputeMode::kF32, "all weights are float32"};
  const auto choice = cpu::choose_isa(isa);
  if (!choice.ok())
    return {ComputeMode::kF32, "no instruction set could be chosen: " + choice.error().message};
  const std::string_view tier = cpu::isa_name(choice->isa);
  if (choice->isa >= cpu::Isa::kAvx512Bf16)
    return {ComputeMode::kBf16, fmt::format("{} has a bf16 dot product, more accurate than int8", tier)};
  if (weights_quantized && choice->isa != cpu::Isa::kGeneric)
    return {ComputeMode::kInt8,
            fmt::format("weights are quantized and {} has int8 but no bf16 dot products", tier)};
  return {ComputeMode::kF32, weights_quantized
                                 ? fmt::format("{} has no vector int8 or bf16 dot products", tier)
                                 : fmt::format("weights are float and {} has no bf16 dot product", tier)};
}

}  // namespace quire
