// Purpose: the key-value memory of the `cpu` backend, laid out as its attention kernels read it.
// Layout: one area per (layer, block, kv head), all of equal size, in that order; in an area the keys of the
// block, then its values. Keys stand in tiles of tile_width positions, transposed: [block_size / tile_width,
// head_dim, tile_width], so that 16 positions are the 16 lanes of a vector and a score needs no sum across
// lanes. Values stand as [block_size, head_dim]. tile_width = gcd(block_size, 16): a run of 16 positions that
// starts at a multiple of 16 consists of whole tiles for any block size, and is read in place if it is 16.
// Thread: the engine thread calls; store_kv and copy_block spread over the pool. Out of scope: who owns which
// block (engine/kv_pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace quire::cpu {

// Positions whose scores are computed together; the lanes of the widest vector.
inline constexpr std::int64_t kKvTile = 16;

class CpuKvCache final : public KvCache {
 public:
  // Refuses sizes that are not positive, that overflow, or for which there is no memory (naming the bytes).
  static Result<std::unique_ptr<CpuKvCache>> make(const KvSpec& spec);
  // The cache that a backend of this kind made; CHECKs that it is one.
  static CpuKvCache& cast(KvCache& cache);
  static const CpuKvCache& cast(const KvCache& cache);

  const KvSpec& spec() const override { return spec_; }
  std::int64_t tile_width() const { return tile_width_; }
  // Bytes from one block's area to the next block's, of the same layer and kv head.
  std::size_t block_stride_bytes() const {
    return static_cast<std::size_t>(spec_.num_kv_heads) * area_bytes_;
  }
  // Bytes from the keys to the values of one area.
  std::size_t value_offset_bytes() const { return area_bytes_ / 2; }
  // The keys of one area; its values lie value_offset_bytes() further.
  std::byte* area(std::int64_t layer, std::int64_t block, std::int64_t kv_head);
  const std::byte* area(std::int64_t layer, std::int64_t block, std::int64_t kv_head) const;

 private:
  CpuKvCache(const KvSpec& spec, std::size_t num_bytes);

  KvSpec spec_;
  std::int64_t tile_width_;
  std::size_t area_bytes_;
  Buffer memory_;
};

// As Backend::store_kv. Rounds to nearest even; float16 saturates at +-65504, so no infinity is ever stored
// for a finite value.
void store_kv(Isa isa, ThreadPool& pool, CpuKvCache& cache, std::int64_t layer, const float* k,
              const float* v, std::int64_t num_rows, const std::int32_t* slots);
void copy_block(ThreadPool& pool, CpuKvCache& cache, std::int32_t from, std::int32_t to);

}  // namespace quire::cpu
