// Purpose: grouped-query attention over the paged cache of the `cpu` backend.
// In: queries of a mixed batch (prompt chunks and single tokens alike), block tables. Out: one row per query
// and head. Thread: the engine thread calls run(); the work is spread over the pool in units of (sequence, kv
// head, tile of queries), largest first, and where these are too few or too uneven, in pieces of their
// contexts. Memory: a fixed scratch per thread, and the states of the pieces. Contract of exactness: a row's
// positions are taken in groups counted from position 0 within splits of kSplit positions, each with the same
// operations whatever the tile, the block size or the thread, and the splits are merged in ascending order
// also where one thread does them all; masked positions contribute nothing, whatever they hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/attention/attention_list.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire::cpu {

class Attention {
 public:
  Attention(Isa isa, ComputeMode mode, ThreadPool& pool);

  // As Backend::attention.
  void run(const float* q, const CpuKvCache& cache, std::int64_t layer, const AttentionShape& shape,
           const AttentionParams& params, float* out);

  const AttentionKernels& kernels() const { return kernels_; }
  const std::vector<std::string>& report() const { return kernels_.report; }

 private:
  // `count` queries of one sequence from `first` on, and query heads of one kv head.
  struct Unit {
    std::int64_t cost = 0;
    std::int32_t seq = 0;
    std::int32_t head = 0;  // the first
    std::int32_t num_heads = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
    std::int32_t first_split = 0;  // what the queries see
    std::int32_t end_split = 0;
    std::int64_t sinks = 0;    // then first_split is of what is seen behind them
    std::int64_t window = 0;   // 0 = none
    std::int64_t states = -1;  // place of the states of a unit that is cut, in floats; the sinks' is the last
  };
  // What one thread takes at a time: a unit, some splits of it, or its sinks (first_split kSinkPiece).
  struct Piece {
    std::int64_t cost = 0;
    std::int32_t unit = 0;
    std::int32_t first_split = 0;
    std::int32_t end_split = 0;
  };
  void plan(const AttentionKernel& kernel, const KvSpec& spec, const AttentionShape& shape,
            const AttentionParams& params);
  void add_pieces(std::size_t unit, std::int64_t num_parts, std::int64_t head_dim);
  void clear_pieces();
  void cut(const KvSpec& spec);
  std::int64_t makespan() const;

  const AttentionKernels kernels_;
  ThreadPool& pool_;
  std::vector<Unit> units_;
  std::vector<Piece> pieces_;
  std::vector<std::int32_t> cut_units_;
  std::vector<Buffer> scratch_;  // one per thread, kept between calls
  Buffer states_;
  std::int64_t num_state_floats_ = 0;  // of the present cut
};

}  // namespace quire::cpu
