#include "quant/ggml_format.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "quant/float_format.h"

namespace quire {
namespace {

TensorType type_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(TensorType::kQ6_K); ++i) {
    const auto type = static_cast<TensorType>(i);
    if (tensor_type_info(type).name == name) return type;
  }
  ADD_FAILURE() << name;
  return TensorType::kF32;
}

struct Case {
  std::string bytes;
  TensorView tensor;
  std::vector<float> values;
};

// Written by tools/make_ggml_cases.py from the Python package gguf.
std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/data/ggml_blocks.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    Case next;
    const std::string hex = row["bytes"];
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      next.bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    next.tensor.name = row["type"];
    next.tensor.type = type_named(row["type"]);
    next.tensor.shape = row["shape"].get<std::vector<std::int64_t>>();
    next.values = row["values"].get<std::vector<float>>();
    cases.push_back(std::move(next));
  }
  for (Case& each : cases) each.tensor.data = std::as_bytes(std::span(each.bytes.data(), each.bytes.size()));
  return cases;
}

TEST(GgmlFormat, EveryTypeUnpacksToTheReferenceValues) {
  const auto cases = read_cases();
  ASSERT_EQ(cases.size(), 10u);
  for (const Case& each : cases) {
    SCOPED_TRACE(each.tensor.name);
    const auto values = read_as_f32(each.tensor);
    ASSERT_TRUE(values.ok());
    ASSERT_EQ(values->size(), each.values.size());
    for (std::size_t i = 0; i < values->size(); ++i) ASSERT_EQ((*values)[i], each.values[i]) << i;
  }
}

// A backend may keep the codes instead of the products: they must say the same.
TEST(GgmlFormat, CodesTimesSuperScalesAreTheScales) {
  for (const Case& each : read_cases()) {
    SCOPED_TRACE(each.tensor.name);
    const auto k = each.tensor.shape[1];
    const GroupedRows rows = unpack_ggml_rows(each.tensor, each.tensor.shape[0], k, {}, nullptr);
    EXPECT_EQ(rows.mins.empty(), rows.constant_zero != 0);
    for (std::uint8_t q : rows.q) ASSERT_LT(q, 1 << rows.bits);
    if (rows.super_size == 0) continue;
    const int groups_per_super = rows.super_size / rows.group_size;
    for (std::size_t g = 0; g < rows.scales.size(); ++g) {
      const std::size_t super = g / static_cast<std::size_t>(groups_per_super);
      ASSERT_EQ(rows.scales[g],
                f16_to_f32(rows.super_scales[super]) * static_cast<float>(rows.scale_codes[g]));
      if (!rows.mins.empty()) {
        ASSERT_EQ(rows.mins[g], f16_to_f32(rows.super_mins[super]) * static_cast<float>(rows.min_codes[g]));
      }
    }
  }
}

TEST(GgmlFormat, PermutationPicksRows) {
  ThreadPool pool(2);
  for (const Case& each : read_cases()) {
    SCOPED_TRACE(each.tensor.name);
    const auto k = each.tensor.shape[1];
    const std::int32_t swap[] = {1, 0};
    const GroupedRows plain = unpack_ggml_rows(each.tensor, 2, k, {}, nullptr);
    const GroupedRows swapped = unpack_ggml_rows(each.tensor, 2, k, swap, &pool);
    for (std::int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(plain.q[static_cast<std::size_t>(i)], swapped.q[static_cast<std::size_t>(k + i)]);
      ASSERT_EQ(plain.q[static_cast<std::size_t>(k + i)], swapped.q[static_cast<std::size_t>(i)]);
    }
  }
}

class OneTensor final : public TensorSource {
 public:
  explicit OneTensor(TensorView tensor) : tensors_{std::move(tensor)} {}
  const TensorView* find(std::string_view name) const override {
    return tensors_[0].name == name ? tensors_.data() : nullptr;
  }
  const std::vector<TensorView>& tensors() const override { return tensors_; }

 private:
  std::vector<TensorView> tensors_;
};

LayerRequest layer(std::string name, std::int64_t n, std::int64_t k) {
  LayerRequest request;
  request.name = std::move(name);
  request.n = n;
  request.k = k;
  return request;
}

// hold_as = bf16 must give each dequantized value rounded to nearest even, for blocks and for floats.
TEST(Formats, HoldAsRoundsEveryValue) {
  auto backend = make_backend("ref", {});
  ASSERT_TRUE(backend.ok());
  auto cases = read_cases();
  Case floats;
  floats.values = {1.00390625f, -3.14159265f, 1e-20f, 65504.0f};
  floats.tensor.name = "F32";
  floats.tensor.shape = {2, 2};
  floats.tensor.data = std::as_bytes(std::span(floats.values));
  cases.push_back(floats);
  for (Case& each : cases) {
    SCOPED_TRACE(each.tensor.name);
    each.tensor.name = "layer.weight";
    if (each.bytes.empty()) each.tensor.data = std::as_bytes(std::span(each.values));
    auto request = layer("layer", each.tensor.shape[0], each.tensor.shape[1]);
    request.hold_as = DType::kBf16;
    const std::int32_t swap[] = {1, 0};
    request.permutation = swap;
    const auto weight = load_layer(OneTensor(each.tensor), request, **backend);
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    std::vector<float> rows(each.values.size());
    (*backend)->embed(**weight, swap, rows.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i], bf16_to_f32(f32_to_bf16(each.values[i]))) << i;
    }
  }
}

TEST(Formats, SayWhichTensorIsMissingOrWrong) {
  auto backend = make_backend("ref", {});
  ASSERT_TRUE(backend.ok());
  std::vector<float> data(6);
  TensorView tensor;
  tensor.name = "blk.0.attn_q.weight";
  tensor.shape = {2, 3};
  tensor.data = std::as_bytes(std::span(data));
  const OneTensor source(tensor);
  const auto missing = load_layer(source, layer("blk.1.attn_q", 2, 3), **backend);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("blk.1.attn_q.weight"), std::string::npos);
  const auto wrong = load_layer(source, layer("blk.0.attn_q", 3, 2), **backend);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("[2, 3]"), std::string::npos);
  EXPECT_TRUE(load_layer(source, layer("blk.0.attn_q", 2, 3), **backend).ok());
  tensor.type = TensorType::kI32;
  const auto integers = load_layer(OneTensor(tensor), layer("blk.0.attn_q", 2, 3), **backend);
  ASSERT_FALSE(integers.ok());
  EXPECT_NE(integers.error().message.find("I32"), std::string::npos);
}

}  // namespace
}  // namespace quire
