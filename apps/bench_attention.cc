#include "apps/bench_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace quire {
namespace {

constexpr std::int64_t kBlockSize = 16;

// Scores of real models are moderate.
std::vector<float> moderate(std::int64_t count, std::uint32_t seed) {
  std::vector<float> out = bench_activations(count, seed);
  for (float& value : out) value = std::clamp(value, -2.0f, 2.0f);
  return out;
}

}  // namespace

AttentionData::AttentionData(const AttentionCase& problem, std::int64_t num_layers)
    : problem_(problem),
      blocks_per_seq_((problem.context + kBlockSize - 1) / kBlockSize),
      q_(moderate(problem.num_seqs * queries_per_seq() * q_width(), 5)),
      out_(q_.size()) {
  spec_ = {num_layers, problem.heads.num_kv_heads,         problem.heads.head_dim,
           kBlockSize, blocks_per_seq_ * problem.num_seqs, problem.kv};
  table_.resize(static_cast<std::size_t>(spec_.num_blocks));
  std::iota(table_.begin(), table_.end(), 0);
  std::mt19937 random(7);
  std::shuffle(table_.begin(), table_.end(), random);
  params_.num_heads = problem.heads.num_heads;
  params_.scale = 1.0f / std::sqrt(static_cast<float>(problem.heads.head_dim));
}

void AttentionData::fill(Backend* backend, KvCache* cache) const {
  const std::int64_t width = problem_.heads.num_kv_heads * problem_.heads.head_dim;
  for (std::int64_t seq = 0; seq < problem_.num_seqs; ++seq) {
    const auto seed = static_cast<std::uint32_t>(11 + 2 * seq);
    const std::vector<float> k = moderate(problem_.context * width, seed);
    const std::vector<float> v = bench_activations(problem_.context * width, seed + 1);
    std::vector<std::int32_t> slots;
    for (std::int64_t p = 0; p < problem_.context; ++p) {
      const std::int32_t block = table_[static_cast<std::size_t>(seq * blocks_per_seq_ + p / kBlockSize)];
      slots.push_back(static_cast<std::int32_t>(block * kBlockSize + p % kBlockSize));
    }
    for (std::int64_t layer = 0; layer < cache->spec().num_layers; ++layer) {
      backend->store_kv(*cache, layer, k.data(), v.data(), problem_.context, slots.data());
    }
  }
}

void AttentionData::run(Backend* backend, const KvCache& cache, std::int64_t layer) {
  std::vector<std::int32_t> starts(static_cast<std::size_t>(problem_.num_seqs + 1));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * queries_per_seq());
  }
  const std::vector<std::int32_t> contexts(static_cast<std::size_t>(problem_.num_seqs),
                                           static_cast<std::int32_t>(problem_.context));
  backend->attention(q_.data(), cache, layer,
                     {problem_.num_seqs, starts.data(), contexts.data(), table_.data(), blocks_per_seq_},
                     params_, out_.data());
}

double AttentionData::error(Backend* reference, const KvCache& cache) const {
  double worst = 0;
  for (const std::int64_t seq : {std::int64_t{0}, problem_.num_seqs - 1}) {
    const std::int64_t row = (seq + 1) * queries_per_seq() - 1;
    const std::int32_t starts[] = {0, 1};
    const auto context = static_cast<std::int32_t>(problem_.context);
    std::vector<float> want(static_cast<std::size_t>(q_width()));
    reference->attention(q_.data() + row * q_width(), cache, 0,
                         {1, starts, &context, table_.data() + seq * blocks_per_seq_, blocks_per_seq_},
                         params_, want.data());
    const auto begin = out_.begin() + static_cast<std::ptrdiff_t>(row * q_width());
    worst = std::max(worst, relative_error({begin, begin + static_cast<std::ptrdiff_t>(q_width())}, want));
  }
  return worst;
}

}  // namespace quire
