// Purpose: the weights of the `cpu` backend in the tiles its kernels read (kernel_types.h describes them).
// In: canonical rows. Out: one packed copy that serves any number of rows and, but for AmxWeight
// (amx_weight.h), every compute mode and every tier. Thread: packing spreads over a pool; immutable
// afterwards. Out of scope: arithmetic (the kernels).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backend/cpu/gemm/kernel_types.h"
#include "backend/packed_weight.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace quire::cpu::gemm {

// Part of the key of engine files: to be raised whenever pack() puts other bytes, or bytes elsewhere, than
// before.
constexpr int kPackedLayoutVersion = 1;

class CpuWeight : public PackedWeight {
 public:
  static const CpuWeight& cast(const PackedWeight& weight);

  std::int64_t n() const override { return n_; }
  std::int64_t k() const override { return k_; }
  std::int64_t num_tiles() const { return (n_ + kTileCols - 1) / kTileCols; }
  std::int64_t num_blocks() const { return (k_ + kBlockK - 1) / kBlockK; }
  // Bytes that one tile's kernel call reads, scales included.
  virtual std::size_t tile_bytes() const = 0;
  // One row (output feature) as float32, as the checkpoint's format defines it.  out: [k]
  virtual void dequantize_row(std::int64_t row, float* out) const = 0;

 protected:
  CpuWeight(std::int64_t n, std::int64_t k) : n_(n), k_(k) {}

 private:
  std::int64_t n_;
  std::int64_t k_;
};

class GroupedWeight final : public CpuWeight {
 public:
  explicit GroupedWeight(const GroupedRows& rows);
  Status fill(const GroupedRows& rows, ThreadPool& pool);
  static constexpr std::string_view kKind = "grouped";
  static Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image,
                                                       std::shared_ptr<const void> owner);
  PackedImage image() const override;

  std::size_t num_bytes() const override;
  bool is_quantized() const override { return true; }
  std::string layout_name() const override;
  std::size_t tile_bytes() const override;
  void dequantize_row(std::int64_t row, float* out) const override;

  GroupedTile tile(std::int64_t index) const;
  int bits_index() const { return bits_ == 8 ? 3 : bits_ - 4; }  // into the kernel tables
  int segment_index() const { return segment_ == kBlockK ? 0 : 1; }

 private:
  GroupedWeight(std::int64_t n, std::int64_t k, int bits, int group_size, int zero, bool has_mins);
  std::size_t scale_bytes() const {
    return scale_kind_ == kScaleCodes ? 1 : scale_kind_ == kScaleF16 ? 2 : 4;
  }
  float scale_at(const Buffer& values, const Buffer& supers, std::int64_t tile, std::int64_t group,
                 int column, bool is_min) const;

  int bits_;        // 4, 5, 6 or 8
  int group_size_;  // a multiple of 16
  int segment_;     // 32 if it divides group_size, else 16
  int zero_;
  bool has_mins_;
  ScaleKind scale_kind_ = kScaleF32;
  std::int64_t num_groups_;  // per tile, padding included
  int groups_per_super_ = 0;
  std::int64_t num_supers_ = 0;  // per tile
  Buffer data_;                  // [num_tiles, num_blocks, 64 * bits]
  Buffer scales_;                // [num_tiles, num_groups, 16]
  Buffer mins_;                  // the same, or empty
  Buffer super_scales_;          // [num_tiles, num_supers, 16]
  Buffer super_mins_;
};

class DenseWeight final : public CpuWeight {
 public:
  // origin: what the values were before, for layout_name(), or "".
  DenseWeight(const FloatRows& rows, std::string origin, ThreadPool& pool);
  static constexpr std::string_view kKind = "dense";
  static Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image,
                                                       std::shared_ptr<const void> owner);
  PackedImage image() const override;

  std::size_t num_bytes() const override { return data_.size(); }
  bool is_quantized() const override { return false; }
  std::string layout_name() const override;
  std::size_t tile_bytes() const override;
  void dequantize_row(std::int64_t row, float* out) const override;

  DType storage() const { return storage_; }
  const std::byte* tile(std::int64_t index) const {
    return data_.data() + static_cast<std::size_t>(index) * tile_bytes();
  }

 private:
  DenseWeight(std::int64_t n, std::int64_t k, DType storage, std::string origin, Buffer data);

  DType storage_;
  std::string origin_;
  Buffer data_;  // [num_tiles, ...] as kernel_types.h says
};

// Which kernels read a weight.
enum class Packing {
  kTiles,  // those of every tier and mode, as kernel_types.h says
  kAmx,    // those of amx.h where they can (bf16 and grouped integers), else as above; for bf16 mode only
};

// Any GroupedRows can be packed. Group sizes that are not multiples of 16 have no integer kernel: they become
// float32, and layout_name() says so.
Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows, ThreadPool& pool,
                                           Packing packing = Packing::kTiles);
Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows, ThreadPool& pool,
                                           Packing packing = Packing::kTiles);

// The weight of an image (PackedWeight::image()), of any class of this backend. A new class: its kKind, its
// image() and its restore(), and one line in the table of restore.cc.
Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image, std::shared_ptr<const void> owner);

}  // namespace quire::cpu::gemm
