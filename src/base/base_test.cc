#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/metadata.h"
#include "base/result.h"
#include "base/string_list.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

TEST(CpuBudget, NeverExceedsTheAffinityMask) {
  const CpuBudget budget = detect_cpu_budget();
  EXPECT_GE(budget.num_usable, 1);
  EXPECT_LE(budget.num_usable, budget.num_affinity);
  EXPECT_FALSE(budget.reason.empty());
}

TEST(DType, EveryF16ValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), half) << bits;
    }
  }
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 1.0f / 2048), 0x3c00);  // a tie goes to even
  EXPECT_EQ(f32_to_f16(1.0f + 3.0f / 2048), 0x3c02);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);  // infinity
  EXPECT_EQ(f32_to_f16(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(f32_to_f16(std::ldexp(1.5f, -25)), 0x0001);
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(1.0f + 1.0f / 256), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3.0f / 256), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Buffer, IsAlignedAndZeroed) {
  Buffer buffer(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kBufferAlignment, 0u);
  for (std::size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
}

TEST(Metadata, GivesNumbersOfAnyWidth) {
  Metadata metadata;
  metadata.set("u", std::uint64_t{7});
  metadata.set("i", std::int64_t{-7});
  metadata.set("big", std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(metadata.get_int("u"), 7);
  EXPECT_EQ(metadata.get_int("i"), -7);
  EXPECT_EQ(metadata.get_float("u"), 7.0);
  EXPECT_FALSE(metadata.get_int("big").has_value());
  EXPECT_FALSE(metadata.get_int("absent").has_value());
  EXPECT_EQ(metadata.get_string("u"), nullptr);
}

Result<int> half_of(int value) {
  if (value % 2 != 0) return invalid("odd", "value");
  return value / 2;
}
Result<int> quarter_of(int value) {
  QUIRE_TRY(const int half, half_of(value));
  return half_of(half);
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().message, "odd");
  EXPECT_EQ(quarter_of(6).error().param, "value");
}

TEST(StringList, GivesBackWhatItTook) {
  const std::vector<std::string> strings = {
      "", "a", std::string("\0b", 2), "", "a longer string of some bytes", ""};
  const StringList list(strings);
  ASSERT_EQ(list.size(), strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) EXPECT_EQ(list[i], strings[i]);
  EXPECT_EQ(std::vector<std::string>(list.begin(), list.end()), strings);
  EXPECT_EQ(list.back(), "");
  EXPECT_TRUE(StringList().empty());
  StringList taken = list;
  const StringList moved = std::move(taken);
  EXPECT_EQ(moved[4], strings[4]);
}

TEST(CheckDeathTest, SaysBothValues) {
  const int a = 1;
  EXPECT_DEATH(QUIRE_CHECK_EQ(a, 2) << "note", "a.*==.*2.*1 vs 2.*note");
}

}  // namespace
}  // namespace quire
