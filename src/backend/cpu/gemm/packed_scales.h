// Purpose: scales and minimums of grouped rows in the order of tiles, in the smallest form that is exact:
// codes times super scales, float16, float32. In: canonical rows. Out: PackedScales. Thread: spreads over a
// pool.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/kernel_types.h"
#include "backend/packed_weight.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire::cpu::gemm {

struct PackedScales {
  ScaleKind kind = kScaleF32;
  int groups_per_super = 0;
  std::int64_t num_supers = 0;  // per tile
  Buffer scales;                // [num_tiles, num_groups, tile_cols]
  Buffer mins;                  // the same, or empty
  Buffer super_scales;          // [num_tiles, num_supers, tile_cols], or empty
  Buffer super_mins;
};

// num_groups: per tile, at least k / group_size; the rest is zero, as are columns beyond n.
PackedScales pack_scales(const GroupedRows& rows, std::int64_t tile_cols, std::int64_t num_groups,
                         ThreadPool& pool);

}  // namespace quire::cpu::gemm
