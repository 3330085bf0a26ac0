// Purpose: which layers and which attention `quire bench kernels` times: built-in shapes times layouts, the
// matrices of a model, or a file of problems. In: flags. Out: cases. Thread: plain functions. Out of scope:
// measuring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench_attention.h"
#include "apps/bench_problems.h"
#include "base/result.h"

namespace quire {

struct KernelCaseFlags {
  std::string model;                     // "" = none
  std::vector<std::string> shapes;       // names of built-in shapes, or "all"
  std::string problems;                  // a file
  std::vector<std::string> layouts;      // of built-in shapes
  std::vector<std::int64_t> row_counts;  // instead of the default, and of those in the file
  std::vector<std::string> kv_dtypes = {"f16"};
};

struct KernelCases {
  std::vector<LinearCase> linear;
  std::vector<AttentionCase> attention;
  std::vector<std::string> skipped;  // what cannot be, and why
};
Result<KernelCases> read_kernel_cases(const KernelCaseFlags& flags);

inline constexpr const char* kDefaultBenchShapes = "qwen2.5-1.5b";
std::vector<std::string> default_bench_layouts();
std::vector<std::int64_t> default_bench_rows();

}  // namespace quire
