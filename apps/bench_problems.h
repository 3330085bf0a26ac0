// Purpose: the layers that `quire bench kernels` times: built-in shapes, those of a checkpoint, or a file of
// problems. In: names, a checkpoint, text. Out: shapes and layouts, and weights filled from a fixed seed.
// Thread: plain values. Out of scope: measuring (bench_kernels.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/packed_weight.h"
#include "base/dtype.h"
#include "base/result.h"
#include "loader/checkpoint.h"

namespace quire {

// How a weight is stored, as GroupedRows and FloatRows have it.
struct WeightLayout {
  std::string name;  // "q4_0", or as in a problem file: "int4 g32 zero8 f16"
  int bits = 0;      // 0 = floats of `storage`
  int group_size = 0;
  int zero = 0;  // constant zero point, if there are no minimums
  bool has_mins = false;
  enum class Scales { kF16, kF32, kCode } scales = Scales::kF16;  // kCode: two-level, super-blocks of 256
  DType storage = DType::kF32;

  bool grouped() const { return bits > 0; }
  bool fits(std::int64_t k) const;  // whole groups and super-blocks in a row
};

struct LinearCase {
  std::string layer;  // what it is in a model: "gate/up", or ""
  WeightLayout layout;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int64_t> row_counts;
};

struct AttentionHeads {
  std::string model;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

// Names of GGUF's types in lower case (q4_0, q4_K, ..., f16, bf16, f32); any case is taken.
Result<WeightLayout> layout_by_name(const std::string& name);

struct ModelShapes {
  std::vector<LinearCase> layers;  // with the default layout and no row counts yet
  AttentionHeads heads;
};
std::vector<std::string> built_in_models();  // "qwen2.5-0.5b", ...
Result<ModelShapes> built_in_shapes(const std::string& model);
// Every shape and layout that the checkpoint's matrices have, once each. Matrices of other layouts than
// GGUF's and plain floats are an error.
Result<ModelShapes> shapes_of(const Checkpoint& checkpoint);

// Lines of "LAYOUT n=N k=K : ROWS ROWS ..."; LAYOUT is a name or int<bits> g<group> (zero<z>|min)
// (f16|f32|code); # begins a comment.
Result<std::vector<LinearCase>> parse_linear_problems(std::string_view text, const std::string& where);

// Weights of that case: about normal in size, no two rows alike.
struct BenchWeights {
  GroupedRows grouped;
  std::vector<std::uint8_t> bytes;  // of `floats`
  FloatRows floats;
  bool is_grouped = false;
  // The chosen rows alone.
  BenchWeights pick(std::span<const std::int64_t> rows) const;
};
BenchWeights make_bench_weights(const LinearCase& problem);

// Rows of activations, some values much larger than the rest, as in real models.
std::vector<float> bench_activations(std::int64_t count, std::uint32_t seed);
// The largest difference, as a share of the root mean square of what is right; infinite if there is a NaN.
double relative_error(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace quire
