// Linear layers on AMX: the kernel body on emulated tiles on any machine, and on the processor's own where it
// has them. Against float64 sums of rounded weights and activations, and bit for bit against itself.
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/elementwise/elementwise.h"
#include "backend/cpu/gemm/amx_linear.h"
#include "backend/cpu/gemm/amx_tiles_emulated.h"
#include "backend/cpu/isa.h"
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
    "int4 g32 min code n=65 k=512",
    "int5 g32 min code n=15 k=256",
    "int6 g16 zero32 code n=35 k=512",
    // Integer checkpoints.
    "int4 g128 zero8 f16 n=48 k=384",
    "int4 g64 min f16 n=7 k=192",
    "int4 g64 zero0 f32 n=1 k=64",
    "int3 g128 min f32 n=19 k=128",
    "int8 g128 zero128 f32 n=24 k=384",
    "int8 g64 min f16 n=40 k=320",
    "int7 g32 zero64 f16 n=22 k=64",
    "int6 g32 min f32 n=5 k=32",
    "int5 g160 zero16 f32 n=6 k=160",
    // Groups of 16 and 48 whose row is not a whole number of blocks.
    "int4 g16 zero8 f16 n=16 k=48",
    "int6 g16 min f16 n=29 k=80",
    "int5 g16 zero7 f32 n=2 k=16",
    "int8 g16 zero128 f16 n=12 k=112",
    "int8 g16 min f32 n=12 k=176",
    "int4 g48 min f16 n=30 k=144",
    "int4 g48 zero8 f16 n=33 k=48",
    // Float weights.
    "bf16 n=18 k=95",
    "bf16 n=33 k=352",
    "bf16 n=3 k=2",
};

constexpr float kSmallestNormal = 1.17549435e-38f;

float round_to_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(std::fabs(value) < kSmallestNormal ? 0.0f * value : value));
}

// A problem, packed, and its weights as rounded.
struct Layer {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string text;
  std::unique_ptr<PackedWeight> packed;
  std::vector<float> exact;    // [n, k], as the format defines: the product and the difference rounded
  std::vector<float> rounded;  // [n, k], bf16

  const AmxWeight& weight() const { return dynamic_cast<const AmxWeight&>(*packed); }
};

Layer make_layer(const char* text, ThreadPool& pool, Fill fill = Fill::kNormal) {
  const LinearProblem problem = parse_linear_problem(text);
  Layer layer;
  layer.n = problem.n;
  layer.k = problem.k;
  layer.text = text;
  const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(layer.text));
  if (problem.grouped) {
    const GroupedRows rows = make_grouped_rows(problem, seed, fill);
    auto packed = AmxWeight::pack(rows, pool);
    EXPECT_TRUE(packed.ok()) << packed.error().message;
    layer.packed = std::move(packed).value();
    for (std::int64_t i = 0; i < rows.n * rows.k; ++i) {
      const auto group = static_cast<std::size_t>(i / rows.group_size);
      const auto q = static_cast<float>(rows.q[static_cast<std::size_t>(i)] - rows.constant_zero);
      const float product = rows.scales[group] * q;
      layer.exact.push_back(rows.mins.empty() ? product : product - rows.mins[group]);
      // The kernels round once before they round to bf16.
      layer.rounded.push_back(
          round_to_bf16(rows.mins.empty() ? product : std::fma(rows.scales[group], q, -rows.mins[group])));
    }
  } else {
    const auto matrix = make_float_rows(problem, seed, fill);
    layer.packed = AmxWeight::pack(matrix.rows, pool);
    for (std::int64_t i = 0; i < layer.n * layer.k; ++i) {
      std::uint16_t half;
      std::memcpy(&half, matrix.bytes.data() + 2 * i, sizeof(half));
      layer.exact.push_back(bf16_to_f32(half));
      layer.rounded.push_back(round_to_bf16(layer.exact.back()));
    }
  }
  return layer;
}

struct Variant {
  const char* name;
  const AmxTable* table;
  Isa needs;
};
const Variant kVariants[] = {
    {"EmulatedGeneric", &kAmxEmulatedGeneric, Isa::kGeneric},
    {"EmulatedAvx512Bf16", &kAmxEmulatedAvx512Bf16, Isa::kAvx512Bf16},
    {"Amx", &kAmxLinear, Isa::kAmx},
};

std::string variant_name(const ::testing::TestParamInfo<Variant>& info) {
  return info.param.name;
}

class AmxTest : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const std::string refusal = isa_refusal(GetParam().needs, detect_cpu_features());
    if (!refusal.empty()) GTEST_SKIP() << GetParam().name << " cannot run here: " << refusal;
  }
  bool is_generic() const { return GetParam().table == &kAmxEmulatedGeneric; }
  // All columns and rows at once. x: [num_rows, k], misaligned by one float.
  std::vector<float> run(const Layer& layer, const float* x, std::int64_t num_rows) const {
    const AmxTable& table = *GetParam().table;
    const AmxWeight& weight = layer.weight();
    const std::int64_t num_blocks = weight.num_blocks();
    const int width = amx_panel_width(num_rows);
    const std::int64_t panel_bytes = amx_panel_bytes(width, num_blocks);
    Buffer panels(static_cast<std::size_t>(amx_num_panels(num_rows) * panel_bytes));
    std::vector<float> shifted(static_cast<std::size_t>(num_rows * layer.k + 1));
    std::copy_n(x, num_rows * layer.k, shifted.begin() + 1);
    for (std::int64_t panel = 0; panel < amx_num_panels(num_rows); ++panel) {
      const auto rows = static_cast<int>(std::min<std::int64_t>(16, num_rows - panel * 16));
      table.pack_panel(shifted.data() + 1 + panel * 16 * layer.k, layer.k, rows, width, layer.k, num_blocks,
                       panels.as<std::uint16_t>() + panel * panel_bytes / 2);
    }
    const std::int64_t pairs = weight.num_pairs();
    const std::int64_t stride = pairs * kAmxPairCols + 3;
    Buffer scratch(static_cast<std::size_t>(amx_scratch_floats(pairs, num_rows, num_blocks)) * sizeof(float));
    std::vector<float> out(static_cast<std::size_t>(num_rows * stride + 1), -1234.5f);
    table.run(weight.view(), 0, pairs, panels.as<std::uint16_t>(), width, static_cast<int>(num_rows),
              scratch.as<float>(), out.data() + 1, stride);
    std::vector<float> result;
    for (std::int64_t t = 0; t < num_rows; ++t) {
      const auto row = out.begin() + 1 + t * stride;
      result.insert(result.end(), row, row + layer.n);
      // Columns beyond n are zero times the row; what follows them is not written.
      const bool finite =
          std::all_of(x + t * layer.k, x + (t + 1) * layer.k, [](float v) { return std::isfinite(v); });
      for (std::int64_t j = layer.n; finite && j < pairs * kAmxPairCols; ++j)
        EXPECT_EQ(row[j], 0.0f) << "padding column " << j;
      if (t + 1 < num_rows) {
        for (std::int64_t j = pairs * kAmxPairCols; j < stride; ++j) EXPECT_EQ(row[j], -1234.5f);
      }
    }
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Variants, AmxTest, ::testing::ValuesIn(kVariants), variant_name);

// Rows that are each one feature give the weights themselves, as bf16: every layout, scale and place.
TEST_P(AmxTest, UnpackedWeightsAreTheFormatsRoundedOnce) {
  ThreadPool pool(2);
  for (const char* text : kProblems) {
    for (const Fill fill : {Fill::kNormal, Fill::kExtremeQ, Fill::kDenormal}) {
      const Layer layer = make_layer(text, pool, fill);
      const std::int64_t k = layer.k;
      if (k > 200 && (fill != Fill::kNormal || is_generic())) continue;  // time
      std::vector<float> x(static_cast<std::size_t>(k * k));
      for (std::int64_t c = 0; c < k; ++c) x[static_cast<std::size_t>(c * k + c)] = 1.0f;
      const std::vector<float> got = run(layer, x.data(), k);
      for (std::int64_t c = 0; c < k; ++c)
        for (std::int64_t j = 0; j < layer.n; ++j)
          ASSERT_EQ(got[static_cast<std::size_t>(c * layer.n + j)],
                    layer.rounded[static_cast<std::size_t>(j * k + c)])
              << text << " column " << j << ", feature " << c;
    }
  }
}

// Tolerance: 1e-6 of the sum of |x w|, some ten roundings of float32 at the largest sum.
TEST_P(AmxTest, MatchesSumsInFloat64) {
  ThreadPool pool(2);
  for (const char* text : kProblems) {
    const Layer layer = make_layer(text, pool);
    const std::int64_t num_rows = 19;
    const std::vector<float> x = make_activations(num_rows, layer.k, 7);
    const std::vector<float> got = run(layer, x.data(), num_rows);
    for (std::int64_t t = 0; t < num_rows; ++t) {
      for (std::int64_t j = 0; j < layer.n; ++j) {
        double sum = 0;
        double size = 0;
        for (std::int64_t c = 0; c < layer.k; ++c) {
          const double product =
              static_cast<double>(layer.rounded[static_cast<std::size_t>(j * layer.k + c)]) *
              static_cast<double>(round_to_bf16(x[static_cast<std::size_t>(t * layer.k + c)]));
          sum += product;
          size += std::fabs(product);
        }
        ASSERT_NEAR(got[static_cast<std::size_t>(t * layer.n + j)], sum, 1e-6 * size + 1e-37)
            << text << " row " << t << ", column " << j;
      }
    }
  }
}

TEST_P(AmxTest, ARowIsTheSameBitsAmongAnyNumberOfRows) {
  ThreadPool pool(2);
  std::vector<std::pair<const char*, std::vector<std::int64_t>>> cases;
  for (const char* text : kProblems) cases.push_back({text, {2, 17, 33}});
  // Every width of a panel, one panel and two, pairs of panels and a rest; a stretch and a bit more.
  cases.push_back({"int4 g32 min f16 n=33 k=352",
                   {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 47, 48, 49, 64, 65, 70}});
  cases.push_back({"bf16 n=34 k=321", {1, 3, 16, 33, 48, 65}});
  for (auto& [text, counts] : cases) {
    if (is_generic() && counts.size() > 3) counts = {3, 16, 33, 49};  // time
    const Layer layer = make_layer(text, pool);
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    const std::vector<float> x = make_activations(most, layer.k, 3);
    std::vector<float> want;
    for (std::int64_t t = 0; t < most; ++t) {
      const std::vector<float> row = run(layer, x.data() + t * layer.k, 1);
      want.insert(want.end(), row.begin(), row.end());
    }
    for (const std::int64_t num_rows : counts) {
      const std::int64_t first = most - num_rows;
      const std::vector<float> got = run(layer, x.data() + first * layer.k, num_rows);
      ASSERT_EQ(0, std::memcmp(got.data(), want.data() + first * layer.n, got.size() * sizeof(float)))
          << text << ", " << num_rows << " rows";
    }
  }
}

// More activations than are walked at once: sums of all columns are kept in between.
TEST_P(AmxTest, ARowIsTheSameBitsWhenItsFeaturesAreWalkedInTwoParts) {
  ThreadPool pool(2);
  const Layer layer = make_layer("int4 g64 zero8 f16 n=65 k=6592", pool);
  ASSERT_LT(amx_walk_blocks(70, layer.weight().num_blocks()), layer.weight().num_blocks());
  const std::vector<float> x = make_activations(70, layer.k, 3);
  const std::vector<float> got = run(layer, x.data(), 70);
  for (const std::int64_t t : {0, 37, 69}) {
    const std::vector<float> want = run(layer, x.data() + t * layer.k, 1);
    EXPECT_EQ(0, std::memcmp(got.data() + t * layer.n, want.data(), want.size() * sizeof(float)))
        << "row " << t;
  }
}

TEST_P(AmxTest, NotANumberStaysInItsRow) {
  ThreadPool pool(1);
  for (const char* text : {"int4 g32 zero8 f16 n=33 k=96", "int6 g16 min f16 n=29 k=80", "bf16 n=18 k=95"}) {
    const Layer layer = make_layer(text, pool);
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x = make_activations(3, layer.k, 9);
      const std::vector<float> good = run(layer, x.data(), 3);
      x[static_cast<std::size_t>(layer.k + 40)] = bad;
      const std::vector<float> got = run(layer, x.data(), 3);
      for (std::size_t j = 0; j < static_cast<std::size_t>(layer.n); ++j) {
        const auto n = static_cast<std::size_t>(layer.n);
        EXPECT_EQ(got[j], good[j]) << text;
        EXPECT_FALSE(std::isfinite(got[n + j])) << text;
        EXPECT_EQ(got[2 * n + j], good[2 * n + j]) << text;
      }
    }
  }
}

// The whole layer: what is fused is bit for bit what separate steps give, on any number of threads.
TEST_P(AmxTest, NormGateBiasAndResidualAreThoseOfSeparateSteps) {
  ThreadPool one(1);
  const ElementwiseKernel& elementwise = elementwise_kernel(Isa::kGeneric);
  CpuTuning tuning;
  tuning.min_part_bytes = 1;  // several parts
  const std::int64_t k = 96;
  const Layer up = make_layer("int4 g32 zero8 f16 n=150 k=96", one);
  const Layer gate = make_layer("int6 g16 min f16 n=150 k=96", one);
  const Layer other = make_layer("bf16 n=33 k=96", one);
  const std::vector<float> norm = make_activations(1, k, 1);
  const std::vector<float> bias = make_activations(1, 150, 2);
  const std::vector<float> gate_bias = make_activations(1, 150, 4);
  for (const std::int64_t num_rows : {1, 7, 40, 530}) {
    if (num_rows > 512 && GetParam().table == &kAmxEmulatedGeneric) continue;  // a second
    const std::vector<float> x = make_activations(num_rows, k, 3);
    std::vector<float> normed(x.size());
    for (std::int64_t t = 0; t < num_rows; ++t)
      elementwise.rms_norm(x.data() + t * k, norm.data(), 1e-5f, k, normed.data() + t * k);
    std::vector<float> ups, gates, others;
    for (std::int64_t t = 0; t < num_rows; t += 512) {
      const std::int64_t rows = std::min<std::int64_t>(512, num_rows - t);
      for (const auto& [layer, to] : {std::pair{&up, &ups}, {&gate, &gates}, {&other, &others}}) {
        const std::vector<float> sums = run(*layer, normed.data() + t * k, rows);
        to->insert(to->end(), sums.begin(), sums.end());
      }
    }
    const std::vector<float> before = make_activations(num_rows, 150, 5);
    std::vector<float> want(before.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ups[i] += bias[i % 150];
      gates[i] += gate_bias[i % 150];
    }
    // In the pieces of whole vectors that the layer itself uses.
    gates.resize((gates.size() + 15) / 16 * 16);
    ups.resize(gates.size());
    std::vector<float> products(gates.size());
    elementwise.silu_mul(gates.data(), ups.data(), static_cast<std::int64_t>(gates.size()), products.data());
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[i] + products[i];

    for (int threads = 1; threads <= 3; ++threads) {
      ThreadPool pool(threads);
      AmxLinear linear(*GetParam().table, elementwise, tuning, pool);
      std::vector<float> got = before;
      std::vector<float> got_other(others.size(), -1.0f);
      LinearTarget target;
      target.weight = up.packed.get();
      target.bias = bias.data();
      target.gate = gate.packed.get();
      target.gate_bias = gate_bias.data();
      target.accumulate = true;
      target.out = got.data();
      LinearTarget plain;
      plain.weight = other.packed.get();
      plain.out = got_other.data();
      const LinearTarget targets[] = {target, plain};
      linear.run({x.data(), num_rows, norm.data(), 1e-5f}, targets);
      EXPECT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float)))
          << num_rows << " rows, " << threads << " threads";
      EXPECT_EQ(0, std::memcmp(got_other.data(), others.data(), others.size() * sizeof(float)))
          << num_rows << " rows, " << threads << " threads";
    }
  }
}

// A model may hold some weights that AMX cannot read, even a gate of one kind and its other half of another.
TEST_P(AmxTest, OtherWeightsAreRunOtherwise) {
  ThreadPool pool(2);
  const ElementwiseKernel& elementwise = elementwise_kernel(Isa::kGeneric);
  AmxLinear linear(*GetParam().table, elementwise, CpuTuning(), pool);
  const std::int64_t n = 40, k = 64, num_rows = 3;
  const Layer own = make_layer("int4 g32 zero8 f16 n=40 k=64", pool);
  const auto matrix = make_float_rows(parse_linear_problem("f32 n=40 k=64"), 5);
  const auto foreign = std::move(pack(matrix.rows, pool)).value();
  ASSERT_FALSE(AmxLinear::is_packed_for_amx(*foreign));
  const std::vector<float> x = make_activations(num_rows, k, 3);
  const std::vector<float> bias = make_activations(1, n, 2);
  const LinearInput input{x.data(), num_rows};

  int num_otherwise = 0;
  const auto otherwise = [&](std::span<const LinearTarget> targets) {
    for (const LinearTarget& target : targets) {
      ++num_otherwise;
      ASSERT_EQ(target.weight, foreign.get());
      ASSERT_EQ(target.gate, nullptr);
      for (std::int64_t i = 0; i < num_rows * n; ++i)
        target.out[i] = static_cast<float>(i % 7) - 3 + (target.bias == nullptr ? 0 : target.bias[i % n]);
    }
  };
  const auto plain = [&](const PackedWeight* weight, const float* with_bias) {
    std::vector<float> out(static_cast<std::size_t>(num_rows * n));
    LinearTarget target;
    target.weight = weight;
    target.bias = with_bias;
    target.out = out.data();
    linear.run_mixed(input, {&target, 1}, otherwise);
    return out;
  };
  const std::vector<float> before = make_activations(num_rows, n, 8);
  for (const bool weight_is_own : {true, false}) {
    LinearTarget target;
    target.weight = weight_is_own ? own.packed.get() : foreign.get();
    target.gate = weight_is_own ? foreign.get() : own.packed.get();
    target.bias = bias.data();
    const std::vector<float> ups = plain(target.weight, bias.data());
    const std::vector<float> gates = plain(target.gate, nullptr);
    std::vector<float> want(ups.size());
    elementwise.silu_mul(gates.data(), ups.data(), num_rows * n, want.data());
    for (const bool accumulate : {false, true}) {
      target.accumulate = accumulate;
      std::vector<float> got = before;
      target.out = got.data();
      num_otherwise = 0;
      linear.run_mixed(input, {&target, 1}, otherwise);
      EXPECT_EQ(num_otherwise, 1);
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(got[i], accumulate ? before[i] + want[i] : want[i]) << i;
    }
  }
}

TEST(AmxWeight, KeepsTheFormatsValues) {
  ThreadPool pool(2);
  for (const char* text : kProblems) {
    const Layer layer = make_layer(text, pool);
    std::vector<float> row(static_cast<std::size_t>(layer.k));
    for (std::int64_t j = 0; j < layer.n; ++j) {
      layer.weight().dequantize_row(j, row.data());
      for (std::int64_t c = 0; c < layer.k; ++c)
        ASSERT_EQ(row[static_cast<std::size_t>(c)], layer.exact[static_cast<std::size_t>(j * layer.k + c)])
            << text << " row " << j << ", feature " << c;
    }
  }
}

TEST(AmxWeight, KeepsTheCheckpointsSize) {
  ThreadPool pool(1);
  const std::tuple<const char*, const char*, double> cases[] = {
      {"int4 g32 zero8 f16 n=32 k=256", "int4 g32 f16-scale (amx)", 4.5},
      {"int4 g32 min code n=32 k=256", "int4 g32 code-scale+min (amx)", 4 + 0.5 + 0.125},
      {"int5 g32 min f16 n=32 k=256", "int5 g32 f16-scale+min (amx)", 6},
      {"int6 g16 zero32 code n=32 k=256", "int6 g16 code-scale (amx)", 6 + 0.5 + 0.0625},
      {"int8 g32 zero128 f16 n=32 k=256", "int8 g32 f16-scale (amx)", 8.5},
      {"bf16 n=32 k=256", "bf16 (amx)", 16},
  };
  for (const auto& [text, name, bits] : cases) {
    const Layer layer = make_layer(text, pool);
    EXPECT_EQ(layer.packed->layout_name(), name);
    EXPECT_EQ(static_cast<double>(layer.packed->num_bytes()) * 8, bits * 32 * 256) << text;
  }
}

TEST(AmxWeight, RestoredFromItsImageItIsTheSame) {
  ThreadPool pool(1);
  const std::shared_ptr<const void> owner = std::make_shared<int>();
  for (const char* text : kProblems) {
    const Layer layer = make_layer(text, pool);
    const PackedImage image = layer.weight().image();
    const auto restored = AmxWeight::restore(image, owner);
    ASSERT_TRUE(restored.ok()) << text << ": " << restored.error().message;
    EXPECT_EQ((*restored)->layout_name(), layer.packed->layout_name());
    EXPECT_EQ((*restored)->num_bytes(), layer.packed->num_bytes());
    std::vector<float> row(static_cast<std::size_t>(layer.k));
    std::vector<float> again(row.size());
    for (std::int64_t j = 0; j < layer.n; ++j) {
      layer.weight().dequantize_row(j, row.data());
      dynamic_cast<const AmxWeight&>(**restored).dequantize_row(j, again.data());
      ASSERT_EQ(0, std::memcmp(row.data(), again.data(), row.size() * sizeof(float))) << text;
    }
    // One number off, or one array short: refused, not read.
    for (const char* name : {"n", "k", "layout", "group_size"}) {
      PackedImage damaged = image;
      for (auto& [key, value] : damaged.numbers)
        if (key == name) value = value * 3 + 40;
      EXPECT_FALSE(AmxWeight::restore(damaged, owner).ok()) << text << " " << name;
    }
    for (std::size_t i = 0; i < image.arrays.size(); ++i) {
      PackedImage damaged = image;
      damaged.arrays[i].bytes = damaged.arrays[i].bytes.first(damaged.arrays[i].bytes.size() - 1);
      EXPECT_FALSE(AmxWeight::restore(damaged, owner).ok()) << text << " " << image.arrays[i].name;
    }
  }
}

TEST(AmxWeight, RefusesValuesBeyondTheirBits) {
  ThreadPool pool(1);
  GroupedRows rows = make_grouped_rows(parse_linear_problem("int4 g32 min f16 n=16 k=64"), 1);
  rows.q[77] = 16;
  const auto packed = AmxWeight::pack(rows, pool);
  ASSERT_FALSE(packed.ok());
  EXPECT_THAT(packed.error().message, ::testing::HasSubstr("does not fit in 4 bits"));
}

TEST(AmxTiles, TheEmulationFaultsWhereTheProcessorDoes) {
  const auto make = [](auto damage) {
    TileConfig config = tile_config(16);
    damage(config);
    return config;
  };
  const TileConfig bad[] = {
      make([](TileConfig& c) { c.palette = 0; }),      make([](TileConfig& c) { c.reserved[3] = 1; }),
      make([](TileConfig& c) { c.num_rows[2] = 17; }), make([](TileConfig& c) { c.row_bytes[2] = 68; }),
      make([](TileConfig& c) { c.num_rows[5] = 0; }),  make([](TileConfig& c) { c.row_bytes[9] = 4; }),
      make([](TileConfig& c) { c.start_row = 1; }),
  };
  for (const TileConfig& config : bad) EXPECT_DEATH(Tiles tiles(config), "LDTILECFG");

  const TileConfig without_6 = make([](TileConfig& c) { c.num_rows[6] = 0, c.row_bytes[6] = 0; });
  alignas(64) char memory[1024] = {};
  EXPECT_DEATH(Tiles(without_6).load<6>(memory, 64), "TILELOADD: the tile is not configured");
  EXPECT_DEATH(Tiles(without_6).zero<6>(), "TILEZERO");
  EXPECT_DEATH(Tiles(without_6).store<6>(memory, 64), "TILESTORED");
  EXPECT_DEATH((Tiles(without_6).dot<4, 6>()), "TDPBF16PS: the tile is not configured");
  EXPECT_DEATH((Tiles(make([](TileConfig& c) { c.num_rows[0] = 8; })).dot<4, 6>()), "differ in rows");
  EXPECT_DEATH((Tiles(make([](TileConfig& c) { c.row_bytes[0] = 32; })).dot<4, 6>()), "differ in columns");
  EXPECT_DEATH((Tiles(make([](TileConfig& c) { c.row_bytes[4] = 32; })).dot<4, 6>()), "number of pairs");
  EXPECT_DEATH((Tiles(make([](TileConfig& c) { c.row_bytes[4] = 62; })).dot<4, 6>()), "whole pairs");
}

// A load fills the configured part and clears the rest; a store writes no more than that.
TEST(AmxTiles, TheEmulationHonoursShapes) {
  TileConfig config = tile_config(16);
  config.num_rows[6] = 3;
  config.row_bytes[6] = 8;
  Tiles tiles(config);
  std::uint8_t from[64];
  std::iota(from, from + 64, std::uint8_t{1});
  std::uint8_t to[64] = {};
  tiles.load<6>(from, 10);
  tiles.store<6>(to, 20);
  for (int row = 0; row < 4; ++row)
    for (int c = 0; c < 20 && 20 * row + c < 64; ++c)
      EXPECT_EQ(to[20 * row + c], row < 3 && c < 8 ? from[10 * row + c] : 0);
}

}  // namespace
}  // namespace quire::cpu::gemm
