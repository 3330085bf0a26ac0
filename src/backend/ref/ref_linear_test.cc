// The oracle itself, against sums worked out by hand.
#include "backend/ref/ref_linear.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/dtype.h"

namespace quire::ref {
namespace {

std::vector<float> run(ComputeMode mode, const PackedWeight& weight, const std::vector<float>& x,
                       const float* bias = nullptr) {
  ThreadPool pool(1);
  const auto num_rows = static_cast<std::int64_t>(x.size()) / weight.k();
  std::vector<float> out(static_cast<std::size_t>(num_rows * weight.n()));
  const LinearTarget target{&weight, bias, out.data()};
  linear(pool, mode, {x.data(), num_rows}, {&target, 1});
  return out;
}

TEST(RefLinear, GroupsHaveScalesAndZeroPoints) {
  GroupedRows rows;
  rows.n = 2;
  rows.k = 4;
  rows.bits = 4;
  rows.group_size = 2;
  rows.constant_zero = 8;
  rows.q = {9, 8, 7, 15, 0, 8, 8, 8};  // 1, 0 | -1, 7 ; -8, 0 | 0, 0
  rows.scales = {0.5f, 2.0f, 0.25f, 1.0f};
  const auto weight = std::move(pack(rows)).value();
  const float bias[] = {100, 200};
  // 0.5 * 1 + 2 * (-3 + 7 * 4) = 50.5 ; 0.25 * -8 = -2
  EXPECT_EQ(run(ComputeMode::kF32, *weight, {1, 2, 3, 4}, bias), (std::vector<float>{150.5f, 198.0f}));
  std::vector<float> row(4);
  const std::int32_t id = 0;
  embed(*weight, {&id, 1}, row.data());
  EXPECT_EQ(row, (std::vector<float>{0.5f, 0.0f, -2.0f, 14.0f}));
}

TEST(RefLinear, GroupsHaveMinimums) {
  GroupedRows rows;
  rows.n = 1;
  rows.k = 4;
  rows.bits = 2;
  rows.group_size = 2;
  rows.q = {3, 0, 1, 2};
  rows.scales = {0.5f, 2.0f};
  rows.mins = {1.0f, 0.25f};
  const auto weight = std::move(pack(rows)).value();
  // Weights 0.5, -1, 1.75, 3.75.
  EXPECT_EQ(run(ComputeMode::kF32, *weight, {1, 1, 1, 1, 0, 2, 0, -1}), (std::vector<float>{5.0f, -5.75f}));
}

TEST(RefLinear, FloatWeightsKeepTheirPrecision) {
  const float f32[] = {1.0f + 0x1p-23f, -1.0f};
  const auto weight = std::move(pack(FloatRows{1, 2, DType::kF32, f32})).value();
  EXPECT_EQ(run(ComputeMode::kF32, *weight, {1, 1}), (std::vector<float>{0x1p-23f}));
  EXPECT_EQ(run(ComputeMode::kBf16, *weight, {1, 1}), (std::vector<float>{0x1p-23f}));
  EXPECT_EQ(run(ComputeMode::kInt8, *weight, {1, 1}), (std::vector<float>{0x1p-23f}));
  const std::uint16_t halves[] = {f32_to_f16(0.5f), f32_to_f16(-3.0f)};
  const auto half = std::move(pack(FloatRows{1, 2, DType::kF16, halves})).value();
  EXPECT_EQ(run(ComputeMode::kF32, *half, {2, 1}), (std::vector<float>{-2.0f}));
}

TEST(RefLinear, ModesRoundTheActivationsOnly) {
  const std::uint16_t ones[] = {f32_to_bf16(1.0f)};
  const auto weight = std::move(pack(FloatRows{1, 1, DType::kBf16, ones})).value();
  const float x = 1.0f + 0x1p-7f + 0x1p-10f;
  EXPECT_EQ(run(ComputeMode::kF32, *weight, {x})[0], x);
  for (const ComputeMode mode : {ComputeMode::kBf16, ComputeMode::kInt8}) {
    EXPECT_EQ(run(mode, *weight, {x})[0], 1.0f + 0x1p-7f);
  }
  // No kernel gains from rounding beside weights stored as f32, nor where finer activations are asked for.
  const float floats[] = {1.0f};
  const auto exact = std::move(pack(FloatRows{1, 1, DType::kF32, floats})).value();
  for (const ComputeMode mode : {ComputeMode::kBf16, ComputeMode::kInt8})
    EXPECT_EQ(run(mode, *exact, {x})[0], x);
  float out = 0;
  const LinearTarget finer{weight.get(), nullptr, &out, true};
  ThreadPool pool(1);
  linear(pool, ComputeMode::kBf16, {&x, 1}, {&finer, 1});
  EXPECT_EQ(out, x);
  GroupedRows rows;
  rows.n = 1;
  rows.k = 32;
  rows.bits = 8;
  rows.group_size = 32;
  rows.q.assign(32, 0);
  rows.q[1] = 1;
  rows.scales = {1.0f};
  const auto grouped = std::move(pack(rows)).value();
  std::vector<float> group(32, 0.0f);
  group[0] = 127.0f;  // so the scale is 1
  group[1] = 2.5f;    // a tie goes to even
  EXPECT_EQ(run(ComputeMode::kInt8, *grouped, group)[0], 2.0f);
  EXPECT_EQ(run(ComputeMode::kBf16, *grouped, group)[0], 2.5f);
}

TEST(RefLinear, RowsRoundToInt8ByGroups) {
  std::vector<float> x(70, 0.0f);
  x[0] = 254.0f;
  x[1] = -1.0f;
  x[2] = 3.0f;
  x[64] = -1.27f;
  x[69] = 0.01f;
  std::int16_t q[70];
  float scales[3];
  quantize_row(x.data(), 70, kInt8Limit, q, scales);
  EXPECT_EQ(scales[0], 2.0f);
  EXPECT_EQ(q[0], 127);
  EXPECT_EQ(q[1], 0);  // -0.5
  EXPECT_EQ(q[2], 2);  // 1.5
  EXPECT_EQ(scales[1], 0.0f);
  EXPECT_EQ(q[40], 0);
  EXPECT_EQ(q[64], -127);
  EXPECT_EQ(q[69], 1);

  x[33] = std::numeric_limits<float>::quiet_NaN();
  quantize_row(x.data(), 70, kInt8Limit, q, scales);
  EXPECT_EQ(scales[0], 2.0f);
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_EQ(q[64], -127);
}

}  // namespace
}  // namespace quire::ref
