// Linear layers of the cpu backend on every tier this machine runs: against the float64 reference, and bit
// for bit against themselves under other numbers of rows and threads. The problems are data (kProblems).
#include "backend/cpu/gemm/linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/elementwise/elementwise.h"
#include "backend/cpu/gemm/packed_weight.h"
#include "backend/cpu/test_tiers.h"
#include "backend/ref/ref_linear.h"
#include "backend/testing/linear_problem.h"

namespace quire::cpu::gemm {
namespace {

using quire::testing::Fill;
using quire::testing::LinearProblem;
using quire::testing::make_activations;
using quire::testing::make_float_rows;
using quire::testing::make_grouped_rows;
using quire::testing::parse_linear_problem;

constexpr const char* kProblems[] = {
    // The GGUF types: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
    "int4 g32 zero8 f16 n=50 k=96",
    "int4 g32 min f16 n=17 k=160",
    "int5 g32 zero16 f16 n=33 k=96",
    "int5 g32 min f16 n=16 k=64",
    "int8 g32 zero128 f16 n=31 k=288",
    "int2 g16 min code n=20 k=256",
    "int3 g16 zero4 code n=18 k=512",
    "int4 g32 min code n=49 k=1280",
    "int5 g32 min code n=15 k=256",
    "int6 g16 zero32 code n=35 k=1536",
    // Integer checkpoints: groups of 64 and 128, whole rows, asymmetric 8 bits, zero points that need
    // minimums.
    "int4 g128 zero8 f16 n=48 k=1152",
    "int4 g64 min f16 n=7 k=192",
    "int4 g64 zero0 f32 n=1 k=64",
    "int3 g128 min f32 n=19 k=128",
    "int8 g128 zero128 f32 n=24 k=384",
    "int8 g64 min f16 n=40 k=320",
    "int8 g256 min f32 n=3 k=256",
    "int8 g32 zero0 f16 n=21 k=96",
    "int8 g32 zero255 f32 n=21 k=96",
    "int7 g32 zero64 f16 n=22 k=64",
    "int6 g32 min f32 n=5 k=32",
    "int5 g160 zero16 f32 n=6 k=160",
    // Groups of 16 whose row is not a whole number of blocks, and of 48.
    "int4 g16 zero8 f16 n=16 k=48",
    "int6 g16 min f16 n=29 k=80",
    "int5 g16 zero7 f32 n=2 k=16",
    "int8 g16 zero128 f16 n=12 k=112",
    "int8 g16 min f32 n=12 k=176",
    "int4 g48 min f16 n=30 k=144",
    "int4 g48 zero8 f16 n=16 k=48",
    // No integer kernel: becomes float32.
    "int4 g100 zero8 f16 n=9 k=300",
    "int8 g20 min f32 n=9 k=60",
    // Float weights.
    "f32 n=50 k=300",
    "f32 n=1 k=1",
    "f32 n=16 k=33",
    "f16 n=37 k=70",
    "f16 n=16 k=256",
    "bf16 n=18 k=95",
    "bf16 n=32 k=512",
    "bf16 n=3 k=2",
};

constexpr ComputeMode kModes[] = {ComputeMode::kF32, ComputeMode::kBf16, ComputeMode::kInt8};

std::unique_ptr<PackedWeight> take(Result<std::unique_ptr<PackedWeight>> result) {
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}

// One problem, packed for both backends, with what a tolerance needs.
struct Layer {
  LinearProblem problem;
  std::unique_ptr<PackedWeight> own;
  std::unique_ptr<PackedWeight> oracle;
  std::vector<float> magnitudes;  // [n, k]: the largest intermediate a weight may contribute per unit of x
};

Layer make_layer(const char* text, Fill fill, ThreadPool& pool) {
  Layer layer;
  layer.problem = parse_linear_problem(text);
  const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(layer.problem.text));
  if (layer.problem.grouped) {
    const GroupedRows rows = make_grouped_rows(layer.problem, seed, fill);
    layer.own = take(pack(rows, pool));
    layer.oracle = take(ref::pack(rows));
    for (std::int64_t i = 0; i < rows.n * rows.k; ++i) {
      const auto group = static_cast<std::size_t>(i / rows.group_size);
      // 128: the bf16 kernels work on 128 + q, the float kernels of 8-bit minimums on q - 128.
      const int q = rows.q[static_cast<std::size_t>(i)] + rows.constant_zero + 128;
      layer.magnitudes.push_back(std::fabs(rows.scales[group]) * static_cast<float>(q) +
                                 (rows.mins.empty() ? 0.0f : std::fabs(rows.mins[group])));
    }
  } else {
    const auto matrix = make_float_rows(layer.problem, seed, fill);
    layer.own = take(pack(matrix.rows, pool));
    layer.oracle = take(ref::pack(matrix.rows));
    std::vector<float> row(static_cast<std::size_t>(layer.problem.k));
    for (std::int64_t j = 0; j < layer.problem.n; ++j) {
      const auto id = static_cast<std::int32_t>(j);
      ref::embed(*layer.oracle, {&id, 1}, row.data());
      for (const float value : row) layer.magnitudes.push_back(std::fabs(value));
    }
  }
  return layer;
}

std::vector<float> run_own(Linear& linear, const Layer& layer, const float* bias, const float* x,
                           std::int64_t num_rows) {
  std::vector<float> out(static_cast<std::size_t>(num_rows * layer.problem.n), -1234.5f);
  const LinearTarget target{layer.own.get(), bias, out.data()};
  linear.run({x, num_rows}, {&target, 1});
  return out;
}

// What the reference must be asked for: the rounding that this tier does in fact.
ComputeMode oracle_mode(const Linear& linear, const Layer& layer, bool finer = false) {
  return linear.mode_of({layer.own.get(), nullptr, nullptr, finer});
}

class LinearTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { QUIRE_SKIP_UNLESS_TIER_RUNS(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Tiers, LinearTest, ::testing::ValuesIn(kAllTiers), tier_test_name);

// Tolerance: 1e-6 of the sum of |x| * magnitude (some ten roundings of float32 at the largest intermediate),
// plus what flushing a denormal product to zero may lose (vdpbf16ps does).
void expect_close(const Layer& layer, ComputeMode mode, const std::vector<float>& x, std::int64_t num_rows,
                  const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  const std::int64_t n = layer.problem.n;
  const std::int64_t k = layer.problem.k;
  for (std::int64_t t = 0; t < num_rows; ++t) {
    for (std::int64_t j = 0; j < n; ++j) {
      double size = 0;
      double weight_size = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        const double weight = layer.magnitudes[static_cast<std::size_t>(j * k + c)];
        size += std::fabs(static_cast<double>(x[static_cast<std::size_t>(t * k + c)])) * weight;
        weight_size += weight;
      }
      const auto at = static_cast<std::size_t>(t * n + j);
      const double tolerance = 1e-6 * size + 1.2e-38 * (weight_size + static_cast<double>(k)) + 1e-7;
      ASSERT_NEAR(got[at], want[at], tolerance)
          << what << ": " << layer.problem.text << " " << compute_mode_name(mode) << " row " << t << " of "
          << num_rows << ", column " << j;
    }
  }
}

TEST_P(LinearTest, MatchesTheReference) {
  ThreadPool pool(2);
  for (const ComputeMode mode : kModes) {
    Linear linear(GetParam(), mode, {}, pool);
    for (const char* text : kProblems) {
      const Layer layer = make_layer(text, Fill::kNormal, pool);
      const std::vector<float> bias = make_activations(1, layer.problem.n, 5);
      for (const std::int64_t num_rows : {1, 2, 3, 8, 17}) {
        const std::vector<float> x = make_activations(num_rows, layer.problem.k, 7);
        std::vector<float> want(static_cast<std::size_t>(num_rows * layer.problem.n));
        const LinearTarget target{layer.oracle.get(), bias.data(), want.data()};
        const ComputeMode rounding = oracle_mode(linear, layer);
        ref::linear(pool, rounding, {x.data(), num_rows}, {&target, 1});
        const std::vector<float> got = run_own(linear, layer, bias.data(), x.data(), num_rows);
        expect_close(layer, rounding, x, num_rows, got, want, "normal");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LinearTest, MatchesTheReferenceOnExtremeWeights) {
  const std::pair<Fill, const char*> fills[] = {{Fill::kZeros, "zeros"},
                                                {Fill::kHuge, "huge"},
                                                {Fill::kDenormal, "denormal"},
                                                {Fill::kExtremeQ, "extreme q"}};
  ThreadPool pool(2);
  for (const ComputeMode mode : kModes) {
    Linear linear(GetParam(), mode, {}, pool);
    for (const auto& [fill, name] : fills) {
      for (const char* text : kProblems) {
        const Layer layer = make_layer(text, fill, pool);
        // The largest integers too: x at plus and minus its scale.
        std::vector<float> x = make_activations(3, layer.problem.k, 11);
        for (std::int64_t c = 0; c < layer.problem.k; ++c)
          x[static_cast<std::size_t>(c)] = c % 3 == 0 ? 2.5f : -2.5f;
        std::vector<float> want(static_cast<std::size_t>(3 * layer.problem.n));
        const LinearTarget target{layer.oracle.get(), nullptr, want.data()};
        const ComputeMode rounding = oracle_mode(linear, layer);
        ref::linear(pool, rounding, {x.data(), 3}, {&target, 1});
        const std::vector<float> got = run_own(linear, layer, nullptr, x.data(), 3);
        expect_close(layer, rounding, x, 3, got, want, name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LinearTest, ARowIsTheSameBitsInAnyCallOnAnyNumberOfThreads) {
  ThreadPool one(1);
  for (const ComputeMode mode : kModes) {
    Linear alone(GetParam(), mode, {}, one);
    for (const char* text : kProblems) {
      const Layer layer = make_layer(text, Fill::kNormal, one);
      const std::int64_t n = layer.problem.n;
      const std::int64_t k = layer.problem.k;
      const std::int64_t most = 70;  // more than a panel
      const std::vector<float> x = make_activations(most, k, 3);
      std::vector<float> want;
      for (std::int64_t t = 0; t < most; ++t) {
        const std::vector<float> row = run_own(alone, layer, nullptr, x.data() + t * k, 1);
        want.insert(want.end(), row.begin(), row.end());
      }
      for (int threads = 1; threads <= 3; ++threads) {
        ThreadPool pool(threads);
        Linear linear(GetParam(), mode, {}, pool);
        // Every split into register blocks, then whole panels and a rest.
        const std::vector<std::int64_t> counts =
            threads == 1 ? std::vector<std::int64_t>{2, 3, 5, 7, 15, 70} : std::vector<std::int64_t>{6, 65};
        for (const std::int64_t num_rows : counts) {
          const std::int64_t first = most - num_rows;
          const std::vector<float> got = run_own(linear, layer, nullptr, x.data() + first * k, num_rows);
          ASSERT_EQ(0, std::memcmp(got.data(), want.data() + first * n, got.size() * sizeof(float)))
              << text << " " << compute_mode_name(mode) << ", rows " << first << " + " << num_rows << ", "
              << threads << " threads";
        }
      }
    }
  }
}

// The output layer in bf16 mode: the bits of f32 mode, beside a target that is rounded; other modes do not
// change.
TEST_P(LinearTest, FinerActivationsAreThoseOfTheNextMode) {
  ThreadPool pool(2);
  for (const ComputeMode mode : kModes) {
    Linear linear(GetParam(), mode, {}, pool);
    Linear sixteen(GetParam(), ComputeMode::kBf16, {}, pool);
    Linear floats(GetParam(), ComputeMode::kF32, {}, pool);
    for (const char* text : kProblems) {
      const Layer layer = make_layer(text, Fill::kNormal, pool);
      const std::int64_t num_rows = 3;
      const auto size = static_cast<std::size_t>(num_rows * layer.problem.n);
      const std::vector<float> x = make_activations(num_rows, layer.problem.k, 9);
      std::vector<float> full(size);
      std::vector<float> rounded(size);
      const LinearTarget targets[] = {{layer.own.get(), nullptr, full.data(), true},
                                      {layer.own.get(), nullptr, rounded.data(), false}};
      linear.run({x.data(), num_rows}, targets);
      // Quantized weights never take more than 16 bits but in f32 mode.
      const bool keeps =
          mode == ComputeMode::kF32 || (mode == ComputeMode::kBf16 && !layer.own->is_quantized());
      ASSERT_EQ(full, run_own(keeps ? floats : sixteen, layer, nullptr, x.data(), num_rows))
          << text << " " << compute_mode_name(mode);
      ASSERT_EQ(rounded, run_own(linear, layer, nullptr, x.data(), num_rows)) << text;
      std::vector<float> want(size);
      const LinearTarget oracle{layer.oracle.get(), nullptr, want.data()};
      const ComputeMode rounding = oracle_mode(linear, layer, true);
      ref::linear(pool, rounding, {x.data(), num_rows}, {&oracle, 1});
      expect_close(layer, rounding, x, num_rows, full, want, "finer activations");
      if (HasFatalFailure()) return;
    }
  }
}

// Large enough for many parts, several stretches of blocks and threads at work; several targets at once.
TEST_P(LinearTest, TargetsTogetherAreTheTargetsAlone) {
  const char* texts[] = {"int4 g32 zero8 f16 n=300 k=2304", "int6 g16 zero32 code n=70 k=2304",
                         "bf16 n=130 k=2304", "int8 g32 min f16 n=16 k=2304", "f32 n=33 k=2304"};
  ThreadPool one(1);
  ThreadPool three(3);
  for (const ComputeMode mode : kModes) {
    Linear alone(GetParam(), mode, {}, one);
    Linear together(GetParam(), mode, {}, three);
    const std::int64_t num_rows = 9;
    const std::vector<float> x = make_activations(num_rows, 2304, 4);
    std::vector<Layer> layers;
    std::vector<std::vector<float>> outs;
    for (const char* text : texts) {
      layers.push_back(make_layer(text, Fill::kNormal, three));
      outs.emplace_back(static_cast<std::size_t>(num_rows * layers.back().problem.n), -5.0f);
    }
    std::vector<LinearTarget> targets;
    for (std::size_t i = 0; i < layers.size(); ++i)
      targets.push_back({layers[i].own.get(), nullptr, outs[i].data()});
    for (int round = 0; round < 3; ++round) {
      together.run({x.data(), num_rows}, targets);
      for (std::size_t i = 0; i < layers.size(); ++i)
        ASSERT_EQ(outs[i], run_own(alone, layers[i], nullptr, x.data(), num_rows)) << texts[i];
    }
    std::vector<float> want(outs[0].size());
    const LinearTarget target{layers[0].oracle.get(), nullptr, want.data()};
    const ComputeMode rounding = oracle_mode(together, layers[0]);
    ref::linear(three, rounding, {x.data(), num_rows}, {&target, 1});
    expect_close(layers[0], rounding, x, num_rows, outs[0], want, "several stretches");
  }
}

// The norm before, the gate and the residual after, bit for bit as single operations.
TEST_P(LinearTest, FusedStepsAreTheStepsAlone) {
  ThreadPool pool(2);
  const struct {
    const char* up;
    const char* gate;
  } pairs[] = {{"int4 g32 min f16 n=70 k=512", "int6 g16 zero32 code n=70 k=512"},
               {"bf16 n=33 k=512", "int8 g32 zero128 f16 n=33 k=512"}};
  const std::int64_t k = 512;
  const std::vector<float> norm = make_activations(1, k, 31);
  for (const ComputeMode mode : kModes) {
    Linear linear(GetParam(), mode, {}, pool);
    for (const auto& pair : pairs) {
      const Layer up = make_layer(pair.up, Fill::kNormal, pool);
      const Layer gate = make_layer(pair.gate, Fill::kNormal, pool);
      const std::int64_t n = up.problem.n;
      const std::vector<float> bias = make_activations(1, n, 32);
      const std::vector<float> gate_bias = make_activations(1, n, 33);
      for (const std::int64_t num_rows : {1, 3, 14, 70}) {
        const std::vector<float> x = make_activations(num_rows, k, 34);
        std::vector<float> normed(x.size());
        rms_norm(GetParam(), pool, x.data(), norm.data(), 1e-6f, num_rows, k, normed.data());
        std::vector<float> want = run_own(linear, up, bias.data(), normed.data(), num_rows);
        const std::vector<float> gates = run_own(linear, gate, gate_bias.data(), normed.data(), num_rows);
        silu_mul(GetParam(), pool, gates.data(), want.data(), num_rows * n, want.data());
        const std::vector<float> residual = make_activations(num_rows, n, 35);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
        std::vector<float> got = residual;
        LinearTarget target{up.own.get(), bias.data(), got.data()};
        target.gate = gate.own.get();
        target.gate_bias = gate_bias.data();
        target.accumulate = true;
        linear.run({x.data(), num_rows, norm.data(), 1e-6f}, {&target, 1});
        ASSERT_EQ(got, want) << pair.up << " " << compute_mode_name(mode) << " rows " << num_rows;
      }
    }
  }
}

// A NaN or an infinity makes its own row NaN (or infinite), never a plausible number, and no other row.
TEST_P(LinearTest, NonFiniteActivationsStayInTheirRow) {
  ThreadPool pool(1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ComputeMode mode : kModes) {
    Linear linear(GetParam(), mode, {}, pool);
    for (const char* text : {"int4 g32 zero8 f16 n=16 k=96", "int8 g32 min f16 n=16 k=96", "f32 n=16 k=96",
                             "bf16 n=16 k=96", "int5 g16 zero16 f16 n=16 k=96"}) {
      const Layer layer = make_layer(text, Fill::kNormal, pool);
      for (const float bad : {std::nanf(""), infinity, -infinity}) {
        std::vector<float> x = make_activations(3, 96, 9);
        const std::vector<float> good = run_own(linear, layer, nullptr, x.data(), 3);
        x[96 + 40] = bad;
        const std::vector<float> got = run_own(linear, layer, nullptr, x.data(), 3);
        for (std::size_t j = 0; j < 16; ++j) {
          EXPECT_EQ(got[j], good[j]) << text;
          EXPECT_FALSE(std::isfinite(got[16 + j])) << text << " " << compute_mode_name(mode);
          EXPECT_EQ(got[32 + j], good[32 + j]) << text;
        }
      }
    }
  }
}

TEST_P(LinearTest, ActivationsRoundAsTheReferenceDoes) {
  ThreadPool pool(1);
  const ActivationTable& table = *select_kernels(GetParam()).activations;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> inputs = {
      std::vector<float>(64, 0.0f),
      std::vector<float>(64, 1e-45f),
      {1e-44f, -1e-44f, 3e-43f, 1.7e-43f, 2e-43f},
      {1.0f, 0.5f / 127, 1.5f / 127, 2.5f / 127, -0.5f / 127, -1.5f / 127, 126.5f / 127},
      {3.4e38f, -3.4e38f, 1.0f},
      {1.0f, infinity, -2.0f},
      {std::nanf(""), 3.0f},
      {-std::nanf("7"), -infinity},
  };
  for (const std::int64_t k : {1, 7, 8, 9, 31, 32, 33, 63, 70, 300})
    inputs.push_back(make_activations(1, k, 21));
  for (const std::vector<float>& x : inputs) {
    const auto k = static_cast<std::int64_t>(x.size());
    const std::int64_t num_blocks = (k + 31) / 32;
    std::vector<std::int16_t> want(static_cast<std::size_t>(num_blocks * 32), 0);
    std::vector<float> scales(static_cast<std::size_t>(num_blocks));
    ref::quantize_row(x.data(), k, ref::kInt8Limit, want.data(), scales.data());
    std::vector<std::int16_t> want16(want.size(), 0);
    std::vector<float> scales16(scales.size());
    ref::quantize_row(x.data(), k, ref::kInt16Limit, want16.data(), scales16.data());
    std::vector<Int8Block> ints(static_cast<std::size_t>(num_blocks));
    std::vector<Int16Block> wide(ints.size());
    std::vector<Bf16Block> halves(ints.size());
    table.to_int8(x.data(), k, num_blocks, ints.data());
    table.to_int16(x.data(), k, num_blocks, wide.data());
    table.to_bf16(x.data(), k, num_blocks, halves.data());
    for (std::size_t b = 0; b < ints.size(); ++b) {
      if (std::isnan(scales[b])) {
        EXPECT_TRUE(std::isnan(ints[b].scale));
      } else {
        EXPECT_EQ(ints[b].scale, scales[b]);
      }
      if (!std::isnan(scales16[b])) {
        EXPECT_EQ(wide[b].scale, scales16[b]);
      }
      int sum = 0;
      int wide_sum = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(ints[b].q[i], want[b * 32 + i]) << "k " << k << " at " << b * 32 + i;
        sum += ints[b].q[i];
        const int value16 = 256 * wide[b].high[i] + wide[b].low[i];
        EXPECT_EQ(value16, want16[b * 32 + i]) << "k " << k << " at " << b * 32 + i;
        wide_sum += value16;
        const float value = b * 32 + i < x.size() ? x[b * 32 + i] : 0.0f;
        EXPECT_EQ(halves[b].x[i], f32_to_bf16(value));
      }
      EXPECT_EQ(ints[b].neg_q_sum[2], -sum);
      EXPECT_EQ(ints[b].neg_q_sum[0] + ints[b].neg_q_sum[1], -sum);
      EXPECT_EQ(wide[b].neg_q_sum[2], -wide_sum);
      EXPECT_EQ(wide[b].neg_q_sum[0] + wide[b].neg_q_sum[1], -wide_sum);
    }
  }
}

TEST(PackedWeight, EmbedGivesTheRowsTheFormatDefines) {
  ThreadPool pool(2);
  Linear linear(Isa::kGeneric, ComputeMode::kInt8, {}, pool);
  for (const char* text : kProblems) {
    const Layer layer = make_layer(text, Fill::kNormal, pool);
    const std::int64_t k = layer.problem.k;
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; id < layer.problem.n; ++id) ids.push_back(id);
    ids.push_back(0);
    std::vector<float> got(ids.size() * static_cast<std::size_t>(k));
    std::vector<float> want(got.size());
    linear.embed(*layer.own, ids, got.data());
    ref::embed(*layer.oracle, ids, want.data());
    // A zero point that became a minimum is subtracted after rounding the product, as packed_weight.h's
    // canonical form says; the oracle subtracts before.
    const bool by_minimum = layer.problem.bits == 8 && layer.problem.zero != 0 && layer.problem.zero != 128;
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], by_minimum ? 1e-6f : 0.0f) << text << " at " << i;
  }
}

TEST(PackedWeight, KeepsTheCheckpointsSize) {
  ThreadPool pool(1);
  const std::pair<const char*, const char*> cases[] = {
      {"int4 g32 zero8 f16 n=32 k=256", "int4 g32 f16-scale"},
      {"int4 g32 min f16 n=32 k=256", "int4 g32 f16-scale+min"},
      {"int5 g32 zero16 f16 n=32 k=256", "int5 g32 f16-scale"},
      {"int8 g32 zero128 f16 n=32 k=256", "int8 g32 f16-scale"},
      {"int4 g32 min code n=32 k=256", "int4 g32 code-scale+min"},
      {"int6 g16 zero32 code n=32 k=256", "int6 g16 code-scale"},
      {"int3 g128 zero4 f32 n=32 k=256", "int4 g128 f32-scale"},
      {"bf16 n=32 k=256", "bf16"},
      {"f16 n=32 k=256", "f16"},
      {"f32 n=32 k=256", "f32"},
  };
  // Bits per weight: q, and the scales (and minimums) of its group; Q4_K is 4.5 in the file: 6-bit codes
  // there.
  const double bits[] = {4.5, 5, 5.5, 8.5, 4 + 0.5 + 0.125, 6 + 0.5 + 0.0625, 4.25, 16, 16, 32};
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const Layer layer = make_layer(cases[i].first, Fill::kNormal, pool);
    EXPECT_EQ(layer.own->layout_name(), cases[i].second);
    EXPECT_EQ(static_cast<double>(layer.own->num_bytes()) * 8, bits[i] * 32 * 256) << cases[i].first;
    EXPECT_EQ(layer.own->is_quantized(), layer.problem.grouped);
  }
  EXPECT_EQ(make_layer("int4 g100 zero8 f16 n=9 k=300", Fill::kNormal, pool).own->layout_name(),
            "f32 (from int4, whose group size 100 is not a multiple of 16)");
}

TEST(PackedWeight, RefusesRowsThatDoNotHangTogether) {
  ThreadPool pool(1);
  const LinearProblem problem = parse_linear_problem("int4 g32 min f16 n=16 k=64");
  const auto refusal = [&](auto damage) {
    GroupedRows rows = make_grouped_rows(problem, 1);
    damage(rows);
    auto own = pack(rows, pool);
    auto oracle = ref::pack(rows);
    EXPECT_FALSE(own.ok());
    EXPECT_FALSE(oracle.ok());
    return own.ok() || oracle.ok() ? std::string() : own.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.q[77] = 16; }), HasSubstr("does not fit in 4 bits"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.q.pop_back(); }), HasSubstr("1023 values, expected 1024"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.scales.push_back(1); }), HasSubstr("33 scales"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.mins.pop_back(); }), HasSubstr("minimums"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.constant_zero = 8; }), HasSubstr("both"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.group_size = 48; }), HasSubstr("does not divide"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.bits = 9; }), HasSubstr("9 bits"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.n = 0; }), HasSubstr("empty"));
  EXPECT_THAT(refusal([](GroupedRows& rows) { rows.super_size = 48; }), HasSubstr("super-block"));
  EXPECT_FALSE(pack(FloatRows{4, 4, DType::kF32, nullptr}, pool).ok());
}

// Codes that do not reproduce the scales are not trusted: the scales are.
TEST(PackedWeight, CodesThatContradictTheScalesAreNotUsed) {
  ThreadPool pool(1);
  GroupedRows rows = make_grouped_rows(parse_linear_problem("int4 g32 min code n=16 k=256"), 1);
  rows.scales[5] *= 1.25f;
  const auto weight = take(pack(rows, pool));
  EXPECT_EQ(weight->layout_name(), "int4 g32 f32-scale+min");
}

}  // namespace
}  // namespace quire::cpu::gemm
