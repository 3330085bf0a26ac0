// Purpose: the border between the attention driver and its kernels (one per ISA): plain data only, because a
// kernel file may not share an inline function with the rest of the program (docs/flow.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace quire::cpu {

// Positions per step of the running softmax, counted from position 0 of the sequence: part of the arithmetic,
// the same in every kernel and for every shape.
inline constexpr std::int64_t kGroup = 32;
// Query rows (queries x heads of one kv head) that one unit may have: enough to read a group's keys and
// values from the nearest cache many times, few enough that queries and totals stay there too.
inline constexpr std::int64_t kMaxTileRows = 64;

// One unit of work: consecutive queries of one sequence against the keys and values of one kv head.
struct AttentionTile {
  const float* q;           // query i, head h at q + i * row_stride + h * head_dim
  float* out;               // the same places
  std::int64_t row_stride;  // num_heads * head_dim
  std::int64_t num_queries;
  std::int64_t num_heads;       // query heads that share the kv head; num_queries * num_heads <= kMaxTileRows
  std::int64_t first_position;  // of query 0
  std::int64_t head_dim;
  std::int64_t window;  // 0 = none
  float scale;
  float softcap;  // 0 = none

  const std::byte* areas;           // the area of block 0 (see kv_cache.h)
  std::size_t block_stride_bytes;   // from block to block
  std::size_t value_offset_bytes;   // from keys to values
  const std::int32_t* block_table;  // of this sequence
  std::int64_t block_size;
  std::int64_t tile_width;
  DType dtype;

  float* scratch;  // attention_scratch_floats(head_dim), 64-byte aligned
};

// Scratch that every kernel is content with: queries and totals of kMaxTileRows rows and of one row block
// more, a group's keys and values and one tile, sums and scores.
constexpr std::int64_t attention_scratch_floats(std::int64_t head_dim) {
  const std::int64_t padded_dim = (head_dim + 15) / 16 * 16;
  return (2 * kMaxTileRows + 8 + 2 * kGroup + 16) * padded_dim + kMaxTileRows * 16 + 8 * kGroup;
}

struct AttentionKernel {
  void (*run)(const AttentionTile& tile);
};

extern const AttentionKernel kAttentionGeneric;
#if defined(__x86_64__)
extern const AttentionKernel kAttentionAvx2;
extern const AttentionKernel kAttentionAvx512;
#endif

}  // namespace quire::cpu
