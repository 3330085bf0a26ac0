// Elementwise kernels of every tier this machine runs, against float64 computed here, with the tolerances
// that elementwise.h states.
#include "backend/cpu/elementwise/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/test_tiers.h"
#include "base/dtype.h"

namespace quire::cpu {
namespace {

class ElementwiseTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { QUIRE_SKIP_UNLESS_TIER_RUNS(GetParam()); }
  ThreadPool pool_{2};
};
INSTANTIATE_TEST_SUITE_P(Tiers, ElementwiseTest, testing::ValuesIn(kAllTiers), tier_test_name);

std::vector<float> normal(std::size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

// The distance from one float to the next at |x|; that of the smallest normal number below it.
double ulp(double x) {
  const float magnitude = std::max(static_cast<float>(std::abs(x)), std::numeric_limits<float>::min());
  return static_cast<double>(std::nextafter(magnitude, INFINITY)) - magnitude;
}

constexpr float kGuard = 12345.0f;  // stands after each output and must stay

TEST_P(ElementwiseTest, RmsNorm) {
  for (const std::int64_t dim : {1, 2, 7, 8, 15, 16, 17, 31, 64, 576, 896, 1536, 2047}) {
    for (const float scale : {1.0f, 1e-20f, 1e-3f, 1e4f, 1e30f}) {
      const std::int64_t num_rows = 3;
      // One float of offset: no kernel may count on alignment.
      std::vector<float> x = normal(static_cast<std::size_t>(num_rows * dim + 1), scale, 1);
      const std::vector<float> weight = normal(static_cast<std::size_t>(dim + 1), 1.0f, 2);
      std::vector<float> out(static_cast<std::size_t>(num_rows * dim + 2), kGuard);
      const float eps = 1e-6f;
      rms_norm(GetParam(), pool_, x.data() + 1, weight.data() + 1, eps, num_rows, dim, out.data() + 1);
      for (std::int64_t t = 0; t < num_rows; ++t) {
        double sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) {
          const double value = x[static_cast<std::size_t>(1 + t * dim + i)];
          sum += value * value;
        }
        const double factor = 1.0 / std::sqrt(sum / static_cast<double>(dim) + static_cast<double>(eps));
        for (std::int64_t i = 0; i < dim; ++i) {
          const auto place = static_cast<std::size_t>(1 + t * dim + i);
          const double want = x[place] * factor * weight[static_cast<std::size_t>(1 + i)];
          ASSERT_NEAR(out[place], want, 3 * ulp(want)) << "dim " << dim << " scale " << scale;
        }
      }
      EXPECT_EQ(out.front(), kGuard);
      EXPECT_EQ(out.back(), kGuard);
      const std::vector<float> apart = out;
      rms_norm(GetParam(), pool_, x.data() + 1, weight.data() + 1, eps, num_rows, dim, x.data() + 1);
      EXPECT_EQ(std::memcmp(x.data() + 1, apart.data() + 1, static_cast<std::size_t>(num_rows * dim) * 4), 0)
          << "in place, dim " << dim;
    }
  }
  // All zero: eps keeps it finite.
  std::vector<float> zeros(20);
  const std::vector<float> ones(20, 1.0f);
  rms_norm(GetParam(), pool_, zeros.data(), ones.data(), 1e-6f, 1, 20, zeros.data());
  for (const float value : zeros) EXPECT_EQ(value, 0.0f);
}

TEST_P(ElementwiseTest, Add) {
  for (std::int64_t count = 1; count < 70; ++count) {
    std::vector<float> x = normal(static_cast<std::size_t>(count + 2), 1.0f, 3);
    const std::vector<float> y = normal(static_cast<std::size_t>(count + 1), 1.0f, 4);
    std::vector<float> want = x;
    for (std::int64_t i = 0; i < count; ++i) {
      want[static_cast<std::size_t>(1 + i)] += y[static_cast<std::size_t>(1 + i)];
    }
    add(GetParam(), pool_, x.data() + 1, y.data() + 1, count);
    EXPECT_EQ(x, want) << count;
  }
}

TEST_P(ElementwiseTest, SiluMul) {
  std::vector<float> gate;
  for (float g = -120.0f; g < 120.0f; g += 0.0137f) gate.push_back(g);
  for (const float g : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-6f, -1e-6f, 86.9f, -86.9f, 1e4f, -1e4f, 1e30f,
                        -1e30f, std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::denorm_min()}) {
    gate.push_back(g);
  }
  const std::vector<float> up = normal(gate.size(), 1.0f, 5);
  std::vector<float> out(gate.size() + 1, kGuard);
  silu_mul(GetParam(), pool_, gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), out.data());
  EXPECT_EQ(out.back(), kGuard);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double want = g / (1.0 + std::exp(-g)) * up[i];
    ASSERT_TRUE(std::isfinite(out[i]) || std::abs(want) > std::numeric_limits<float>::max()) << g;
    if (g > -87) {
      // Underflow of the product is rounded, not lost: half the smallest number besides the ulps.
      ASSERT_NEAR(out[i], want, 5 * ulp(want)) << g << " * " << up[i];
    } else {
      ASSERT_LE(std::abs(out[i]), 1e-34f) << g << " * " << up[i];
    }
  }
  // Any count, any start, in place, and the same bits wherever the value stands.
  for (std::int64_t count = 1; count < 70; ++count) {
    std::vector<float> some(gate.begin() + 8000, gate.begin() + 8000 + count + 1);
    const float after = some.back();
    silu_mul(GetParam(), pool_, some.data(), up.data() + 8000, count, some.data());
    EXPECT_EQ(std::memcmp(some.data(), out.data() + 8000, static_cast<std::size_t>(count) * 4), 0) << count;
    EXPECT_EQ(some.back(), after);
  }
}

TEST_P(ElementwiseTest, SiluMulIsTheSameOnEveryThread) {
  const std::vector<float> gate = normal(100003, 3.0f, 6);
  const std::vector<float> up = normal(gate.size(), 1.0f, 7);
  std::vector<float> want(gate.size());
  ThreadPool one(1);
  silu_mul(GetParam(), one, gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), want.data());
  for (const int num_threads : {2, 3}) {
    ThreadPool pool(num_threads);
    std::vector<float> got(gate.size());
    silu_mul(GetParam(), pool, gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), got.data());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0);
  }
}

TEST_P(ElementwiseTest, Rope) {
  constexpr std::int64_t kPositions = 50;
  for (const std::int64_t head_dim : {2, 8, 64, 80, 96, 128, 256, 33}) {
    for (const std::int64_t half_dim : {head_dim / 2, head_dim / 4, (head_dim / 2 + 1) / 2}) {
      const std::int64_t num_heads = 3;
      const std::vector<std::int32_t> positions = {7, 0, 49, 7, 12};
      std::vector<float> cos;
      std::vector<float> sin;
      for (std::int64_t p = 0; p < kPositions; ++p) {
        for (std::int64_t i = 0; i < half_dim; ++i) {
          const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / 32);
          cos.push_back(static_cast<float>(std::cos(angle)));
          sin.push_back(static_cast<float>(std::sin(angle)));
        }
      }
      const std::size_t count = positions.size() * static_cast<std::size_t>(num_heads * head_dim);
      for (const float scale : {1.0f, 1e-30f, 1e30f}) {
        const std::vector<float> before = normal(count, scale, 8);
        std::vector<float> x = before;
        rope(GetParam(), pool_, x.data(), static_cast<std::int64_t>(positions.size()), num_heads, head_dim,
             half_dim, cos.data(), sin.data(), positions.data());
        for (std::size_t i = 0; i < count; ++i) {
          const auto d = static_cast<std::int64_t>(i) % head_dim;
          const auto row = static_cast<std::int64_t>(i) / (num_heads * head_dim);
          if (d >= 2 * half_dim) {
            ASSERT_EQ(x[i], before[i]) << "beyond the rotated part";
            continue;
          }
          const auto pair = static_cast<std::size_t>(d % half_dim);
          const std::size_t angle =
              static_cast<std::size_t>(positions[static_cast<std::size_t>(row)] * half_dim) + pair;
          const double c = cos[angle];
          const double s = sin[angle];
          const bool first = d < half_dim;
          const double own = before[i];
          const double other =
              before[first ? i + static_cast<std::size_t>(half_dim) : i - static_cast<std::size_t>(half_dim)];
          const double want = own * c + (first ? -other : other) * s;
          const double larger = std::max(std::abs(own * c), std::abs(other * s));
          ASSERT_NEAR(x[i], want, 2 * ulp(larger)) << "head_dim " << head_dim << " half " << half_dim;
        }
      }
    }
  }
}

// Against the conversions of single values in base/dtype.h, bit for bit.
TEST_P(ElementwiseTest, Narrow) {
  const ElementwiseKernel& kernel = elementwise_kernel(GetParam());
  std::vector<float> x;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  x.push_back(1.5f);  // an odd count
  std::vector<std::uint16_t> half(x.size());
  kernel.to_f16(x.data(), static_cast<std::int64_t>(x.size()), half.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(f16_to_f32(half[i])));
    } else {
      ASSERT_EQ(half[i], f32_to_f16(std::clamp(x[i], -65504.0f, 65504.0f))) << x[i];
    }
  }
  kernel.to_bf16(x.data(), static_cast<std::int64_t>(x.size()), half.data());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(half[i], f32_to_bf16(x[i])) << x[i];
  for (std::int64_t count = 0; count < 40; ++count) {
    std::vector<std::uint16_t> some(static_cast<std::size_t>(count + 1), 0xabcd);
    kernel.to_bf16(x.data() + 100000, count, some.data());
    EXPECT_EQ(std::memcmp(some.data(), half.data() + 100000, static_cast<std::size_t>(count) * 2), 0);
    EXPECT_EQ(some.back(), 0xabcd);
  }
}

}  // namespace
}  // namespace quire::cpu
