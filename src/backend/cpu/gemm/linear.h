// Purpose: Backend::linear and Backend::embed of the `cpu` backend: prepares activations once for all
// targets, cuts the output features into parts for the pool, calls one kernel per tile and panel of rows. In:
// float32 rows, packed weights. Out: float32 rows. Thread: one caller; scratch memory is kept between calls.
// Contract of exactness: parts are tiles of output features and panels of rows, never a piece of a sum. Out
// of scope: arithmetic (the kernels), layouts (packed_weight.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/elementwise/elementwise_kernel.h"
#include "backend/cpu/gemm/amx_linear.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/packed_weight.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire::cpu::gemm {

class Linear {
 public:
  Linear(Isa isa, ComputeMode mode, const CpuTuning& tuning, ThreadPool& pool);

  const KernelSet& kernels() const { return kernels_; }
  void run(const LinearInput& input, std::span<const LinearTarget> targets);
  // How the activations of a target are rounded in fact; finer than the mode where rounding would gain
  // nothing.
  ComputeMode mode_of(const LinearTarget& target) const;
  void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out);

 private:
  // Targets whose weights are not packed for AMX.
  void run_tiled(const LinearInput& input, std::span<const LinearTarget> targets);
  // The forms in which kernels read activations.
  enum Form : int { kInt8, kInt16, kF32, kBf16, kNumForms };
  // Some tiles of one target.
  struct Part {
    std::size_t target;
    std::int64_t first_tile;
    std::int64_t num_tiles;
  };
  Form form_of(const PackedWeight& weight, bool finer_activations) const;
  void prepare(const bool (&wanted)[kNumForms], const LinearInput& input, std::int64_t k);
  // Fills parts_; returns whether they are worth more than one thread.
  bool plan(std::int64_t num_rows, std::span<const LinearTarget> targets);
  void run_part(const Part& part, std::int64_t num_rows, const LinearTarget& target) const;
  // Some rows x some tiles, what one kernel call gets.
  struct Span {
    std::int64_t first_row;
    int num_rows;
    std::int64_t first_tile;
    int num_tiles;
  };
  // sums: [num_tiles, num_rows, 16], without a bias.
  void run_tiles(const CpuWeight& weight, Form form, const Span& span, float* sums) const;
  void finish(const LinearTarget& target, const Span& span, float* sums, float* gates) const;

  const ComputeMode mode_;
  const CpuTuning tuning_;
  ThreadPool& pool_;
  const KernelSet kernels_;
  const ElementwiseKernel& elementwise_;
  Buffer forms_[kNumForms];  // [num_rows, num_blocks] of the form's block
  std::vector<Part> parts_;
  std::optional<AmxLinear> amx_;  // on the tier that has it
};

}  // namespace quire::cpu::gemm
