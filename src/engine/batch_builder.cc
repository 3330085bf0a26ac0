#include "engine/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

const Batch& BatchBuilder::build(const StepPlan& plan) {
  batch_.token_ids.clear();
  batch_.positions.clear();
  batch_.slots.clear();
  batch_.query_starts.assign(1, 0);
  batch_.context_lens.clear();
  batch_.logit_rows.clear();
  batch_.kv_sinks.clear();
  batch_.kv_windows.clear();
  batch_.sink_positions.clear();

  std::int64_t stride = 0;
  bool evicts = false;
  for (const PlannedSequence& planned : plan.sequences) {
    evicts = evicts || planned.sequence->eviction.evicts();
    stride = std::max(stride, (planned.first + planned.count + block_size_ - 1) / block_size_);
  }
  batch_.block_table_stride = stride;
  batch_.block_tables.assign(static_cast<std::size_t>(stride) * plan.sequences.size(), 0);

  auto* table = batch_.block_tables.data();
  for (const PlannedSequence& planned : plan.sequences) {
    const Sequence& sequence = *planned.sequence;
    const std::int64_t end = planned.first + planned.count;
    const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
    QUIRE_CHECK_LE(num_blocks, static_cast<std::int64_t>(sequence.blocks.size()));
    const auto row_of_first = static_cast<std::int32_t>(batch_.num_tokens() - planned.first);
    for (std::int64_t position = planned.first; position < end; ++position) {
      const auto block = sequence.blocks[static_cast<std::size_t>(position / block_size_)];
      batch_.token_ids.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
      batch_.positions.push_back(static_cast<std::int32_t>(position));
      batch_.slots.push_back(static_cast<std::int32_t>(block * block_size_ + position % block_size_));
    }
    for (std::int64_t i = 0; i < planned.num_scored; ++i) {
      batch_.logit_rows.push_back(row_of_first + static_cast<std::int32_t>(planned.first_scored + i));
    }
    if (planned.samples) batch_.logit_rows.push_back(row_of_first + static_cast<std::int32_t>(end - 1));
    batch_.query_starts.push_back(static_cast<std::int32_t>(batch_.num_tokens()));
    batch_.context_lens.push_back(static_cast<std::int32_t>(end));
    std::copy_n(sequence.blocks.begin(), num_blocks, table);
    table += stride;
    if (evicts) add_eviction(sequence.eviction, planned.first, end);
  }
  return batch_;
}

void BatchBuilder::add_eviction(const KvEviction& eviction, std::int64_t first, std::int64_t end) {
  const std::int64_t window = eviction.evicts() ? eviction.window : 0;
  batch_.kv_sinks.push_back(static_cast<std::int32_t>(eviction.evicts() ? eviction.sinks : 0));
  batch_.kv_windows.push_back(static_cast<std::int32_t>(window));
  // Within the cache the sinks stand right before the window, so no query is further on than this.
  const std::int64_t last = window > 0 ? eviction.sinks + window - 1 : end;
  for (std::int64_t position = first; position < end; ++position) {
    batch_.sink_positions.push_back(static_cast<std::int32_t>(std::min(position, last)));
  }
}

}  // namespace quire
