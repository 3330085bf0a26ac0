// Purpose: linear layers to test and to time, described by a line of text, e.g.
//   "int4 g32 zero8 f16 n=50 k=96"   "int4 g32 min code n=1536 k=1536"   "bf16 n=17 k=70"
// In: text. Out: canonical rows filled from a seed. Thread: any. Out of scope: the operations; not linked
// into the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/packed_weight.h"
#include "base/dtype.h"

namespace quire::testing {

// What the numbers look like.
enum class Fill {
  kNormal,    // about normal, scales about 0.01 with both signs
  kZeros,     // every weight is zero
  kHuge,      // scales near the largest that keep a sum finite
  kDenormal,  // float32 (or float16) denormals
  kExtremeQ,  // only the smallest and the largest q
};

struct LinearProblem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool grouped = false;
  int bits = 0;
  int group_size = 0;
  int zero = 0;
  bool has_mins = false;
  std::string scales;  // "f16", "f32", "code" (two-level, super-blocks of 256)
  DType storage = DType::kF32;
  std::string text;
};
// CHECKs that the line is well-formed.
LinearProblem parse_linear_problem(std::string_view line);

GroupedRows make_grouped_rows(const LinearProblem& problem, std::uint32_t seed, Fill fill = Fill::kNormal);

struct FloatMatrix {
  std::vector<std::uint8_t> bytes;
  FloatRows rows;  // points into bytes
};
FloatMatrix make_float_rows(const LinearProblem& problem, std::uint32_t seed, Fill fill = Fill::kNormal);

std::vector<float> make_activations(std::int64_t num_rows, std::int64_t k, std::uint32_t seed);

}  // namespace quire::testing
