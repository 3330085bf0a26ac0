// Purpose: which kernel does which kind of linear layer on a tier: ordered tables, the first whose tier is
// not above the chosen one wins. To add a kernel: one file here and one line in its table in kernel_list.cc.
// In: the tier. Out: KernelSet with the reasons. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/gemm/amx.h"
#include "backend/cpu/gemm/kernel_types.h"
#include "backend/cpu/isa.h"

namespace quire::cpu::gemm {

struct KernelSet {
  const ActivationTable* activations = nullptr;
  const GroupedInt8Table* grouped_int8 = nullptr;
  const GroupedF32Table* grouped_f32 = nullptr;
  const GroupedInt16Table* grouped_int16 = nullptr;
  const DenseF32Table* dense_f32 = nullptr;
  const DenseBf16Table* dense_bf16 = nullptr;  // null: bf16 mode uses dense_f32
  const AmxTable* amx = nullptr;               // null: no weight is packed for it
  std::vector<std::string> report;             // one line per kind of layer
};
KernelSet select_kernels(Isa isa);

}  // namespace quire::cpu::gemm
