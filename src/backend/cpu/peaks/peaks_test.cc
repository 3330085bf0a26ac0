// The peaks are what other figures are divided by: each unit of this machine runs, and its rate is possible.
#include "backend/cpu/peaks/peaks.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/peaks/peaks_kernel.h"
#include "base/buffer.h"

namespace quire::cpu::peaks {
namespace {

TEST(Peaks, EveryUnitOfThisMachineRunsAtAPossibleRate) {
  const std::vector<Unit> all = units();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().isa, "generic");
  for (const Unit& unit : all) {
    SCOPED_TRACE(unit.isa + " " + unit.instruction);
    EXPECT_FALSE(unit.instruction.empty());
    const double rate = measure_macs(unit, 1, 0.001);
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e13);  // a core of 4 GHz, AMX int8: 4.1e12
  }
}

TEST(Peaks, ReadBandwidthIsThatOfMemory) {
  const double rate = measure_read_bandwidth(2, 0.001);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e12);
}

// Would a loop skip part of the memory, the bandwidth would be too high.
TEST(Peaks, ReadingTouchesEveryCacheLine) {
  const CpuFeatures features = detect_cpu_features();
  std::vector<const PeakTable*> tables = {&kPeaksGeneric};
#if defined(__x86_64__)
  if (isa_refusal(Isa::kAvx2, features).empty()) tables.push_back(&kPeaksAvx2);
  if (isa_refusal(Isa::kAvx512, features).empty()) tables.push_back(&kPeaksAvx512);
#endif
  Buffer memory(4096);
  for (const PeakTable* table : tables) {
    for (std::size_t line = 0; line < memory.size() / 64; ++line) {
      const std::uint64_t before = table->read(memory.data(), memory.size());
      memory.as<std::uint64_t>()[8 * line] ^= 1 + line;
      EXPECT_NE(table->read(memory.data(), memory.size()), before)
          << table->f32.instruction << " line " << line;
    }
  }
}

TEST(Peaks, AModeIsMeasuredAgainstTheUnitItsKernelsUse) {
  EXPECT_EQ(unit_for(Isa::kGeneric, ComputeMode::kInt8, false).operand, Operand::kF32);
  const CpuFeatures features = detect_cpu_features();
  if (isa_refusal(Isa::kAvx2, features).empty()) {
    EXPECT_EQ(unit_for(Isa::kAvx2, ComputeMode::kF32, false).isa, "avx2");
    EXPECT_EQ(unit_for(Isa::kAvx2, ComputeMode::kBf16, false).operand, Operand::kF32);
    EXPECT_EQ(unit_for(Isa::kAvx2, ComputeMode::kInt8, false).operand, Operand::kInt8);
  }
  if (isa_refusal(Isa::kAvx512Bf16, features).empty()) {
    EXPECT_EQ(unit_for(Isa::kAvx512Bf16, ComputeMode::kF32, false).isa, "avx512");
    EXPECT_EQ(unit_for(Isa::kAvx512Bf16, ComputeMode::kBf16, false).instruction, "vdpbf16ps zmm");
    EXPECT_EQ(unit_for(Isa::kAvx512Bf16, ComputeMode::kInt8, false).instruction, "vpdpbusd zmm");
    EXPECT_EQ(unit_for(Isa::kAvx512, ComputeMode::kBf16, false).operand, Operand::kF32);
  }
  EXPECT_EQ(unit_for(Isa::kAvx512Bf16, ComputeMode::kInt8, true).isa == "amx", amx_refusal().empty());
}

}  // namespace
}  // namespace quire::cpu::peaks
