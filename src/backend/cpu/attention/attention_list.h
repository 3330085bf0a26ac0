// Purpose: which attention kernel serves which cache on a tier: ordered tables, the first whose tier is not
// above the chosen one wins. To add a kernel: one file here and one line in its table in attention_list.cc.
// In: the tier and the compute mode. Out: AttentionKernels with the reasons. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/isa.h"

namespace quire::cpu {

struct AttentionKernels {
  const AttentionKernel* for_floats = nullptr;  // caches of float32 and bfloat16
  const AttentionKernel* for_f16 = nullptr;     // where float16 is asked for
  std::vector<std::string> report;              // one line per kind of cache

  const AttentionKernel& operator[](DType cache) const {
    return cache == DType::kF16 ? *for_f16 : *for_floats;
  }
};
AttentionKernels select_attention_kernels(Isa isa, ComputeMode mode);

}  // namespace quire::cpu
