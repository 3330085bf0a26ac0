// Purpose: one call of attention to time: sequences with keys and values in scattered blocks. In: a shape.
// Out: a run on a backend, and its error against another's. Thread: the main thread. Out of scope: measuring
// (bench_kernels.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench_problems.h"
#include "backend/backend.h"

namespace quire {

struct AttentionCase {
  AttentionHeads heads;
  DType kv = DType::kF16;
  bool is_prefill = false;   // a whole prompt against itself; else one token of each sequence
  std::int64_t context = 0;  // tokens of each sequence
  std::int64_t num_seqs = 1;
};

class AttentionData {
 public:
  AttentionData(const AttentionCase& problem, std::int64_t num_layers);
  const KvSpec& spec() const { return spec_; }
  // Stores the same keys and values in every layer of the cache.
  void fill(Backend* backend, KvCache* cache) const;
  void run(Backend* backend, const KvCache& cache, std::int64_t layer);
  // Of the last run, against the reference: relative_error() of the last query of the first and of the last
  // sequence.
  double error(Backend* reference, const KvCache& cache) const;

 private:
  std::int64_t queries_per_seq() const { return problem_.is_prefill ? problem_.context : 1; }
  std::int64_t q_width() const { return problem_.heads.num_heads * problem_.heads.head_dim; }

  const AttentionCase problem_;
  const std::int64_t blocks_per_seq_;
  KvSpec spec_;
  AttentionParams params_;
  std::vector<std::int32_t> table_;  // [num_seqs, blocks_per_seq]
  std::vector<float> q_;
  std::vector<float> out_;
};

}  // namespace quire
