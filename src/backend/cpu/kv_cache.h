// Purpose: the key-value memory of the `cpu` backend, laid out as its attention kernels read it.
// Layout: one area per (layer, block, kv head), all of equal size, in that order; in an area the keys of the
// block, then its values. Keys stand in tiles of tile_width positions, transposed: [block_size / tile_width,
// head_dim, tile_width], so that 16 positions are the 16 lanes of a vector and a score needs no sum across
// lanes. Values stand as [block_size, head_dim]. tile_width = gcd(block_size, 16): a run of 16 positions that
// starts at a multiple of 16 consists of whole tiles for any block size, and is read in place if it is 16.
// With a kernel that computes in 16-bit integers (attention_int16_avx512.cc says how they are scaled), a
// cache of float16 is held as such integers instead, in pairs: keys [block_size / tile_width, ceil(head_dim /
// 2), tile_width, 2]; values [block_size / 2, padded, 2], or [block_size, padded] where tile_width is odd,
// with padded = head_dim rounded up to 16; then a float32 scale per key and a float32 exponent per position's
// values. That is 8 bytes more per position and head. Thread: the engine thread calls; store_kv and
// copy_block spread over the pool. Out of scope: who owns which block (engine/kv_pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_kernel.h"
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
  // kernel: the one that will read it; null means one that reads floats.
  static Result<std::unique_ptr<CpuKvCache>> make(const KvSpec& spec,
                                                  const AttentionKernel* kernel = nullptr);
  // Bytes of one block over all layers.
  static std::size_t block_bytes(const KvSpec& spec, const AttentionKernel* kernel = nullptr);
  // The cache that a backend of this kind made; CHECKs that it is one.
  static CpuKvCache& cast(KvCache& cache);
  static const CpuKvCache& cast(const KvCache& cache);

  const KvSpec& spec() const override { return spec_; }
  std::int64_t tile_width() const { return tile_width_; }
  bool holds_integers() const { return store_ != nullptr; }
  // Bytes from one block's area to the next block's, of the same layer and kv head.
  std::size_t block_stride_bytes() const { return static_cast<std::size_t>(spec_.num_kv_heads) * area_.size; }
  // Bytes from the keys to the values of one area.
  std::size_t value_offset_bytes() const { return area_.value_offset; }
  // Bytes from the keys to the scales of one area of integers.
  std::size_t scale_offset_bytes() const { return area_.scale_offset; }
  std::size_t num_bytes() const { return memory_.size(); }
  // The keys of one area; its values lie value_offset_bytes() further.
  std::byte* area(std::int64_t layer, std::int64_t block, std::int64_t kv_head);
  const std::byte* area(std::int64_t layer, std::int64_t block, std::int64_t kv_head) const;

 private:
  CpuKvCache(const KvSpec& spec, const AttentionKernel* kernel);

  // Of one area, in bytes.
  struct Area {
    std::size_t value_offset = 0;
    std::size_t scale_offset = 0;
    std::size_t size = 0;
  };
  static Area area_of(const KvSpec& spec, const AttentionKernel* kernel);

  KvSpec spec_;
  std::int64_t tile_width_;
  void (*store_)(const float* key, const float* value, const Int16Slot& slot);
  Area area_;
  Buffer memory_;

  friend void store_kv(Isa isa, ThreadPool& pool, CpuKvCache& cache, std::int64_t layer, const float* k,
                       const float* v, std::int64_t num_rows, const std::int32_t* slots);
};

// As Backend::store_kv. Rounds to nearest even; float16 saturates at +-65504, so no infinity is ever stored
// for a finite value.
void store_kv(Isa isa, ThreadPool& pool, CpuKvCache& cache, std::int64_t layer, const float* k,
              const float* v, std::int64_t num_rows, const std::int32_t* slots);
void copy_block(ThreadPool& pool, CpuKvCache& cache, std::int32_t from, std::int32_t to);

}  // namespace quire::cpu
