// Attention kernels of every tier this machine runs: against the float64 reference (tolerance 1e-5 of the
// weighted mean of |v| for the float32 kernels, kRoundedTolerance for those that round; stated where it
// differs), and bit for bit against themselves under other chunks, batches, block sizes and thread counts.
#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/test_tiers.h"
#include "backend/ref/ref_ops.h"

namespace quire::cpu {
namespace {

struct Model {
  std::int64_t head_dim = 64;
  std::int64_t num_heads = 4;
  std::int64_t num_kv_heads = 2;
  DType dtype = DType::kF32;
  std::int64_t window = 0;
  float softcap = 0;
  float sharpness = 1;  // multiplies the usual scale 1 / sqrt(head_dim)

  AttentionParams params() const {
    return {num_heads, sharpness / std::sqrt(static_cast<float>(head_dim)), window, softcap};
  }
  std::int64_t q_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
};

// The queries, keys and values of a sequence: a function of its id and the position only, so that the same
// sequence is the same in every batch.
struct Tokens {
  std::vector<float> q, k, v;
};
Tokens tokens_of(const Model& model, int id, std::int64_t begin, std::int64_t end) {
  Tokens tokens;
  for (std::int64_t p = begin; p < end; ++p) {
    std::uint64_t state = static_cast<std::uint64_t>(id * 1000003 + p + 1) * 0x9e3779b97f4a7c15u;
    // The sum of four uniform values, scaled to variance 1: near enough to normal, and quick.
    const auto next = [&state] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const std::uint64_t bits = state ^ (state >> 29);
      const std::uint64_t sum =
          (bits & 0xfff) + (bits >> 12 & 0xfff) + (bits >> 24 & 0xfff) + (bits >> 36 & 0xfff);
      return (static_cast<float>(sum) / 4096.0f - 2.0f) * 1.7320508f;
    };
    for (std::int64_t i = 0; i < model.q_width(); ++i) tokens.q.push_back(next());
    for (std::int64_t i = 0; i < model.kv_width(); ++i) tokens.k.push_back(next());
    for (std::int64_t i = 0; i < model.kv_width(); ++i) tokens.v.push_back(next());
  }
  return tokens;
}

// One sequence of a step: the rows for positions [context - num_queries, context).
struct Step {
  int id = 0;
  std::int64_t context = 0;
  std::int64_t num_queries = 0;
};

constexpr std::int64_t kLayer = 1;  // of 2, so that a wrong layer offset shows

// A cache whose unused slots hold NaN, with sequences in scattered blocks, run by one tier or by the
// reference.
class Rig {
 public:
  Rig(const Model& model, std::int64_t block_size, std::int64_t num_blocks) : model_(model) {
    spec_ = {2, model.num_kv_heads, model.head_dim, block_size, num_blocks, model.dtype};
    free_.resize(static_cast<std::size_t>(num_blocks));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(5));
  }
  virtual ~Rig() = default;
  virtual void store(const Tokens& tokens, std::int64_t num_rows, const std::int32_t* slots) = 0;
  virtual void attend(const float* q, const AttentionShape& shape, float* out) = 0;

  // Stores positions [begin, end) of a sequence without attending.
  void fill(int id, std::int64_t begin, std::int64_t end) {
    store_rows(id, begin, tokens_of(model_, id, begin, end));
  }
  void store_rows(int id, std::int64_t begin, const Tokens& tokens) {
    auto& table = tables_[static_cast<std::size_t>(id)];
    std::vector<std::int32_t> slots;
    const auto num_rows = static_cast<std::int64_t>(tokens.k.size()) / model_.kv_width();
    for (std::int64_t p = begin; p < begin + num_rows; ++p) {
      while (static_cast<std::int64_t>(table.size()) * spec_.block_size <= p) {
        ASSERT_FALSE(free_.empty());
        table.push_back(free_.back());
        free_.pop_back();
      }
      slots.push_back(static_cast<std::int32_t>(
          table[static_cast<std::size_t>(p / spec_.block_size)] * spec_.block_size + p % spec_.block_size));
    }
    store(tokens, num_rows, slots.data());
  }
  // Stores the rows of all steps, then attends in one call. Returns [rows, num_heads, head_dim].
  std::vector<float> run(const std::vector<Step>& steps, bool forget_before_window = false,
                         bool store_first = true) {
    std::vector<float> q;
    std::vector<std::int32_t> starts = {0};
    std::vector<std::int32_t> contexts;
    std::size_t stride = 0;
    for (const Step& step : steps) {
      const Tokens tokens = tokens_of(model_, step.id, step.context - step.num_queries, step.context);
      if (store_first) store_rows(step.id, step.context - step.num_queries, tokens);
      q.insert(q.end(), tokens.q.begin(), tokens.q.end());
      starts.push_back(starts.back() + static_cast<std::int32_t>(step.num_queries));
      contexts.push_back(static_cast<std::int32_t>(step.context));
      stride = std::max(stride, tables_[static_cast<std::size_t>(step.id)].size());
    }
    std::vector<std::int32_t> tables(stride * steps.size(), -1);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const auto& table = tables_[static_cast<std::size_t>(steps[s].id)];
      std::copy(table.begin(), table.end(), tables.begin() + static_cast<std::ptrdiff_t>(s * stride));
      const std::int64_t oldest = steps[s].context - steps[s].num_queries - model_.window + 1;
      for (std::int64_t b = 0; forget_before_window && (b + 1) * spec_.block_size <= oldest; ++b) {
        tables[s * stride + static_cast<std::size_t>(b)] = -1;
      }
    }
    AttentionShape shape;
    shape.num_seqs = static_cast<std::int64_t>(steps.size());
    shape.query_starts = starts.data();
    shape.context_lens = contexts.data();
    shape.block_tables = tables.data();
    shape.block_table_stride = static_cast<std::int64_t>(stride);
    std::vector<float> out(q.size(), -1.0f);
    attend(q.data(), shape, out.data());
    return out;
  }

 protected:
  Model model_;
  KvSpec spec_;

 private:
  std::vector<std::int32_t> free_;
  std::vector<std::vector<std::int32_t>> tables_ = std::vector<std::vector<std::int32_t>>(64);
};

class RefRig final : public Rig {
 public:
  RefRig(const Model& model, std::int64_t block_size, std::int64_t num_blocks, bool absolute_values = false)
      : Rig(model, block_size, num_blocks),
        cache_(std::move(ref::RefKvCache::make(spec_).value())),
        absolute_values_(absolute_values) {
    const std::int64_t count = spec_.block_size * spec_.num_blocks * spec_.num_kv_heads * spec_.head_dim;
    std::fill_n(cache_->key(kLayer, 0, 0), count, NAN);
    std::fill_n(cache_->value(kLayer, 0, 0), count, NAN);
  }
  void store(const Tokens& tokens, std::int64_t num_rows, const std::int32_t* slots) override {
    std::vector<float> v = tokens.v;
    if (absolute_values_) {
      for (float& value : v) value = std::abs(value);
    }
    ref::store_kv(*cache_, kLayer, tokens.k.data(), v.data(), num_rows, slots);
  }
  void attend(const float* q, const AttentionShape& shape, float* out) override {
    ref::attention(q, *cache_, kLayer, shape, model_.params(), out);
  }

 private:
  std::unique_ptr<ref::RefKvCache> cache_;
  bool absolute_values_;
};

// A kernel by what selects it.
struct Kind {
  Isa isa;
  ComputeMode mode;
  bool rounds() const { return select_attention_kernels(isa, mode).for_f16->store != nullptr; }
  // The model with a cache that this kernel serves.
  Model of(Model model) const {
    if (rounds()) model.dtype = DType::kF16;
    return model;
  }
};
constexpr Kind kKinds[] = {{Isa::kGeneric, ComputeMode::kF32},
                           {Isa::kAvx2, ComputeMode::kF32},
                           {Isa::kAvx512, ComputeMode::kF32},
                           {Isa::kAvx512, ComputeMode::kBf16}};
std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  return std::string(isa_name(info.param.isa)) + "_" + std::string(compute_mode_name(info.param.mode));
}

class CpuRig final : public Rig {
 public:
  CpuRig(const Model& model, std::int64_t block_size, std::int64_t num_blocks, Kind kind, int num_threads = 1)
      : Rig(model, block_size, num_blocks),
        isa_(kind.isa),
        pool_(num_threads),
        cache_(std::move(
            CpuKvCache::make(spec_, &select_attention_kernels(kind.isa, kind.mode)[spec_.dtype]).value())),
        attention_(kind.isa, kind.mode, pool_) {
    // All ones is a NaN in float32, float16 and bfloat16, and so are the scales of integers.
    std::memset(cache_->area(0, 0, 0), 0xff, cache_->num_bytes());
  }
  void store(const Tokens& tokens, std::int64_t num_rows, const std::int32_t* slots) override {
    store_kv(isa_, pool_, *cache_, kLayer, tokens.k.data(), tokens.v.data(), num_rows, slots);
  }
  void attend(const float* q, const AttentionShape& shape, float* out) override {
    attention_.run(q, *cache_, kLayer, shape, model_.params(), out);
  }

 private:
  Isa isa_;
  ThreadPool pool_;
  std::unique_ptr<CpuKvCache> cache_;
  Attention attention_;
};

// The largest error as a share of its tolerance unit, the weighted mean of |v| (with which rounding scales).
double worst_error(const std::vector<float>& got, const std::vector<float>& want,
                   const std::vector<float>& magnitude) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]) / magnitude[i];
    worst = error <= worst ? worst : error;  // a NaN sticks
  }
  return worst;
}

// What 12 and 13 bits of weights and values cost, of the largest weighted mean of |v| of a row.
constexpr double kRoundedTolerance = 1e-3;

// One batch on one kernel against the reference.
void expect_close(Model model, std::int64_t block_size, const std::vector<Step>& steps, Kind kind,
                  double tolerance, double rounded_tolerance = kRoundedTolerance) {
  model = kind.of(model);
  Model exact = model;  // of the reference: the kernel that rounds holds keys and values in its own way
  if (kind.rounds()) {
    tolerance = rounded_tolerance;
    exact.dtype = DType::kF32;
  }
  std::int64_t num_blocks = 3;
  for (const Step& step : steps) num_blocks += (step.context + block_size - 1) / block_size;
  CpuRig cpu(model, block_size, num_blocks, kind);
  RefRig ref(exact, block_size, num_blocks);
  RefRig magnitude(exact, block_size, num_blocks, /*absolute_values=*/true);
  for (const Step& step : steps) {
    cpu.fill(step.id, 0, step.context - step.num_queries);
    ref.fill(step.id, 0, step.context - step.num_queries);
    magnitude.fill(step.id, 0, step.context - step.num_queries);
  }
  std::vector<float> unit = magnitude.run(steps);
  if (kind.rounds()) {
    // One scale per vector: rounding goes with the largest element.
    for (auto row = unit.begin(); row != unit.end(); row += model.head_dim) {
      std::fill_n(row, model.head_dim, *std::max_element(row, row + model.head_dim));
    }
  }
  EXPECT_LE(worst_error(cpu.run(steps), ref.run(steps), unit), tolerance)
      << isa_name(kind.isa) << " head_dim " << model.head_dim << " heads " << model.num_heads << "/"
      << model.num_kv_heads << " block size " << block_size << " " << dtype_name(model.dtype) << " window "
      << model.window << " softcap " << model.softcap;
}

class AttentionTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { QUIRE_SKIP_UNLESS_TIER_RUNS(GetParam().isa); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest, testing::ValuesIn(kKinds), kind_name);

TEST_P(AttentionTest, HeadDimsAndGroupSizes) {
  for (const std::int64_t head_dim : {64, 80, 96, 112, 128, 256, 8, 24, 40, 72, 33, 1}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
      Model model;
      model.head_dim = head_dim;
      model.dtype = dtype;
      expect_close(model, 16, {{0, 37, 37}, {1, 50, 1}, {2, 1, 1}, {3, 70, 2}}, GetParam(), 1e-5);
    }
  }
  for (std::int64_t group = 1; group <= 17; ++group) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      Model model;
      model.head_dim = 32;
      model.num_heads = 2 * group;
      model.dtype = dtype;
      expect_close(model, 16, {{0, 45, 1}, {1, 35, 20}}, GetParam(), 1e-5);
    }
  }
  Model many;  // more heads on one kv head than a unit takes
  many.num_heads = 71;
  many.num_kv_heads = 1;
  expect_close(many, 16, {{0, 40, 3}}, GetParam(), 1e-5);
}

TEST_P(AttentionTest, ContextLengths) {
  Model model;
  model.head_dim = 32;
  model.num_heads = 6;
  for (std::int64_t context = 1; context <= 200; context += context < 70 ? 1 : 19) {
    expect_close(model, 16, {{0, context, 1}}, GetParam(), 1e-5);
    expect_close(model, 16, {{0, context, std::min<std::int64_t>(context, 1 + context % 9)}}, GetParam(),
                 1e-5);
  }
}

TEST_P(AttentionTest, WindowsAndSoftcap) {
  for (const std::int64_t window : {1, 2, 15, 16, 17, 31, 32, 33, 64, 1000}) {
    for (const float softcap : {0.0f, 30.0f}) {
      for (const std::int64_t group : {1, 7}) {
        Model model;
        model.head_dim = 32;
        model.num_heads = 2 * group;
        model.window = window;
        model.softcap = softcap;
        model.sharpness = softcap > 0 ? 4.0f : 1.0f;
        expect_close(model, 16, {{0, 100, 100}, {1, 131, 1}, {2, 66, 5}}, GetParam(),
                     softcap > 0 ? 2e-5 : 1e-5);
      }
    }
  }
}

// Scores up to some 60: their own rounding, 2^-23 relative, is what the weights lose.
TEST_P(AttentionTest, SharpScores) {
  Model model;
  model.sharpness = 12;
  expect_close(model, 16, {{0, 150, 150}, {1, 200, 1}}, GetParam(), 1e-4, 3e-3);
}

TEST_P(AttentionTest, BlocksBeforeTheWindowAreNotTouched) {
  Model model = GetParam().of({});
  model.window = 20;
  for (const std::int64_t block_size : {1, 8, 16, 32}) {
    CpuRig cpu(model, block_size, 400 / block_size + 20, GetParam());
    cpu.fill(0, 0, 119);
    const std::vector<float> all = cpu.run({{0, 120, 1}});
    const std::vector<float> forgotten = cpu.run({{0, 120, 1}}, /*forget_before_window=*/true);
    EXPECT_EQ(std::memcmp(all.data(), forgotten.data(), all.size() * sizeof(float)), 0) << block_size;
  }
}

// Models for the tests of bit equality: every path (in place, converted, gathered), windows and softcap.
std::vector<Model> exactness_models() {
  std::vector<Model> models(6);
  models[0].num_heads = 14;  // Qwen2.5-0.5B's shape
  models[1].num_heads = 9;   // SmolLM2-135M's
  models[1].num_kv_heads = 3;
  models[1].dtype = DType::kF16;
  models[2].head_dim = 128;
  models[2].num_heads = 2;
  models[2].dtype = DType::kBf16;
  models[3].head_dim = 40;
  models[3].window = 37;
  models[4].head_dim = 80;
  models[4].num_heads = 16;
  models[4].num_kv_heads = 1;
  models[4].softcap = 20;
  models[5].head_dim = 33;
  models[5].num_heads = 5;
  models[5].num_kv_heads = 5;
  models[5].dtype = DType::kF16;
  return models;
}
constexpr std::int64_t kPrompt = 103;

// Positions [0, kPrompt) of sequence `id`, `chunk` at a time; a chunk of 0 is the whole prompt at once.
std::vector<float> run_in_chunks(Rig& rig, int id, std::int64_t chunk) {
  std::vector<float> all;
  for (std::int64_t begin = 0; begin < kPrompt;) {
    const std::int64_t end = chunk == 0 ? kPrompt : std::min(kPrompt, begin + chunk);
    const std::vector<float> part = rig.run({{id, end, end - begin}});
    all.insert(all.end(), part.begin(), part.end());
    begin = end;
  }
  return all;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
        << what << ": value " << i << " is " << got[i] << ", not " << want[i];
  }
}

TEST_P(AttentionTest, SameBitsInChunksBlocksAndThreads) {
  for (const Model& any_model : exactness_models()) {
    const Model model = GetParam().of(any_model);
    CpuRig whole(model, 16, 20, GetParam());
    const std::vector<float> want = run_in_chunks(whole, 0, 0);
    for (const float value : want) ASSERT_TRUE(std::isfinite(value));
    for (const std::int64_t chunk : {1, 5, 7, 16, 33}) {
      CpuRig rig(model, 16, 20, GetParam());
      expect_same_bits(run_in_chunks(rig, 0, chunk), want, "chunks of " + std::to_string(chunk));
    }
    for (const std::int64_t block_size : {1, 3, 4, 8, 24, 32, 48, 64}) {
      CpuRig rig(model, block_size, 120 / block_size + 8, GetParam());
      expect_same_bits(run_in_chunks(rig, 0, 0), want, "blocks of " + std::to_string(block_size));
      CpuRig again(model, block_size, 120 / block_size + 8, GetParam());
      expect_same_bits(run_in_chunks(again, 0, 7), want,
                       "chunks of 7, blocks of " + std::to_string(block_size));
    }
    for (const int num_threads : {2, 3}) {
      CpuRig rig(model, 16, 20, GetParam(), num_threads);
      expect_same_bits(run_in_chunks(rig, 0, 0), want, std::to_string(num_threads) + " threads");
    }
  }
}

TEST_P(AttentionTest, SameBitsAloneAndInABatch) {
  for (const Model& any_model : exactness_models()) {
    const Model model = GetParam().of(any_model);
    // 17 sequences: prompts, chunks and single tokens mixed.
    std::vector<Step> steps;
    for (int id = 0; id < 17; ++id) {
      const std::int64_t context = 1 + (id * 29) % 140;
      steps.push_back({id, context, id % 3 == 0 ? 1 : std::min<std::int64_t>(context, 3 + id * 7)});
    }
    CpuRig batch(model, 16, 200, GetParam(), 2);
    for (const Step& step : steps) batch.fill(step.id, 0, step.context - step.num_queries);
    const std::vector<float> together = batch.run(steps);
    std::vector<Step> backwards(steps.rbegin(), steps.rend());
    const std::vector<float> reversed = batch.run(backwards);
    std::size_t from = 0;
    std::size_t from_end = together.size();
    for (const Step& step : steps) {
      CpuRig alone(model, 16, 20, GetParam());
      alone.fill(step.id, 0, step.context - step.num_queries);
      const std::vector<float> want = alone.run({step});
      const auto begin = static_cast<std::ptrdiff_t>(from);
      const auto size = static_cast<std::ptrdiff_t>(want.size());
      from_end -= want.size();
      const auto begin_reversed = static_cast<std::ptrdiff_t>(from_end);
      expect_same_bits({together.begin() + begin, together.begin() + begin + size}, want, "in a batch");
      expect_same_bits({reversed.begin() + begin_reversed, reversed.begin() + begin_reversed + size}, want,
                       "in the reversed batch");
      from += want.size();
    }
  }
}

// A position that a row may not see changes no bit of it, whatever it holds.
TEST_P(AttentionTest, LaterTokensDoNotLeak) {
  for (Model model : exactness_models()) {
    model.dtype = GetParam().rounds() ? DType::kF16 : DType::kF32;  // types that hold the poison
    CpuRig rig(model, 16, 20, GetParam());
    const std::vector<float> want = run_in_chunks(rig, 0, 0);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
      constexpr std::int64_t kFirstBad = 50;
      CpuRig poisoned(model, 16, 20, GetParam());
      poisoned.fill(0, 0, kPrompt);
      Tokens bad;
      bad.k.assign(static_cast<std::size_t>((kPrompt - kFirstBad) * model.kv_width()), poison);
      bad.v = bad.k;
      poisoned.store_rows(0, kFirstBad, bad);
      // Once as memory that nobody may see, once beside rows of the same call that do see it.
      for (const std::int64_t context : {kFirstBad, kPrompt}) {
        std::vector<float> got = poisoned.run({{0, context, context}}, false, /*store_first=*/false);
        got.resize(static_cast<std::size_t>(kFirstBad * model.q_width()));
        expect_same_bits(got, {want.begin(), want.begin() + kFirstBad * model.q_width()},
                         "before the poison");
      }
    }
  }
}

// Nor is a NaN or an infinity that a row does see lost: the engine ends such a request.
TEST_P(AttentionTest, WhatIsNotANumberShows) {
  Model model;
  model.dtype = GetParam().rounds() ? DType::kF16 : DType::kF32;
  for (const bool in_key : {false, true}) {
    CpuRig rig(model, 16, 20, GetParam());
    rig.fill(0, 0, 40);
    Tokens bad = tokens_of(model, 0, 20, 21);
    (in_key ? bad.k : bad.v)[3] = std::numeric_limits<float>::quiet_NaN();
    rig.store_rows(0, 20, bad);
    const std::vector<float> got = rig.run({{0, 40, 40}}, false, /*store_first=*/false);
    const auto value = [&](std::int64_t position, std::int64_t head) {  // the fourth of a head
      return got[static_cast<std::size_t>(position * model.q_width() + head * model.head_dim + 3)];
    };
    EXPECT_TRUE(std::isfinite(value(19, 0)));
    EXPECT_TRUE(std::isnan(value(20, 0)));
    EXPECT_TRUE(std::isnan(value(39, 1)));
    EXPECT_TRUE(std::isfinite(value(39, 2)));  // another kv head
  }
}

// Contexts of several splits, in shapes whose units are cut over the threads (1 to 3 kv heads).
TEST_P(AttentionTest, LongContextsAgreeWithTheReference) {
  for (const std::int64_t window : {0, 600}) {
    Model model;
    model.head_dim = 16;
    model.num_heads = 3;
    model.num_kv_heads = 1;
    model.window = window;
    for (const std::int64_t context : {511, 512, 513, 1025, 1700}) {
      expect_close(model, 16, {{0, context, 1}, {1, context, 9}}, GetParam(), 1e-5);
    }
  }
}

TEST_P(AttentionTest, SameBitsHoweverAContextIsSplit) {
  constexpr std::int64_t kContext = 1700;
  for (const std::int64_t num_kv_heads : {1, 3}) {
    for (const std::int64_t window : {0, 700}) {
      Model any_model;
      any_model.head_dim = 16;
      any_model.num_heads = 2 * num_kv_heads;
      any_model.num_kv_heads = num_kv_heads;
      any_model.window = window;
      const Model model = GetParam().of(any_model);
      CpuRig one(model, 16, 250, GetParam());
      one.fill(0, 0, kContext);
      const std::vector<float> want = one.run({{0, kContext, 1}});
      // 700 rows across two borders: every row is computed beside others, by many units.
      const std::vector<float> rows = one.run({{0, kContext, 700}});
      expect_same_bits({rows.end() - static_cast<std::ptrdiff_t>(want.size()), rows.end()}, want, "last row");
      for (const std::int64_t row : {0, 23, 24, 511, 512, 536}) {
        const std::vector<float> alone =
            one.run({{0, kContext - 699 + row, 1}}, false, /*store_first=*/false);
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * model.q_width());
        expect_same_bits({begin, begin + static_cast<std::ptrdiff_t>(alone.size())}, alone,
                         "row " + std::to_string(row));
      }
      for (const int num_threads : {2, 5}) {
        CpuRig many(model, 16, 250, GetParam(), num_threads);
        many.fill(0, 0, kContext);
        many.fill(1, 0, 530);
        expect_same_bits(many.run({{0, kContext, 1}}), want, std::to_string(num_threads) + " threads");
        std::vector<float> beside = many.run({{1, 530, 3}, {0, kContext, 1}});
        beside.erase(beside.begin(), beside.end() - static_cast<std::ptrdiff_t>(want.size()));
        expect_same_bits(beside, want, "beside another");
      }
    }
  }
}

TEST(AttentionList, SaysWhichKernelAndWhyNotAnother) {
  const AttentionKernels exact = select_attention_kernels(Isa::kGeneric, ComputeMode::kF32);
  EXPECT_EQ(exact.for_floats, exact.for_f16);
  EXPECT_EQ(&exact[DType::kBf16], &kAttentionF32Generic);
#if defined(__x86_64__)
  EXPECT_THAT(
      exact.report,
      testing::Contains(testing::HasSubstr("plain C++; float32, AVX-512 refused: the tier is generic")));
  const AttentionKernels wide = select_attention_kernels(Isa::kAvx512, ComputeMode::kF32);
  EXPECT_EQ(wide.for_f16, &kAttentionF32Avx512);
  EXPECT_THAT(wide.report, testing::Contains(testing::HasSubstr("compute f32 rounds nothing")));
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx512Bf16}) {
    for (const ComputeMode mode : {ComputeMode::kBf16, ComputeMode::kInt8}) {
      const AttentionKernels rounded = select_attention_kernels(isa, mode);
      EXPECT_EQ(&rounded[DType::kF16], &kAttentionInt16Avx512);
      EXPECT_EQ(&rounded[DType::kF32], &kAttentionF32Avx512);
    }
  }
  EXPECT_EQ(select_attention_kernels(Isa::kAvx2, ComputeMode::kInt8).for_f16, &kAttentionF32Avx2);
#endif
}

#if defined(__x86_64__)
// Not part of the contract, but it makes a wrong kernel stand out: the two vector tiers do the same
// operations.
TEST(AttentionTiers, Avx2AndAvx512Agree) {
  QUIRE_SKIP_UNLESS_TIER_RUNS(Isa::kAvx512);
  for (const Model& model : exactness_models()) {
    CpuRig narrow(model, 16, 20, {Isa::kAvx2, ComputeMode::kF32});
    CpuRig wide(model, 16, 20, {Isa::kAvx512, ComputeMode::kF32});
    expect_same_bits(run_in_chunks(narrow, 0, 0), run_in_chunks(wide, 0, 0), "avx2 and avx512");
  }
}
#endif

TEST(AttentionCheck, ATableThatIsTooShortAborts) {
  Model model;
  ThreadPool pool(1);
  Attention attention(Isa::kGeneric, ComputeMode::kF32, pool);
  const KvSpec spec = {1, 2, 64, 16, 4, DType::kF32};
  auto cache = std::move(CpuKvCache::make(spec).value());
  const std::int32_t starts[] = {0, 1};
  const std::int32_t contexts[] = {17};
  const std::int32_t table[] = {0, 4};
  std::vector<float> q(256);
  std::vector<float> out(256);
  EXPECT_DEATH(
      attention.run(q.data(), *cache, 0, {1, starts, contexts, table, 1}, model.params(), out.data()),
      "17 vs 16");
  EXPECT_DEATH(
      attention.run(q.data(), *cache, 0, {1, starts, contexts, table, 2}, model.params(), out.data()),
      "block 4 of sequence 0");
}

}  // namespace
}  // namespace quire::cpu
