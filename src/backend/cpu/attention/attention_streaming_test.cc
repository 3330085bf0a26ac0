// Streaming eviction in attention: both backends against a dense computation written here, and the cpu
// backend's contract of exactness with blocks that are gone.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace quire {
namespace {

constexpr std::int64_t kHeads = 6;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 32;
constexpr std::int64_t kBlockSize = 16;
constexpr std::int64_t kWidth = kHeads * kHeadDim;
constexpr std::int64_t kKvWidth = kKvHeads * kHeadDim;

struct Reach {
  std::int64_t sinks;
  std::int64_t window;
};

std::vector<float> values(std::uint64_t seed, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::mt19937 bits(static_cast<std::mt19937::result_type>(seed));
  for (float& value : out) value = static_cast<float>(bits()) / 1073741824.0f - 2.0f;
  return out;
}

// All that a sequence ever asks, [length, ...] each.
struct Tokens {
  explicit Tokens(std::int64_t length)
      : q(values(1, length * kWidth)),
        sink_q(values(2, length * kWidth)),
        k(values(3, length * kKvWidth)),
        v(values(4, length * kKvWidth)) {}
  std::vector<float> q, sink_q, k, v;
};

std::vector<double> dense(const Tokens& tokens, std::int64_t length, Reach reach, double scale) {
  std::vector<double> out(static_cast<std::size_t>(length * kWidth), 0.0);
  for (std::int64_t row = 0; row < length * kHeads; ++row) {
    const std::int64_t position = row / kHeads;
    const std::int64_t kv_head = row % kHeads / (kHeads / kKvHeads);
    double total = 0;
    for (std::int64_t p = 0; p <= position; ++p) {
      const bool is_sink = p < reach.sinks;
      if (!is_sink && p <= position - reach.window) continue;
      const float* query = (is_sink ? tokens.sink_q : tokens.q).data() + row * kHeadDim;
      const std::int64_t at = p * kKvWidth + kv_head * kHeadDim;
      double score = 0;
      for (std::int64_t d = 0; d < kHeadDim; ++d) score += double{query[d]} * tokens.k.data()[at + d];
      const double weight = std::exp(score * scale);
      total += weight;
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        out.data()[row * kHeadDim + d] += weight * tokens.v.data()[at + d];
      }
    }
    for (std::int64_t d = 0; d < kHeadDim; ++d) out.data()[row * kHeadDim + d] /= total;
  }
  return out;
}

constexpr float kScale = 0.1f;

struct RunOptions {
  const char* backend = "cpu";
  ComputeMode mode = ComputeMode::kF32;
  DType dtype = DType::kF32;
  int num_threads = 1;
};

// The outputs for all positions, `chunk` rows at a time. The table's entries of blocks that no row of the
// chunk sees are negative. with_plain: a sequence without eviction stands before it in every batch.
std::vector<float> run(const RunOptions& how, const Tokens& tokens, std::int64_t length, Reach reach,
                       std::int64_t chunk, bool with_plain = false) {
  BackendOptions options;
  options.compute = how.mode;
  options.num_threads = how.num_threads;
  auto backend = make_backend(how.backend, options).value();
  const std::int64_t num_blocks = (length + kBlockSize - 1) / kBlockSize;
  auto cache = backend->make_kv_cache({1, kKvHeads, kHeadDim, kBlockSize, num_blocks + 1, how.dtype}).value();
  std::vector<float> out(tokens.q.size());
  for (std::int64_t begin = 0; begin < length; begin += chunk) {
    const std::int64_t end = std::min(length, begin + chunk);
    std::vector<std::int32_t> slots(static_cast<std::size_t>(end - begin));
    std::iota(slots.begin(), slots.end(), static_cast<std::int32_t>(begin));
    backend->store_kv(*cache, 0, tokens.k.data() + begin * kKvWidth, tokens.v.data() + begin * kKvWidth,
                      end - begin, slots.data());
    const std::int64_t num_plain = with_plain ? 1 : 0;
    if (with_plain) {
      const auto slot = static_cast<std::int32_t>(num_blocks * kBlockSize);
      backend->store_kv(*cache, 0, tokens.k.data(), tokens.v.data(), 1, &slot);
    }
    std::vector<std::int32_t> tables;
    if (with_plain)
      tables.assign(static_cast<std::size_t>(num_blocks), static_cast<std::int32_t>(num_blocks));
    for (std::int64_t b = 0; b < num_blocks; ++b) {
      const bool is_sink = b * kBlockSize < reach.sinks;
      const bool is_gone = !is_sink && (b + 1) * kBlockSize <= begin - reach.window + 1;
      tables.push_back(is_gone ? -1 : static_cast<std::int32_t>(b));
    }
    const auto rows = static_cast<std::int32_t>(end - begin);
    const auto plain = static_cast<std::int32_t>(num_plain);
    std::vector<std::int32_t> starts = {0, plain, plain + rows};
    std::vector<std::int32_t> contexts = {1, static_cast<std::int32_t>(end)};
    const std::int32_t sinks[] = {0, static_cast<std::int32_t>(reach.sinks)};
    const std::int32_t windows[] = {0, static_cast<std::int32_t>(reach.window)};
    const std::int64_t skip = 1 - num_plain;
    AttentionShape shape;
    shape.num_seqs = 1 + num_plain;
    shape.query_starts = starts.data() + skip;
    shape.context_lens = contexts.data() + skip;
    shape.block_tables = tables.data();
    shape.block_table_stride = num_blocks;
    shape.kv_sinks = sinks + skip;
    shape.kv_windows = windows + skip;
    std::vector<float> q(tokens.q.begin(), tokens.q.begin() + num_plain * kWidth);
    std::vector<float> sink_q = q;
    q.insert(q.end(), tokens.q.begin() + begin * kWidth, tokens.q.begin() + end * kWidth);
    sink_q.insert(sink_q.end(), tokens.sink_q.begin() + begin * kWidth, tokens.sink_q.begin() + end * kWidth);
    shape.sink_q = sink_q.data();
    std::vector<float> part(q.size());
    backend->attention(q.data(), *cache, 0, shape, {kHeads, kScale}, part.data());
    std::copy(part.begin() + num_plain * kWidth, part.end(), out.begin() + begin * kWidth);
  }
  return out;
}

constexpr Reach kReaches[] = {{4, 37}, {0, 16}, {1, 1}, {20, 64}, {4, 600}, {512, 40}};
constexpr std::int64_t kLength = 620;

TEST(AttentionStreaming, BothBackendsAreTheDenseComputation) {
  const Tokens tokens(kLength);
  for (const Reach reach : kReaches) {
    const std::vector<double> want = dense(tokens, kLength, reach, double{kScale});
    for (const char* backend : {"ref", "cpu"}) {
      for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBf16}) {
        // bf16 mode with float16 is the kernel of 16-bit integers where the machine has it.
        const bool rounds = mode == ComputeMode::kBf16;
        const RunOptions how{backend, mode, rounds ? DType::kF16 : DType::kF32};
        const std::vector<float> got = run(how, tokens, kLength, reach, 100);
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = std::abs(got[i] - want[i]);
          worst = error <= worst ? worst : error;  // a NaN sticks
        }
        EXPECT_LT(worst, rounds ? 5e-3 : 1e-5) << backend << " " << reach.sinks << " " << reach.window;
      }
    }
  }
}

TEST(AttentionStreaming, SameBitsInChunksThreadsAndBatches) {
  const Tokens tokens(kLength);
  for (const Reach reach : kReaches) {
    for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBf16}) {
      RunOptions how{"cpu", mode, mode == ComputeMode::kF32 ? DType::kF32 : DType::kF16};
      const auto bits = [&](std::int64_t chunk, bool with_plain) {
        const std::vector<float> out = run(how, tokens, kLength, reach, chunk, with_plain);
        std::vector<std::uint32_t> each;
        for (const float value : out) each.push_back(std::bit_cast<std::uint32_t>(value));
        return each;
      };
      const auto whole = bits(kLength, false);
      EXPECT_TRUE(bits(1, false) == whole) << reach.sinks << " " << reach.window;
      EXPECT_TRUE(bits(33, true) == whole) << reach.sinks << " " << reach.window;
      how.num_threads = 3;
      EXPECT_TRUE(bits(210, false) == whole) << reach.sinks << " " << reach.window;
    }
  }
}

}  // namespace
}  // namespace quire
