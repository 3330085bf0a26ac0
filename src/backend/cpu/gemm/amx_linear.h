// Purpose: Backend::linear for weights packed for AMX: rounds and packs the activations (normed, where the
// input has a norm), cuts the output columns into parts for the pool, calls the kernel, adds what surrounds
// the product (bias, SwiGLU gate, residual). In: float32 rows, AmxWeights. Out: float32 rows. Thread: one
// caller; scratch memory is kept between calls. Contract of exactness: parts are pairs of tiles of output
// columns and blocks of rows, never a piece of a sum. Out of scope: arithmetic (amx.h), other weights
// (linear.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/elementwise/elementwise_kernel.h"
#include "backend/cpu/gemm/amx_weight.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire::cpu::gemm {

class AmxLinear {
 public:
  AmxLinear(const AmxTable& table, const ElementwiseKernel& elementwise, const CpuTuning& tuning,
            ThreadPool& pool);

  static bool is_packed_for_amx(const PackedWeight& weight);
  // All targets' weights and gates are packed for AMX.
  void run(const LinearInput& input, std::span<const LinearTarget> targets);
  // Any targets; `otherwise` runs those whose weights are packed otherwise.
  using Otherwise = std::function<void(std::span<const LinearTarget>)>;
  void run_mixed(const LinearInput& input, std::span<const LinearTarget> targets, const Otherwise& otherwise);

 private:
  // Some pairs of one target.
  struct Part {
    std::size_t target;
    std::int64_t first_pair;
    std::int64_t num_pairs;
  };
  void pack_rows(const LinearInput& input, std::int64_t k);
  bool plan(std::int64_t num_rows, std::span<const LinearTarget> targets);
  void run_part(const Part& part, std::int64_t num_rows, const LinearTarget& target) const;
  // rows_begin: of the block of rows
  void run_pairs(const LinearTarget& target, std::int64_t first_pair, std::int64_t num_pairs,
                 std::int64_t rows_begin, int num_rows, int width) const;

  const AmxTable& table_;
  const ElementwiseKernel& elementwise_;
  const CpuTuning tuning_;
  ThreadPool& pool_;
  Buffer panels_;
  std::vector<Part> parts_;
};

}  // namespace quire::cpu::gemm
