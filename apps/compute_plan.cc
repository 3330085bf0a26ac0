#include "apps/compute_plan.h"

#include <cstdlib>

#include <fmt/format.h>

#include "apps/app_support.h"

namespace quire {
namespace {

struct WeightKinds {
  bool quantized = false;
  bool all_f32 = true;
};

WeightKinds kinds_of(const Checkpoint& checkpoint) {
  WeightKinds kinds;
  for (const TensorView& tensor : checkpoint.tensors->tensors()) {
    if (tensor.shape.size() < 2) continue;  // norms and biases are float in every format
    const bool f32 = tensor.type == TensorType::kF32;
    const bool f16 = tensor.type == TensorType::kF16 || tensor.type == TensorType::kBf16;
    kinds.all_f32 &= f32;
    kinds.quantized |= !f32 && !f16;
  }
  return kinds;
}

Result<ComputeChoice> choose_compute(const ModelFlags& flags, const std::string& isa,
                                     const WeightKinds& kinds) {
  std::string wanted = flags.compute;
  std::string reason = "--compute";
  // What vLLM's users mean by these: the type of the arithmetic too.
  if (wanted == "auto" && (flags.dtype == "float32" || flags.dtype == "bfloat16")) {
    wanted = flags.dtype == "float32" ? "f32" : "bf16";
    reason = "--dtype";
  }
  if (wanted == "f32") return ComputeChoice{ComputeMode::kF32, reason};
  if (wanted == "bf16") return ComputeChoice{ComputeMode::kBf16, reason};
  if (wanted == "int8") return ComputeChoice{ComputeMode::kInt8, reason};
  if (wanted != "auto") {
    return invalid(fmt::format("--compute {}: choose auto, f32, bf16 or int8", wanted), "compute");
  }
  return choose_compute_mode(flags.backend, isa, kinds.quantized, kinds.all_f32);
}

// How weights are held (docs/flow.md, Numbers); why, for the report. nullopt = as the file has them.
struct WeightDType {
  std::optional<DType> hold_as;
  std::string reason;
};
Result<WeightDType> choose_weight_dtype(const ModelFlags& flags, const WeightKinds& kinds, ComputeMode mode) {
  std::optional<DType> asked;
  if (flags.dtype == "float32" || flags.dtype == "float") {
    return WeightDType{std::nullopt, "as in the file, exact: --dtype float32"};
  }
  if (flags.dtype == "bfloat16") asked = DType::kBf16;
  if (flags.dtype == "float16" || flags.dtype == "half") asked = DType::kF16;
  if (!asked.has_value() && flags.dtype != "auto") {
    return invalid(fmt::format("--dtype {}: choose auto, bfloat16, float16 or float32", flags.dtype),
                   "dtype");
  }
  if (kinds.quantized && mode != ComputeMode::kF32) {
    return WeightDType{std::nullopt, "quantized as in the file; --dtype changes only float weights"};
  }
  if (kinds.quantized && !asked.has_value()) {
    return WeightDType{DType::kBf16,
                       "dequantized and rounded to bf16, as the reference answers of compute f32 are; "
                       "--dtype float32 keeps the exact values"};
  }
  if (!asked.has_value()) return WeightDType{std::nullopt, "as in the file"};
  return WeightDType{asked, fmt::format("held as {}: --dtype", dtype_name(*asked))};
}

}  // namespace

Result<ComputePlan> plan_compute(const ModelFlags& flags, const Checkpoint& checkpoint,
                                 const EngineInfo* built) {
  ComputePlan plan;
  const char* isa = std::getenv("QUIRE_ISA");
  plan.options.isa = isa == nullptr ? "" : isa;
  plan.cpus = detect_cpu_budget();
  plan.options.num_threads = flags.threads > 0 ? flags.threads : plan.cpus.num_usable;
  plan.options.pin_threads = flags.threads > 0;
  if (built != nullptr && built->tuning.has_value()) plan.options.tuning = *built->tuning;
  const WeightKinds kinds = kinds_of(checkpoint);
  const bool as_built = built != nullptr && flags.compute == "auto" && flags.dtype == "auto";
  ModelFlags wanted = flags;
  if (as_built) wanted.compute = built->compute;
  QUIRE_TRY(plan.compute, choose_compute(wanted, plan.options.isa, kinds));
  if (as_built) plan.compute.reason = "what the engine file was built for";
  plan.options.compute = plan.compute.mode;
  if (as_built) {
    if (built->dtype == "bf16") plan.hold_as = DType::kBf16;
    if (built->dtype == "f16") plan.hold_as = DType::kF16;
    plan.hold_as_reason = plan.hold_as.has_value() ? fmt::format("held as {}, as built", built->dtype)
                                                   : std::string("as in the checkpoint, as built");
    return plan;
  }
  QUIRE_TRY(const WeightDType held, choose_weight_dtype(flags, kinds, plan.compute.mode));
  plan.hold_as = held.hold_as;
  plan.hold_as_reason = held.reason;
  return plan;
}

}  // namespace quire
