#include "backend/backend_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/testing/linear_problem.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(MakeBackend, RefusesWhatItCannotMake) {
  const auto unknown = make_backend("tpu", {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, AllOf(HasSubstr("'tpu'"), HasSubstr("cpu, ref")));
  EXPECT_FALSE(make_backend("cpu", {ComputeMode::kF32, 0, ""}).ok());
  const auto isa = make_backend("cpu", {ComputeMode::kF32, 1, "mmx"});
  ASSERT_FALSE(isa.ok());
  EXPECT_THAT(isa.error().message, HasSubstr("generic"));
}

TEST(MakeBackend, EveryBackendSaysWhatItChose) {
  for (const BackendEntry& entry : backend_list()) {
    for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBf16, ComputeMode::kInt8}) {
      auto made = make_backend(entry.name, {mode, 2, "generic"});
      ASSERT_TRUE(made.ok()) << made.error().message;
      Backend& backend = **made;
      EXPECT_EQ(backend.name(), entry.name);
      EXPECT_EQ(backend.compute_mode(), mode);
      EXPECT_EQ(backend.pool().num_threads(), 2);
      EXPECT_THAT(backend.report(), Contains(HasSubstr(std::string(compute_mode_name(mode)))));
    }
  }
  auto generic = make_backend("cpu", {ComputeMode::kInt8, 1, "generic"});
  EXPECT_THAT((*generic)->report(), Contains(HasSubstr("avx512 refused: the tier is generic")));
  EXPECT_THAT((*generic)->report(), Contains(HasSubstr("layers with float weights use bf16")));
}

// The whole interface once, through the virtual functions: the glue calls the right things.
TEST(MakeBackend, BackendsAgreeOnALinearLayerAndAnEmbedding) {
  const auto problem = testing::parse_linear_problem("int5 g32 zero16 f16 n=40 k=64");
  const GroupedRows rows = testing::make_grouped_rows(problem, 1);
  const auto dense = testing::make_float_rows(testing::parse_linear_problem("bf16 n=40 k=64"), 2);
  const std::vector<float> x = testing::make_activations(3, 64, 3);
  std::vector<std::vector<float>> outs;
  std::vector<std::vector<float>> embeddings;
  for (const BackendEntry& entry : backend_list()) {
    auto backend = std::move(make_backend(entry.name, {ComputeMode::kInt8, 2, ""})).value();
    const auto grouped = std::move(backend->pack(rows)).value();
    const auto floats = std::move(backend->pack(dense.rows)).value();
    std::vector<float> out(2 * 3 * 40);
    const LinearTarget targets[] = {{grouped.get(), nullptr, out.data()},
                                    {floats.get(), x.data(), out.data() + 3 * 40}};
    backend->linear({x.data(), 3}, targets);
    outs.push_back(out);
    std::vector<float> embedding(2 * 64);
    const std::int32_t ids[] = {39, 0};
    backend->embed(*grouped, ids, embedding.data());
    embeddings.push_back(embedding);
  }
  EXPECT_EQ(embeddings[0], embeddings[1]);
  for (std::size_t i = 0; i < outs[0].size(); ++i) EXPECT_NEAR(outs[0][i], outs[1][i], 1e-3) << i;
}

}  // namespace
}  // namespace quire
