#include "engine/kv_eviction.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "backend/backend.h"
#include "engine/sequence.h"

namespace quire {
namespace {

// Blocks of the sinks, and of `num_rows` rows with what each sees of the window: the window may begin inside
// a block.
std::int64_t streaming_blocks(const KvEviction& eviction, std::int64_t num_rows, std::int64_t block_size) {
  const auto blocks_for = [&](std::int64_t count) { return (count + block_size - 1) / block_size; };
  return blocks_for(eviction.sinks) + blocks_for(eviction.window - 1 + num_rows) + 1;
}

}  // namespace

Status check_eviction(const KvEviction& eviction, std::int64_t num_blocks, std::int64_t block_size,
                      std::int64_t max_model_len) {
  if (!eviction.evicts()) return {};
  if (eviction.sinks < 0 || eviction.sinks > kMaxKvSinks) {
    return invalid(fmt::format("kv_sinks must lie in [0, {}], not {}", kMaxKvSinks, eviction.sinks),
                   "kv_sinks");
  }
  if (eviction.window < block_size) {
    return invalid(
        fmt::format("kv_window must be at least one block of {} tokens, not {}", block_size, eviction.window),
        "kv_window");
  }
  if (eviction.window > max_model_len - eviction.sinks) {
    return invalid(
        fmt::format("kv_sinks + kv_window must not exceed the context of {} tokens, but are {} + {}",
                    max_model_len, eviction.sinks, eviction.window),
        "kv_window");
  }
  const std::int64_t least = streaming_blocks(eviction, 1, block_size);
  if (least > num_blocks) {
    return invalid(
        fmt::format("kv_sinks {} and kv_window {} need {} KV blocks, but the cache has {}; choose a "
                    "smaller window",
                    eviction.sinks, eviction.window, least, num_blocks),
        "kv_window");
  }
  return {};
}

std::int64_t kv_chunk_limit(const Sequence& sequence, const KvPool& pool) {
  const KvEviction& eviction = sequence.eviction;
  if (!eviction.evicts()) return std::numeric_limits<std::int64_t>::max();
  // Chunks as long as the window read each key twice on average; longer ones would only take more blocks.
  const std::int64_t num_blocks =
      std::min(pool.num_blocks(), streaming_blocks(eviction, eviction.window, pool.block_size()));
  const std::int64_t num_positions = (num_blocks - pool.blocks_for(eviction.sinks) - 1) * pool.block_size();
  return std::min(eviction.window, num_positions - (eviction.window - 1));
}

std::int64_t kv_peak_blocks(const Sequence& sequence, const KvPool& pool) {
  const std::int64_t whole = pool.blocks_for(sequence.max_known);
  if (!sequence.eviction.evicts()) return whole;
  return std::min(whole,
                  streaming_blocks(sequence.eviction, kv_chunk_limit(sequence, pool), pool.block_size()));
}

std::int64_t kv_admission_blocks(const Sequence& sequence, const KvPool& pool) {
  const std::int64_t num_positions = std::min(sequence.num_known() + 1, sequence.max_known);
  return std::min(pool.blocks_for(num_positions), kv_peak_blocks(sequence, pool));
}

std::int64_t kv_first_window_block(const Sequence& sequence, const KvPool& pool) {
  const std::int64_t oldest = std::max<std::int64_t>(0, sequence.num_computed - sequence.eviction.window + 1);
  return std::max(pool.blocks_for(sequence.eviction.sinks), oldest / pool.block_size());
}

}  // namespace quire
