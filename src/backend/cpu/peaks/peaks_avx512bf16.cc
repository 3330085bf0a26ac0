// Purpose: peak of the bfloat16 dot product of AVX-512 BF16; see peaks_avx512.cc on the loop.
#include "backend/cpu/peaks/peaks_kernel.h"

namespace quire::cpu::peaks {
namespace {

// Pairs of bfloat16 between 0.03 and 1: sums stay finite (a float32 stops growing at 2^24).
alignas(64) constinit const std::uint32_t kPairs[16] = {
    0x3f003e80, 0x3f403e00, 0x3f203ec0, 0x3f603d80, 0x3f103ea0, 0x3f503e40, 0x3f303ee0, 0x3f703d00,
    0x3e803f00, 0x3e003f40, 0x3ec03f20, 0x3d803f60, 0x3ea03f10, 0x3e403f50, 0x3ee03f30, 0x3d003f70};

void bf16_rounds(std::int64_t count) {
  __asm__ volatile(
      "vmovdqa64 (%1), %%zmm12\n\t"
      "vmovdqa64 (%1), %%zmm13\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n\t"
      ".endr\n\t"
      ".p2align 6\n"
      "1:\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
      "vdpbf16ps %%zmm12, %%zmm13, %%zmm\\r\n\t"
      ".endr\n\t"
      "dec %0\n\t"
      "jnz 1b\n\t"
      "vzeroupper"
      : "+r"(count)
      : "r"(kPairs)
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13");
}

}  // namespace

constinit const PeakTable kPeaksAvx512Bf16 = {
    {"", nullptr, 0}, {"vdpbf16ps zmm", bf16_rounds, 12 * 32}, {"", nullptr, 0}, nullptr};

}  // namespace quire::cpu::peaks
