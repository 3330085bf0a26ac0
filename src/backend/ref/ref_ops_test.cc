// The reference operations against answers worked out by hand: everything else is tested against them.
#include "backend/ref/ref_ops.h"

#include <bit>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::ref {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

TEST(RefOps, RmsNorm) {
  const float x[] = {3, 4, 0, 0};  // two rows: mean squares 12.5 and 0
  const float weight[] = {1, -2};
  float out[4];
  rms_norm(x, weight, 0.0f, 1, 2, out);
  EXPECT_FLOAT_EQ(out[0], 3 / std::sqrt(12.5f));
  EXPECT_FLOAT_EQ(out[1], -8 / std::sqrt(12.5f));
  rms_norm(x, weight, 1.0f, 2, 2, out);
  EXPECT_FLOAT_EQ(out[0], 3 / std::sqrt(13.5f));
  EXPECT_EQ(out[2], 0.0f);
}

TEST(RefOps, AddAndSilu) {
  float x[] = {1, 2};
  const float y[] = {10, -2};
  add(x, y, 2);
  EXPECT_THAT(x, ElementsAre(11, 0));
  const float gate[] = {0, 1, -1, -1000, 1000};
  const float up[] = {5, 2, 2, 2, 2};
  float out[5];
  silu_mul(gate, up, 5, out);
  // 1 / (1 + e^-1) = 0.731058579
  EXPECT_THAT(out, ElementsAre(0, FloatNear(1.462117157f, 1e-7f), FloatNear(-0.537882843f, 1e-7f), 0, 2000));
}

TEST(RefOps, RopeTurnsPairsHalfAHeadApart) {
  // Position 1 turns pair 0 by 90 degrees and leaves pair 1; position 0 turns nothing.
  const float cos[] = {1, 1, 0, 1};
  const float sin[] = {0, 0, 1, 0};
  const std::int32_t positions[] = {1, 0};
  float x[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5};  // two rows, one head of 5, of which 4 turn
  rope(x, 2, 1, 5, 2, cos, sin, positions);
  EXPECT_THAT(x, ElementsAre(-3, 2, 1, 4, 5, 1, 2, 3, 4, 5));
}

// Two kv heads of two values, blocks of two tokens in reverse order, one query over three positions.
class RefAttention : public testing::Test {
 protected:
  void SetUp() override {
    cache_ = std::move(RefKvCache::make({1, 2, 2, 2, 2, DType::kF32}).value());
    // Keys make the scores of head 0: 0, ln 2, ln 4, and of head 1: 0, 0, 0.
    const float ln2 = std::log(2.0f);
    const float k[] = {0, 0, 0, 0, ln2, 0, 0, 0, 2 * ln2, 0, 0, 0};
    const float v[] = {7, 0, 1, 0, 0, 7, 0, 1, 14, 7, 2, 3};
    const std::int32_t slots[] = {2, 3, 0};
    store_kv(*cache_, 0, k, v, 3, slots);
  }
  std::vector<float> run(AttentionParams params, std::int64_t num_queries = 1) {
    std::vector<float> q(static_cast<std::size_t>(num_queries * 8));
    for (std::size_t i = 0; i < q.size(); i += 2) q[i] = 1;
    std::vector<float> out(q.size());
    const std::int32_t starts[] = {0, static_cast<std::int32_t>(num_queries)};
    const std::int32_t contexts[] = {3};
    const std::int32_t table[] = {1, 0};
    params.num_heads = 4;
    attention(q.data(), *cache_, 0, {1, starts, contexts, table, 2}, params, out.data());
    return out;
  }
  std::unique_ptr<RefKvCache> cache_;
};

TEST_F(RefAttention, WeighsValuesBySoftmaxAndSharesHeads) {
  // Head 0 and 1 read kv head 0 with weights 1/7, 2/7, 4/7; heads 2 and 3 read kv head 1 with thirds.
  const std::vector<float> out = run({});
  EXPECT_THAT(out, ElementsAre(FloatNear(9, 1e-5f), FloatNear(6, 1e-5f), FloatNear(9, 1e-5f),
                               FloatNear(6, 1e-5f), FloatNear(1, 1e-6f), FloatNear(4.0f / 3, 1e-6f),
                               FloatNear(1, 1e-6f), FloatNear(4.0f / 3, 1e-6f)));
}

TEST_F(RefAttention, IsCausalAndKeepsTheWindow) {
  const std::vector<float> out = run({}, 3);
  EXPECT_EQ(out[0], 7);                  // position 0 sees itself
  EXPECT_NEAR(out[8], 7.0f / 3, 1e-5f);  // position 1: weights 1/3, 2/3
  EXPECT_NEAR(out[9], 14.0f / 3, 1e-5f);
  EXPECT_NEAR(out[16], 9, 1e-5f);
  AttentionParams params;
  params.window = 2;
  const std::vector<float> windowed = run(params);
  EXPECT_NEAR(windowed[0], 14 * 2.0f / 3, 1e-5f);  // positions 1 and 2: weights 1/3, 2/3
  params.window = 1;
  EXPECT_EQ(run(params)[0], 14);
}

TEST_F(RefAttention, ScaleAndSoftcap) {
  AttentionParams params;
  params.scale = 2;  // scores 0, 2 ln 2, 4 ln 2: weights 1, 4, 16 of 21
  EXPECT_NEAR(run(params)[0], (7 + 14 * 16) / 21.0f, 1e-5f);
  params.softcap = 1;
  const double b = std::exp(std::tanh(2 * std::log(2.0)));
  const double c = std::exp(std::tanh(4 * std::log(2.0)));
  EXPECT_NEAR(run(params)[0], (7 + 14 * c) / (1 + b + c), 1e-5);
}

TEST_F(RefAttention, CopiesBlocks) {
  copy_block(*cache_, 1, 0);
  EXPECT_EQ(cache_->value(0, 0, 0)[0], 7);
  EXPECT_EQ(cache_->key(0, 1, 0)[0], std::log(2.0f));
}

TEST(RefKvCache, RoundsToTheDtypeAndRefusesImpossibleSizes) {
  EXPECT_EQ(round_to_dtype(1e6f, DType::kF16), 65504.0f);
  EXPECT_EQ(round_to_dtype(-1e6f, DType::kF16), -65504.0f);
  EXPECT_EQ(round_to_dtype(1.0f + 1.0f / 256, DType::kBf16), 1.0f);  // a tie goes to even
  EXPECT_EQ(round_to_dtype(0.1f, DType::kF32), 0.1f);
  EXPECT_TRUE(std::isnan(round_to_dtype(NAN, DType::kF16)));
  EXPECT_THAT(RefKvCache::make({1, 0, 64, 16, 4, DType::kF32}).error().message,
              HasSubstr("must be positive"));
  EXPECT_THAT(RefKvCache::make({1, 1, 64, 16, 1 << 28, DType::kF32}).error().message, HasSubstr("2^31 - 1"));
  EXPECT_EQ(RefKvCache::make({1 << 20, 1 << 10, 1 << 10, 16, 1 << 20, DType::kF32}).error().code,
            ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace quire::ref
