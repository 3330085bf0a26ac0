// Purpose: grouped-query attention over the paged cache of the `cpu` backend.
// In: queries of a mixed batch (prompt chunks and single tokens alike), block tables. Out: one row per query
// and head. Thread: the engine thread calls run(); the work is spread over the pool in units of (sequence, kv
// head, tile of queries), largest first. Contract of exactness: a row's positions are taken in groups of
// kGroup counted from position 0, each group with the same operations whatever the tile, the block size or
// the thread; masked positions contribute nothing (their keys are computed and discarded, their values are
// never read). Out of scope: splitting one context over threads (for more threads than kv heads: the next
// step, at fixed group borders, combined in order).
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire::cpu {

class Attention {
 public:
  Attention(Isa isa, ThreadPool& pool);

  // As Backend::attention.
  void run(const float* q, const CpuKvCache& cache, std::int64_t layer, const AttentionShape& shape,
           const AttentionParams& params, float* out);

 private:
  // One unit of work: `count` queries of one sequence from `first` on, and query heads of one kv head.
  struct Unit {
    std::int64_t cost = 0;  // scores to compute
    std::int32_t seq = 0;
    std::int32_t head = 0;  // the first
    std::int32_t num_heads = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  void plan(const KvSpec& spec, const AttentionShape& shape, const AttentionParams& params);

  AttentionKernel kernel_;
  ThreadPool& pool_;
  std::vector<Unit> units_;
  std::vector<Buffer> scratch_;  // one per thread, kept between calls
};

}  // namespace quire::cpu
