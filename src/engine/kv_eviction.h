// Purpose: which keys and values a sequence forgets, and how many blocks it therefore needs: the one place
// that the inbox, the scheduler and its admission ask. In: a sequence's policy, its length, the pool's sizes.
// Out: numbers of blocks. Thread: any; plain values. Out of scope: taking blocks (scheduler), attention over
// what is left (backend/).
// Streaming: StreamingLLM (Xiao et al. 2023, arXiv:2309.17453). The first `sinks` positions and the last
// `window` are seen, at their places within the cache: neighbours by their distance, which rotary embeddings
// give whatever the absolute position, and the sinks as if they stood right before the window.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/kv_pool.h"

namespace quire {

struct Sequence;

enum class KvEvictionPolicy { kNone, kStreaming };

struct KvEviction {
  KvEvictionPolicy policy = KvEvictionPolicy::kNone;
  std::int64_t sinks = 4;      // [0, kMaxKvSinks]
  std::int64_t window = 1020;  // the present token included; at least one block

  bool evicts() const { return policy != KvEvictionPolicy::kNone; }
};

// Sequence::blocks where the block was given back.
inline constexpr std::int32_t kEvictedBlock = -1;

// What is wrong with a policy on this pool, if anything: the error names the request's field. max_model_len:
// positions that the model was prepared for.
Status check_eviction(const KvEviction& eviction, std::int64_t num_blocks, std::int64_t block_size,
                      std::int64_t max_model_len);

// Tokens of a sequence that one step may compute as far as its blocks go; at least 1.
std::int64_t kv_chunk_limit(const Sequence& sequence, const KvPool& pool);
// Blocks it holds at once at most, until its end.
std::int64_t kv_peak_blocks(const Sequence& sequence, const KvPool& pool);
// Blocks that must be free to admit it: of its whole present context and one token more, unless none comes.
std::int64_t kv_admission_blocks(const Sequence& sequence, const KvPool& pool);
// Blocks [sinks, this) hold nothing that a row from num_computed on sees.
std::int64_t kv_first_window_block(const Sequence& sequence, const KvPool& pool);

}  // namespace quire
