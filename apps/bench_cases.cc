#include "apps/bench_cases.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "loader/catalogue.h"

namespace quire {
namespace {

// Logits are wanted of one token of a sequence, so an output layer never sees a whole prompt.
constexpr std::int64_t kMostHeadRows = 64;
constexpr std::int64_t kPrefills[] = {512, 8192};
constexpr std::int64_t kContexts[] = {128, 4096};
constexpr std::int64_t kSequences[] = {1, 32};

}  // namespace

std::vector<std::string> default_bench_layouts() {
  return {"q4_0", "q4_K", "q5_0", "q6_K", "q8_0", "bf16", "f32"};
}

std::vector<std::int64_t> default_bench_rows() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 512};
}

Result<KernelCases> read_kernel_cases(const KernelCaseFlags& flags) {
  KernelCases out;
  const std::vector<std::int64_t> rows = flags.row_counts.empty() ? default_bench_rows() : flags.row_counts;
  std::vector<ModelShapes> models;
  const bool only_problems = !flags.problems.empty() && flags.model.empty() && flags.shapes.empty();
  if (!flags.problems.empty()) {
    std::ifstream file(flags.problems, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file.good()) {
      return make_error(ErrorCode::kNotFound, fmt::format("--problems: cannot read {}", flags.problems));
    }
    QUIRE_TRY(out.linear, parse_linear_problems(text.str(), flags.problems));
    if (!flags.row_counts.empty()) {
      for (LinearCase& problem : out.linear) problem.row_counts = rows;
    }
  }
  if (!flags.model.empty()) {
    QUIRE_TRY(const std::string path, resolve_model(flags.model));
    QUIRE_TRY(const std::unique_ptr<Checkpoint> checkpoint, open_checkpoint(path));
    QUIRE_TRY(ModelShapes shapes, shapes_of(*checkpoint));
    models.push_back(std::move(shapes));
  }
  std::vector<std::string> names = flags.shapes;
  if (names == std::vector<std::string>{"all"}) names = built_in_models();
  if (names.empty() && flags.model.empty() && !only_problems) names = {kDefaultBenchShapes};
  for (const std::string& name : names) {
    QUIRE_TRY(ModelShapes shapes, built_in_shapes(name));
    for (LinearCase& layer : shapes.layers) layer.layout.name.clear();
    models.push_back(std::move(shapes));
  }
  std::vector<WeightLayout> layouts;
  for (const std::string& name : flags.layouts.empty() ? default_bench_layouts() : flags.layouts) {
    QUIRE_TRY(WeightLayout layout, layout_by_name(name));
    layouts.push_back(std::move(layout));
  }
  for (const ModelShapes& model : models) {
    for (const LinearCase& layer : model.layers) {
      // The matrices of a file have their own layouts.
      const std::vector<WeightLayout> own = {layer.layout};
      for (const WeightLayout& layout : layer.layout.name.empty() ? layouts : own) {
        if (!layout.fits(layer.k)) {
          out.skipped.push_back(fmt::format("{} {}x{}: rows of {} are not whole blocks of it", layout.name,
                                            layer.n, layer.k, layer.k));
          continue;
        }
        LinearCase problem = layer;
        problem.layout = layout;
        for (const std::int64_t count : rows) {
          if (layer.layer.starts_with("output layer") && count > kMostHeadRows) continue;
          problem.row_counts.push_back(count);
        }
        out.linear.push_back(std::move(problem));
      }
    }
    for (const std::string& name : flags.kv_dtypes) {
      const DType kv = name == "f32" ? DType::kF32 : name == "bf16" ? DType::kBf16 : DType::kF16;
      for (const std::int64_t length : kPrefills) out.attention.push_back({model.heads, kv, true, length, 1});
      for (const std::int64_t context : kContexts) {
        for (const std::int64_t count : kSequences) {
          out.attention.push_back({model.heads, kv, false, context, count});
        }
      }
    }
  }
  return out;
}

}  // namespace quire
