// Purpose: what one step computes, as flat arrays. Made by engine/batch_builder, read by model/ and backend/.
// Thread: engine thread. Row t is one token; rows of one sequence are contiguous and in order of position.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

struct Batch {
  std::vector<std::int32_t> token_ids;  // [num_tokens]
  std::vector<std::int32_t> positions;  // [num_tokens]
  std::vector<std::int32_t> slots;  // [num_tokens], block * block_size + offset of each token's key and value
  std::vector<std::int32_t> query_starts;  // [num_seqs + 1]
  std::vector<std::int32_t> context_lens;  // [num_seqs], tokens in the cache after this step
  std::vector<std::int32_t> block_tables;  // [num_seqs, block_table_stride]
  std::int64_t block_table_stride = 0;
  std::vector<std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // Streaming eviction, see AttentionShape; all three are empty if no sequence of the batch has it.
  std::vector<std::int32_t> kv_sinks;        // [num_seqs]
  std::vector<std::int32_t> kv_windows;      // [num_seqs], 0 = the sequence sees all
  std::vector<std::int32_t> sink_positions;  // [num_tokens], of the query against the sinks

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(token_ids.size()); }
  std::int64_t num_seqs() const { return static_cast<std::int64_t>(context_lens.size()); }
};

// logits[i] belongs to batch.logit_rows[i]. Owned by the model; valid until its next forward().
struct Logits {
  const float* data = nullptr;  // [num_rows, vocab_size]
  std::int64_t num_rows = 0;
  std::int64_t vocab_size = 0;
  const float* row(std::int64_t i) const { return data + i * vocab_size; }
};

}  // namespace quire
