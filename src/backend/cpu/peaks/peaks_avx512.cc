// Purpose: peaks of AVX-512 with VNNI. The loops are assembly so that no compiler moves an accumulator to
// memory: twelve independent chains hide the latency of four to six cycles at two instructions a cycle.
#include <immintrin.h>

#include "backend/cpu/peaks/peaks_kernel.h"

namespace quire::cpu::peaks {
namespace {

alignas(64) constinit const
    float kFactors[16] = {0.5f,    0.25f,   0.75f,   0.125f,  0.625f,  0.375f,  0.875f,  0.0625f,
                          0.5625f, 0.3125f, 0.8125f, 0.1875f, 0.6875f, 0.4375f, 0.9375f, 0.03125f};
// Any small bytes do: sums of int32 wrap.
alignas(64) constinit const std::int32_t kBytes[16] = {
    0x01020304, 0x05060708, 0x090a0b0c, 0x0d0e0f01, 0x02030405, 0x06070809, 0x0a0b0c0d, 0x0e0f0102,
    0x03040506, 0x0708090a, 0x0b0c0d0e, 0x0f010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f, 0x01020304};

#define QUIRE_PEAK_LOOP(instruction)                 \
  "vmovdqa64 (%1), %%zmm12\n\t"                      \
  "vmovdqa64 (%1), %%zmm13\n\t"                      \
  ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"             \
  "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n\t"          \
  ".endr\n\t"                                        \
  ".p2align 6\n"                                     \
  "1:\n\t"                                           \
  ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t" instruction \
  " %%zmm12, %%zmm13, %%zmm\\r\n\t"                  \
  ".endr\n\t"                                        \
  "dec %0\n\t"                                       \
  "jnz 1b\n\t"                                       \
  "vzeroupper"
#define QUIRE_PEAK_CLOBBERS                                                                                \
  "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13"

void f32_rounds(std::int64_t count) {
  __asm__ volatile(QUIRE_PEAK_LOOP("vfmadd231ps") : "+r"(count) : "r"(kFactors) : QUIRE_PEAK_CLOBBERS);
}

void int8_rounds(std::int64_t count) {
  __asm__ volatile(QUIRE_PEAK_LOOP("vpdpbusd") : "+r"(count) : "r"(kBytes) : QUIRE_PEAK_CLOBBERS);
}

std::uint64_t read_all(const void* data, std::size_t num_bytes) {
  const auto* from = static_cast<const char*>(data);
  __m512i sums[4] = {};
  for (std::size_t i = 0; i < num_bytes; i += 256) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(from + i + 64 * j));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, all);
  std::uint64_t sum = 0;
  for (const std::uint64_t word : words) sum ^= word;
  return sum;
}

}  // namespace

constinit const PeakTable kPeaksAvx512 = {{"vfmadd231ps zmm", f32_rounds, 12 * 16},
                                          {"", nullptr, 0},
                                          {"vpdpbusd zmm", int8_rounds, 12 * 64},
                                          read_all};

}  // namespace quire::cpu::peaks
