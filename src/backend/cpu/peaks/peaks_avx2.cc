// Purpose: peaks of AVX2 with FMA. The loops are assembly so that no compiler moves an accumulator to memory:
// twelve independent chains hide the latency of four to six cycles at two instructions a cycle. A tier
// without VNNI multiplies bytes in three instructions: vpmaddubsw, vpmaddwd, vpaddd.
#include <immintrin.h>

#include "backend/cpu/peaks/peaks_kernel.h"

namespace quire::cpu::peaks {
namespace {

alignas(64) constinit const float kFactors[8] = {0.5f, 0.25f, 0.75f, 0.125f, 0.625f, 0.375f, 0.875f, 0.0625f};

void f32_rounds(std::int64_t count) {
  __asm__ volatile(
      "vmovaps (%1), %%ymm12\n\t"
      "vmovaps (%1), %%ymm13\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vxorps %%ymm\\r, %%ymm\\r, %%ymm\\r\n\t"
      ".endr\n\t"
      ".p2align 5\n"
      "1:\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm\\r\n\t"
      ".endr\n\t"
      "dec %0\n\t"
      "jnz 1b\n\t"
      "vzeroupper"
      : "+r"(count)
      : "r"(kFactors)
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13");
}

alignas(64) constinit const std::int16_t kBytes[32] = {
    0x0102, 0x0304, 0x0506, 0x0708, 0x090a, 0x0b0c, 0x0d0e, 0x0f01, 0x0203, 0x0405, 0x0607,
    0x0809, 0x0a0b, 0x0c0d, 0x0e0f, 0x0102, 1,      1,      1,      1,      1,      1,
    1,      1,      1,      1,      1,      1,      1,      1,      1,      1};

void int8_rounds(std::int64_t count) {
  __asm__ volatile(
      "vmovdqa (%1), %%ymm12\n\t"
      "vmovdqa (%1), %%ymm13\n\t"
      "vmovdqa 32(%1), %%ymm14\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vpxor %%ymm\\r, %%ymm\\r, %%ymm\\r\n\t"
      ".endr\n\t"
      ".p2align 5\n"
      "1:\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm15\n\t"
      "vpmaddwd %%ymm14, %%ymm15, %%ymm15\n\t"
      "vpaddd %%ymm15, %%ymm\\r, %%ymm\\r\n\t"
      ".endr\n\t"
      "dec %0\n\t"
      "jnz 1b\n\t"
      "vzeroupper"
      : "+r"(count)
      : "r"(kBytes)
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

std::uint64_t read_all(const void* data, std::size_t num_bytes) {
  const auto* from = static_cast<const __m256i*>(data);
  __m256i sums[4] = {};
  for (std::size_t i = 0; i < num_bytes / 32; i += 4) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(from + i + j));
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), all);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

}  // namespace

constinit const PeakTable kPeaksAvx2 = {{"vfmadd231ps ymm", f32_rounds, 12 * 8},
                                        {"", nullptr, 0},
                                        {"vpmaddubsw, vpmaddwd, vpaddd ymm", int8_rounds, 12 * 32},
                                        read_all};

}  // namespace quire::cpu::peaks
