// Purpose: the loops that measure a peak, one table per instruction set. Thread: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu::peaks {

// Runs `count` rounds of independent multiply-adds on registers alone.
struct MacKernel {
  const char* instruction;  // "" = this table has none
  void (*run)(std::int64_t count) = nullptr;
  double macs_per_round = 0;
};

struct PeakTable {
  MacKernel f32;
  MacKernel bf16;
  MacKernel int8;
  // Reads num_bytes (a multiple of 4096) from a 64-byte aligned address; returns something that depends on
  // all of them.
  std::uint64_t (*read)(const void* data, std::size_t num_bytes);
};

extern const PeakTable kPeaksGeneric;
#if defined(__x86_64__)
extern const PeakTable kPeaksAvx2;
extern const PeakTable kPeaksAvx512;
extern const PeakTable kPeaksAvx512Bf16;
extern const PeakTable kPeaksAmx;
#endif

}  // namespace quire::cpu::peaks
