#include "backend/testing/linear_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

#include "base/check.h"

namespace quire::testing {
namespace {

float to_f16_value(float value) {
  return f16_to_f32(f32_to_f16(value));
}

}  // namespace

LinearProblem parse_linear_problem(std::string_view line) {
  LinearProblem problem;
  problem.text = std::string(line);
  std::istringstream words(problem.text);
  for (std::string word; words >> word;) {
    const auto number_after = [&](std::size_t prefix) { return std::atoll(word.c_str() + prefix); };
    if (word == "f16" || word == "f32" || word == "bf16" || word == "code") {
      if (problem.grouped) {
        problem.scales = word;
      } else {
        problem.storage = word == "f16" ? DType::kF16 : word == "bf16" ? DType::kBf16 : DType::kF32;
      }
    } else if (word.starts_with("int")) {
      problem.grouped = true;
      problem.bits = static_cast<int>(number_after(3));
    } else if (word.starts_with("n=")) {
      problem.n = number_after(2);
    } else if (word.starts_with("k=")) {
      problem.k = number_after(2);
    } else if (word.starts_with("zero")) {
      problem.zero = static_cast<int>(number_after(4));
    } else if (word == "min") {
      problem.has_mins = true;
    } else if (word.starts_with("g")) {
      problem.group_size = static_cast<int>(number_after(1));
    } else {
      QUIRE_CHECK(false) << "unknown word '" << word << "' in linear problem: " << line;
    }
  }
  QUIRE_CHECK(problem.n > 0 && problem.k > 0) << line;
  QUIRE_CHECK(!problem.grouped || (problem.bits > 0 && problem.group_size > 0 && !problem.scales.empty()))
      << line;
  return problem;
}

GroupedRows make_grouped_rows(const LinearProblem& problem, std::uint32_t seed, Fill fill) {
  GroupedRows rows;
  rows.n = problem.n;
  rows.k = problem.k;
  rows.bits = problem.bits;
  rows.group_size = problem.group_size;
  rows.constant_zero = problem.zero;
  std::mt19937 random(seed);
  const std::uint32_t levels = 1u << problem.bits;
  rows.q.resize(static_cast<std::size_t>(rows.n * rows.k));
  for (std::uint8_t& q : rows.q) {
    const std::uint32_t draw = random();
    q = static_cast<std::uint8_t>(fill == Fill::kExtremeQ ? (draw & 1u) * (levels - 1) : draw % levels);
  }
  const float unit = fill == Fill::kZeros      ? 0.0f
                     : fill == Fill::kHuge     ? (problem.scales == "f32" ? 1e30f : 60000.0f)
                     : fill == Fill::kDenormal ? (problem.scales == "f32" ? 1e-41f : 3e-7f)
                                               : 0.01f;
  std::uniform_real_distribution<float> size(0.1f, 1.0f);
  const std::int64_t num_groups = rows.n * (rows.k / rows.group_size);
  if (problem.scales == "code") {
    rows.super_size = 256;
    QUIRE_CHECK_EQ(rows.k % rows.super_size, 0);
    const std::int64_t groups_per_super = rows.super_size / rows.group_size;
    for (std::int64_t i = 0; i < num_groups / groups_per_super; ++i) {
      const float sign = random() % 8 == 0 ? -1.0f : 1.0f;
      rows.super_scales.push_back(f32_to_f16(sign * size(random) * unit / 16));
      if (problem.has_mins) rows.super_mins.push_back(f32_to_f16(size(random) * unit));
    }
    for (std::int64_t i = 0; i < num_groups; ++i) {
      const auto super = static_cast<std::size_t>(i / groups_per_super);
      rows.scale_codes.push_back(static_cast<std::int8_t>(random() % 256));
      rows.scales.push_back(f16_to_f32(rows.super_scales[super]) *
                            static_cast<float>(rows.scale_codes.back()));
      if (!problem.has_mins) continue;
      rows.min_codes.push_back(static_cast<std::uint8_t>(random() % 256));
      rows.mins.push_back(f16_to_f32(rows.super_mins[super]) * static_cast<float>(rows.min_codes.back()));
    }
    return rows;
  }
  const bool halves = problem.scales == "f16";
  for (std::int64_t i = 0; i < num_groups; ++i) {
    const float sign = random() % 8 == 0 ? -1.0f : 1.0f;
    const float scale = sign * size(random) * unit;
    rows.scales.push_back(halves ? to_f16_value(scale) : scale);
    if (!problem.has_mins) continue;
    const float min = scale * size(random) * static_cast<float>(levels) / 2;
    rows.mins.push_back(halves ? to_f16_value(std::clamp(min, -65504.0f, 65504.0f)) : min);
  }
  return rows;
}

FloatMatrix make_float_rows(const LinearProblem& problem, std::uint32_t seed, Fill fill) {
  FloatMatrix matrix;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const float unit = fill == Fill::kZeros      ? 0.0f
                     : fill == Fill::kHuge     ? (problem.storage == DType::kF16 ? 10000.0f : 1e30f)
                     : fill == Fill::kDenormal ? (problem.storage == DType::kF16 ? 1e-6f : 1e-40f)
                                               : 0.05f;
  const std::size_t width = dtype_bytes(problem.storage);
  matrix.bytes.resize(static_cast<std::size_t>(problem.n * problem.k) * width);
  for (std::size_t at = 0; at < matrix.bytes.size(); at += width) {
    const float value = unit * std::clamp(normal(random), -6.0f, 6.0f);
    const std::uint16_t half = problem.storage == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (problem.storage == DType::kF32) {
      std::memcpy(matrix.bytes.data() + at, &value, width);
    } else {
      std::memcpy(matrix.bytes.data() + at, &half, width);
    }
  }
  matrix.rows = {problem.n, problem.k, problem.storage, matrix.bytes.data()};
  return matrix;
}

std::vector<float> make_activations(std::int64_t num_rows, std::int64_t k, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(num_rows * k));
  // Some features are much larger than the rest, as in real models.
  for (float& value : x) value = normal(random) * (random() % 64 == 0 ? 30.0f : 1.0f);
  return x;
}

}  // namespace quire::testing
