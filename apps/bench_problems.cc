#include "apps/bench_problems.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "model/config.h"

namespace quire {
namespace {

using Scales = WeightLayout::Scales;

constexpr std::int64_t kSuperBlock = 256;
// Rows of an output layer that are timed: a slice, since all of them take memory and time and tell no more.
constexpr std::int64_t kHeadRows = 32768;

// GGUF's types (quant/ggml_format.cc) in their canonical form.
std::vector<WeightLayout> known_layouts() {
  return {
      {"q4_0", 4, 32, 8, false, Scales::kF16, {}},         {"q4_1", 4, 32, 0, true, Scales::kF16, {}},
      {"q5_0", 5, 32, 16, false, Scales::kF16, {}},        {"q5_1", 5, 32, 0, true, Scales::kF16, {}},
      {"q8_0", 8, 32, 128, false, Scales::kF16, {}},       {"q2_K", 2, 16, 0, true, Scales::kCode, {}},
      {"q3_K", 3, 16, 4, false, Scales::kCode, {}},        {"q4_K", 4, 32, 0, true, Scales::kCode, {}},
      {"q5_K", 5, 32, 0, true, Scales::kCode, {}},         {"q6_K", 6, 16, 32, false, Scales::kCode, {}},
      {"f32", 0, 0, 0, false, Scales::kF16, DType::kF32},  {"f16", 0, 0, 0, false, Scales::kF16, DType::kF16},
      {"bf16", 0, 0, 0, false, Scales::kF16, DType::kBf16}};
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

struct BuiltIn {
  const char* name;
  std::int64_t hidden, intermediate, num_heads, num_kv_heads, head_dim;
};
// config.json of the models.
constexpr BuiltIn kBuiltIn[] = {{"qwen2.5-0.5b", 896, 4864, 14, 2, 64},
                                {"qwen2.5-1.5b", 1536, 8960, 12, 2, 128},
                                {"qwen2.5-7b", 3584, 18944, 28, 4, 128}};

std::optional<std::int64_t> number_after(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix)) return std::nullopt;
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + prefix.size(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// One line, without its comment.
Result<LinearCase> parse_problem(const std::string& line, const std::string& where) {
  const auto wrong = [&](const std::string& what) {
    return invalid(
        fmt::format("{}: {} in \"{}\"; expected e.g. \"q4_0 n=8960 k=1536 : 1 16\" or \"int4 g32 zero8 "
                    "f16 n=8960 k=1536 : 1 16\"",
                    where, what, line));
  };
  LinearCase problem;
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) return wrong("no ':' before the row counts");
  WeightLayout& layout = problem.layout;
  bool has_layout = false;
  bool has_scales = false;
  std::string layout_text;
  std::istringstream words(line.substr(0, colon));
  for (std::string word; words >> word;) {
    if (const auto n = number_after(word, "n=")) {
      problem.n = *n;
      continue;
    }
    if (const auto k = number_after(word, "k=")) {
      problem.k = *k;
      continue;
    }
    layout_text += (layout_text.empty() ? "" : " ") + word;
    if (const auto bits = number_after(word, "int")) {
      layout.bits = static_cast<int>(std::min<std::int64_t>(*bits, 99));
      has_layout = true;
    } else if (layout.grouped() && (word == "f16" || word == "f32" || word == "code")) {
      layout.scales = word == "f16" ? Scales::kF16 : word == "f32" ? Scales::kF32 : Scales::kCode;
      has_scales = true;
    } else if (word == "min") {
      layout.has_mins = true;
    } else if (const auto zero = number_after(word, "zero")) {
      layout.zero = static_cast<int>(std::min<std::int64_t>(*zero, 999));
    } else if (const auto group = number_after(word, "g")) {
      layout.group_size = static_cast<int>(std::min<std::int64_t>(*group, 1 << 20));
    } else {
      auto named = layout_by_name(word);
      if (!named.ok() || has_layout) return wrong(fmt::format("'{}' is not known", word));
      layout = std::move(named).value();
      has_layout = has_scales = true;
    }
  }
  if (!has_layout) return wrong("no layout");
  layout.name = layout_text;
  if (layout.grouped() && (layout.bits < 2 || layout.bits > 8 || layout.group_size < 1 || !has_scales ||
                           layout.zero >= 1 << layout.bits)) {
    return wrong("a layout that cannot be");
  }
  if (problem.n < 1 || problem.k < 1 || problem.n > 1 << 24 || problem.k > 1 << 24) return wrong("no n or k");
  if (!layout.fits(problem.k)) return wrong("rows that are not whole groups");
  std::istringstream counts(line.substr(colon + 1));
  for (std::string word; counts >> word;) {
    const auto count = number_after(word, "");
    if (!count || *count < 1 || *count > 1 << 20) return wrong(fmt::format("'{}' is no row count", word));
    problem.row_counts.push_back(*count);
  }
  if (problem.row_counts.empty()) return wrong("no row counts");
  return problem;
}

// SplitMix64 (Steele, Lea, Flood 2014): fast enough for hundreds of millions of weights.
class FastRandom {
 public:
  explicit FastRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // In [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f;
  }

 private:
  std::uint64_t state_;
};

GroupedRows make_grouped(const LinearCase& problem) {
  const WeightLayout& layout = problem.layout;
  FastRandom random(1);
  GroupedRows rows;
  rows.n = problem.n;
  rows.k = problem.k;
  rows.bits = layout.bits;
  rows.group_size = layout.group_size;
  rows.constant_zero = layout.zero;
  const std::uint64_t mask = 0x0101010101010101ULL * ((1u << layout.bits) - 1);
  rows.q.resize(static_cast<std::size_t>(rows.n * rows.k));
  for (std::size_t at = 0; at < rows.q.size(); at += 8) {
    const std::uint64_t word = random.next() & mask;
    std::memcpy(rows.q.data() + at, &word, std::min<std::size_t>(8, rows.q.size() - at));
  }
  const auto num_groups = static_cast<std::size_t>(rows.n * (rows.k / rows.group_size));
  // Weights of some 0.02 in size, as models have them.
  const float unit = 0.04f / static_cast<float>(1 << layout.bits);
  if (layout.scales == Scales::kCode) {
    rows.super_size = static_cast<int>(kSuperBlock);
    const auto groups_per_super = static_cast<std::size_t>(kSuperBlock / layout.group_size);
    float super_scale = 0;
    float super_min = 0;
    for (std::size_t i = 0; i < num_groups; ++i) {
      if (i % groups_per_super == 0) {
        rows.super_scales.push_back(f32_to_f16(random.uniform(0.5f, 1.5f) * unit / 32));
        super_scale = f16_to_f32(rows.super_scales.back());
        if (layout.has_mins) {
          rows.super_mins.push_back(f32_to_f16(random.uniform(0.5f, 1.5f) * 0.02f / 32));
          super_min = f16_to_f32(rows.super_mins.back());
        }
      }
      rows.scale_codes.push_back(static_cast<std::int8_t>(1 + random.next() % 63));
      rows.scales.push_back(super_scale * static_cast<float>(rows.scale_codes.back()));
      if (!layout.has_mins) continue;
      rows.min_codes.push_back(static_cast<std::uint8_t>(random.next() % 64));
      rows.mins.push_back(super_min * static_cast<float>(rows.min_codes.back()));
    }
    return rows;
  }
  const auto stored = [&](float value) {
    return layout.scales == Scales::kF16 ? round_to(DType::kF16, value) : value;
  };
  for (std::size_t i = 0; i < num_groups; ++i) {
    rows.scales.push_back(stored(random.uniform(0.5f, 1.5f) * unit));
    if (layout.has_mins) rows.mins.push_back(stored(random.uniform(0.01f, 0.03f)));
  }
  return rows;
}

template <typename T>
void copy_row(const std::vector<T>& from, std::size_t width, std::int64_t row, std::vector<T>* to) {
  if (from.empty()) return;
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * width);
  to->insert(to->end(), begin, begin + static_cast<std::ptrdiff_t>(width));
}

}  // namespace

bool WeightLayout::fits(std::int64_t k) const {
  if (!grouped()) return true;
  if (scales == Scales::kCode && (k % kSuperBlock != 0 || kSuperBlock % group_size != 0)) return false;
  return k % group_size == 0;
}

Result<WeightLayout> layout_by_name(const std::string& name) {
  std::string names;
  for (const WeightLayout& layout : known_layouts()) {
    if (lower(layout.name) == lower(name)) return layout;
    names += (names.empty() ? "" : ", ") + layout.name;
  }
  return invalid(fmt::format("unknown layout {}; there are {}", name, names));
}

std::vector<std::string> built_in_models() {
  std::vector<std::string> out;
  for (const BuiltIn& model : kBuiltIn) out.emplace_back(model.name);
  return out;
}

Result<ModelShapes> built_in_shapes(const std::string& name) {
  for (const BuiltIn& model : kBuiltIn) {
    if (lower(name) != model.name) continue;
    const std::int64_t q_dim = model.num_heads * model.head_dim;
    const std::int64_t kv_dim = model.num_kv_heads * model.head_dim;
    ModelShapes out;
    out.heads = {model.name, model.num_heads, model.num_kv_heads, model.head_dim};
    out.layers = {{"q, o", {}, q_dim, model.hidden, {}},
                  {"k, v", {}, kv_dim, model.hidden, {}},
                  {"gate, up", {}, model.intermediate, model.hidden, {}},
                  {"down", {}, model.hidden, model.intermediate, {}},
                  {"output layer, a slice", {}, kHeadRows, model.hidden, {}}};
    return out;
  }
  return invalid(fmt::format("--shapes {}: choose of {}", name, fmt::join(built_in_models(), ", ")),
                 "shapes");
}

Result<ModelShapes> shapes_of(const Checkpoint& checkpoint) {
  QUIRE_TRY(const ModelConfig config, read_model_config(checkpoint));
  ModelShapes out;
  out.heads = {checkpoint.name, config.num_heads, config.num_kv_heads, config.head_dim};
  std::set<std::string> seen;
  for (const TensorView& tensor : checkpoint.tensors->tensors()) {
    if (tensor.shape.size() != 2) continue;
    const bool is_embedding =
        tensor.name == "token_embd.weight" || tensor.name == "model.embed_tokens.weight";
    if (is_embedding && !config.tie_word_embeddings) continue;
    auto layout = layout_by_name(std::string(tensor_type_info(tensor.type).name));
    if (!layout.ok()) {
      return make_error(ErrorCode::kUnsupported, fmt::format("{}: tensor {}: {}", checkpoint.name,
                                                             tensor.name, layout.error().message));
    }
    const bool is_head = is_embedding || tensor.name == "output.weight" || tensor.name == "lm_head.weight";
    const std::int64_t n = is_head ? std::min(tensor.shape[0], kHeadRows) : tensor.shape[0];
    if (!seen.insert(fmt::format("{} {} {}", layout->name, n, tensor.shape[1])).second) continue;
    out.layers.push_back(
        {is_head ? "output layer, a slice" : tensor.name, std::move(layout).value(), n, tensor.shape[1], {}});
  }
  if (out.layers.empty()) {
    return make_error(ErrorCode::kUnsupported, fmt::format("{} holds no matrices to time", checkpoint.name));
  }
  return out;
}

Result<std::vector<LinearCase>> parse_linear_problems(std::string_view text, const std::string& where) {
  std::vector<LinearCase> out;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    QUIRE_TRY(LinearCase problem, parse_problem(line, fmt::format("{}, line {}", where, number)));
    out.push_back(std::move(problem));
  }
  if (out.empty()) return invalid(where + ": no problems in it");
  return out;
}

BenchWeights make_bench_weights(const LinearCase& problem) {
  BenchWeights out;
  out.is_grouped = problem.layout.grouped();
  if (out.is_grouped) {
    out.grouped = make_grouped(problem);
    return out;
  }
  const DType storage = problem.layout.storage;
  const std::size_t width = dtype_bytes(storage);
  FastRandom random(1);
  out.bytes.resize(static_cast<std::size_t>(problem.n * problem.k) * width);
  for (std::size_t at = 0; at < out.bytes.size(); at += width) {
    const float value = random.uniform(-0.04f, 0.04f);
    if (storage == DType::kF32) {
      std::memcpy(out.bytes.data() + at, &value, width);
    } else {
      const std::uint16_t half = storage == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(out.bytes.data() + at, &half, width);
    }
  }
  out.floats = {problem.n, problem.k, storage, out.bytes.data()};
  return out;
}

BenchWeights BenchWeights::pick(std::span<const std::int64_t> rows) const {
  BenchWeights out;
  out.is_grouped = is_grouped;
  if (!is_grouped) {
    const std::size_t width = static_cast<std::size_t>(floats.k) * dtype_bytes(floats.storage);
    for (const std::int64_t row : rows) copy_row(bytes, width, row, &out.bytes);
    out.floats = {static_cast<std::int64_t>(rows.size()), floats.k, floats.storage, out.bytes.data()};
    return out;
  }
  GroupedRows& to = out.grouped;
  to.n = static_cast<std::int64_t>(rows.size());
  to.k = grouped.k;
  to.bits = grouped.bits;
  to.group_size = grouped.group_size;
  to.constant_zero = grouped.constant_zero;
  to.super_size = grouped.super_size;
  const auto num_groups = static_cast<std::size_t>(grouped.k / grouped.group_size);
  const std::size_t num_supers =
      grouped.super_size == 0 ? 0 : static_cast<std::size_t>(grouped.k / grouped.super_size);
  for (const std::int64_t row : rows) {
    copy_row(grouped.q, static_cast<std::size_t>(grouped.k), row, &to.q);
    copy_row(grouped.scales, num_groups, row, &to.scales);
    copy_row(grouped.mins, num_groups, row, &to.mins);
    copy_row(grouped.scale_codes, num_groups, row, &to.scale_codes);
    copy_row(grouped.min_codes, num_groups, row, &to.min_codes);
    copy_row(grouped.super_scales, num_supers, row, &to.super_scales);
    copy_row(grouped.super_mins, num_supers, row, &to.super_mins);
  }
  return out;
}

std::vector<float> bench_activations(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) {
    const std::uint32_t bits = random();
    value = static_cast<float>(static_cast<std::int32_t>(bits & 0xffff) - 0x8000) / 0x4000;
    if ((bits >> 16) % 64 == 0) value *= 30;
  }
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0;
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto w = static_cast<double>(want[i]);
    squares += w * w;
    const double difference = std::fabs(static_cast<double>(got[i]) - w);
    largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
  }
  return largest / std::sqrt(squares / static_cast<double>(want.size()));
}

}  // namespace quire
