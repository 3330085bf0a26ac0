// Purpose: weights of linear layers packed for the AMX kernels (amx.h describes the layouts). In: canonical
// rows. Out: one packed copy for any number of rows, in compute mode bf16 only; values and scales are exact,
// the kernels round. Thread: packing spreads over a pool; immutable afterwards. Out of scope: arithmetic (the
// kernels), which weights are packed so (pack.cc).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/cpu/gemm/amx.h"
#include "backend/cpu/gemm/packed_weight.h"

namespace quire::cpu::gemm {

class AmxWeight final : public CpuWeight {
 public:
  // Groups of a multiple of 16; either minimums, or q - constant_zero fits a signed byte.
  static Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows, ThreadPool& pool);
  // storage: bf16
  static std::unique_ptr<PackedWeight> pack(const FloatRows& rows, ThreadPool& pool);
  static constexpr std::string_view kKind = "amx";
  static Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image,
                                                       std::shared_ptr<const void> owner);
  PackedImage image() const override;

  std::size_t num_bytes() const override;
  bool is_quantized() const override { return layout_ != kAmxBf16; }
  std::string layout_name() const override;
  std::size_t tile_bytes() const override;
  void dequantize_row(std::int64_t row, float* out) const override;

  std::int64_t num_pairs() const { return (n() + kAmxPairCols - 1) / kAmxPairCols; }
  AmxWeights view() const;

 private:
  struct Shape {
    std::int64_t n;
    std::int64_t k;
    int layout;
    int group_size;  // 0: no groups
    int zero;
    bool has_mins;
  };
  explicit AmxWeight(const Shape& shape);
  void fill_values(const GroupedRows& rows, ThreadPool& pool, std::uint32_t& seen);
  void fill_scales(const GroupedRows& rows, ThreadPool& pool);
  int bits() const;
  std::int64_t block_bytes() const;  // of 16 columns x 32 features
  std::size_t scale_bytes() const {
    return scale_kind_ == kScaleCodes ? 1 : scale_kind_ == kScaleF16 ? 2 : 4;
  }
  float scale_at(const Buffer& values, const Buffer& supers, std::int64_t row, std::int64_t group,
                 bool is_min) const;

  int layout_;
  int group_size_;
  int zero_;
  bool has_mins_;
  ScaleKind scale_kind_ = kScaleF32;
  std::int64_t num_groups_ = 0;  // per pair, padding included
  int groups_per_super_ = 0;
  std::int64_t num_supers_ = 0;  // per pair
  Buffer data_;                  // as amx.h says
  Buffer scales_;
  Buffer mins_;
  Buffer super_scales_;
  Buffer super_mins_;
};

}  // namespace quire::cpu::gemm
