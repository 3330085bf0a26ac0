#include "backend/cpu/gemm/kernel_list.h"

#include <fmt/core.h>

namespace quire::cpu::gemm {
namespace {

template <typename Table>
struct Entry {
  Isa needs;
  const Table* table;
};

constexpr Entry<ActivationTable> kActivations[] = {
    {Isa::kAvx2, &kActivationsAvx2},
    {Isa::kGeneric, &kActivationsGeneric},
};
constexpr Entry<GroupedInt8Table> kGroupedInt8[] = {
    {Isa::kAvx512, &kGroupedInt8Avx512},
    {Isa::kAvx2, &kGroupedInt8Avx2},
    {Isa::kGeneric, &kGroupedInt8Generic},
};
constexpr Entry<GroupedF32Table> kGroupedF32[] = {
    {Isa::kAvx512, &kGroupedF32Avx512},
    {Isa::kAvx2, &kGroupedF32Avx2},
    {Isa::kGeneric, &kGroupedF32Generic},
};
constexpr Entry<AmxTable> kAmx[] = {
    {Isa::kAmx, &kAmxLinear},
};
constexpr Entry<GroupedInt16Table> kGroupedInt16[] = {
    {Isa::kAvx512, &kGroupedInt16Avx512},
    {Isa::kAvx2, &kGroupedInt16Avx2},
    {Isa::kGeneric, &kGroupedInt16Generic},
};
constexpr Entry<DenseF32Table> kDenseF32[] = {
    {Isa::kAvx512, &kDenseF32Avx512},
    {Isa::kAvx2, &kDenseF32Avx2},
    {Isa::kGeneric, &kDenseF32Generic},
};
constexpr Entry<DenseBf16Table> kDenseBf16[] = {
    {Isa::kAvx512Bf16, &kDenseBf16Avx512Bf16},
};

// The first entry that the tier can run, or null; adds a line that says which, and why not those before it.
template <typename Table, std::size_t kCount>
const Table* select(const Entry<Table> (&entries)[kCount], Isa isa, const char* what, const char* otherwise,
                    std::vector<std::string>& report) {
  std::string refused;
  for (const Entry<Table>& entry : entries) {
    if (entry.needs <= isa) {
      report.push_back(fmt::format("{}: {}{}", what, entry.table->name, refused));
      return entry.table;
    }
    refused += fmt::format("; {} refused: the tier is {}", entry.table->name, isa_name(isa));
  }
  report.push_back(fmt::format("{}: {}{}", what, otherwise, refused));
  return nullptr;
}

}  // namespace

KernelSet select_kernels(Isa isa) {
  KernelSet set;
  const char* none = "none";
  const char* exact = "the float32 kernel (activations are not rounded)";
  set.grouped_int8 = select(kGroupedInt8, isa, "linear, integer weights x int8", none, set.report);
  const char* below = "the kernels below";
  set.amx =
      select(kAmx, isa, "linear in bf16 mode, integer and bf16 weights rounded to bf16", below, set.report);
  set.grouped_int16 = select(kGroupedInt16, isa, "linear, integer weights x int16", none, set.report);
  set.grouped_f32 = select(kGroupedF32, isa, "linear, integer weights x f32", none, set.report);
  set.dense_bf16 = select(kDenseBf16, isa, "linear, bf16 weights x bf16", exact, set.report);
  set.dense_f32 = select(kDenseF32, isa, "linear, float weights x f32", none, set.report);
  set.activations = select(kActivations, isa, "activation rounding", none, set.report);
  return set;
}

}  // namespace quire::cpu::gemm
