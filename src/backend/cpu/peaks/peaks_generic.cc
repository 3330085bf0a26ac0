// Purpose: peaks of plain C++ on the baseline instruction set: float32 multiply and add on 128-bit vectors.
// There is no integer or bfloat16 dot product to measure.
#include "backend/cpu/peaks/peaks_kernel.h"

namespace quire::cpu::peaks {
namespace {

using Lanes = float __attribute__((vector_size(16)));

void f32_rounds(std::int64_t count) {
  constexpr int kChains = 12;
  Lanes sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = Lanes{} + static_cast<float>(j);
  const Lanes factor = Lanes{} + 0.75f;
  const Lanes term = Lanes{} + 0.25f;
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * factor + term;
  }
  for (int j = 1; j < kChains; ++j) sums[0] += sums[j];
  volatile float sink = sums[0][0] + sums[0][1] + sums[0][2] + sums[0][3];
  (void)sink;
}

std::uint64_t read_all(const void* data, std::size_t num_bytes) {
  const auto* from = static_cast<const std::uint64_t*>(data);
  std::uint64_t sums[4] = {};
  // One word of each cache line: the memory is the limit, not the additions.
  for (std::size_t i = 0; i < num_bytes / 8; i += 32) {
    for (std::size_t j = 0; j < 4; ++j) sums[j] += from[i + 8 * j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

constinit const PeakTable kPeaksGeneric = {
    {"multiply and add, 128 bits", f32_rounds, 12 * 4}, {"", nullptr, 0}, {"", nullptr, 0}, read_all};

}  // namespace quire::cpu::peaks
