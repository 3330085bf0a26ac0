// Purpose: the border between the attention driver and its kernels (one per ISA and arithmetic): plain data
// only, because a kernel file may not share an inline function with the rest of the program (docs/flow.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace quire::cpu {

// A context is walked in splits of this many positions, counted from position 0 of the sequence. Each split
// starts with an empty state; the states are merged in ascending order, in the same way whether one thread
// walks all splits or several threads share them. Part of the arithmetic. A multiple of every kernel's group.
inline constexpr std::int64_t kSplit = 512;

// One unit of work: consecutive queries of one sequence against the keys and values of one kv head.
struct AttentionTile {
  const float* q;           // query i, head h at q + i * row_stride + h * head_dim
  float* out;               // the same places
  std::int64_t row_stride;  // num_heads * head_dim
  std::int64_t num_queries;
  std::int64_t num_heads;       // query heads that share the kv head; num_queries * num_heads <= max_rows
  std::int64_t first_position;  // of query 0
  std::int64_t head_dim;
  std::int64_t window;         // 0 = none
  std::int64_t visible_begin;  // positions outside [visible_begin, visible_end) are hidden from all rows
  std::int64_t visible_end;
  float scale;
  float softcap;  // 0 = none

  const std::byte* areas;           // the area of block 0 (see kv_cache.h)
  std::size_t block_stride_bytes;   // from block to block
  std::size_t value_offset_bytes;   // from keys to values
  std::size_t scale_offset_bytes;   // from keys to scales, in a cache of 16-bit integers
  const std::int32_t* block_table;  // of this sequence
  std::int64_t block_size;
  std::int64_t tile_width;
  DType dtype;

  std::byte* scratch;  // scratch_bytes(), 64-byte aligned

  // Which splits to walk: [first_split, end_split). All that the rows see, if `states` is null: then `out` is
  // written. Otherwise the states of these splits are written and nothing else, one after the other:
  // state_floats() each, 64-byte aligned.
  std::int64_t first_split;
  std::int64_t end_split;
  float* states;
  // merge only: the state of the sinks, which come before all splits; null = none.
  const float* sink_state;
};

// The state of `num_rows` rows after one split: per row the weighted values [padded head_dim], then per row
// the maximum and the sum.
static constexpr std::int64_t attention_state_floats(std::int64_t num_rows, std::int64_t head_dim) {
  return num_rows * ((head_dim + 15) / 16 * 16) + (2 * num_rows + 15) / 16 * 16;
}

// Where one row of keys and values goes in a cache of 16-bit integers (kv_cache.h has the layout).
struct Int16Slot {
  std::byte* area;
  std::size_t value_offset_bytes;
  std::size_t scale_offset_bytes;
  std::int64_t block_size;
  std::int64_t tile_width;
  std::int64_t head_dim;
  std::int64_t offset;  // position in the block
};

struct AttentionKernel {
  const char* name;
  std::int64_t max_rows;  // query rows (queries x heads of one kv head) that one unit may have
  void (*run)(const AttentionTile& tile);
  // Writes `out` from the states of all splits [first_split, end_split) that run() wrote.
  void (*merge)(const AttentionTile& tile);
  std::size_t (*scratch_bytes)(std::int64_t head_dim);
  // Null: the cache holds floats. Otherwise it holds 16-bit integers, and this stores a row; [head_dim] each.
  void (*store)(const float* key, const float* value, const Int16Slot& slot);
};

extern const AttentionKernel kAttentionF32Generic;
#if defined(__x86_64__)
extern const AttentionKernel kAttentionF32Avx2;
extern const AttentionKernel kAttentionF32Avx512;
extern const AttentionKernel kAttentionInt16Avx512;
#endif

}  // namespace quire::cpu
