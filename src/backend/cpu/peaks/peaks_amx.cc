// Purpose: peaks of AMX: four accumulator tiles hide the latency of a tile product (52 cycles, one begun
// every 16: Intel's optimization manual, chapter on AMX). Instructions are assembly throughout, so this file
// needs no compiler flag. The caller has asked the kernel for the tile state (peaks.cc).
#include "backend/cpu/peaks/peaks_kernel.h"

namespace quire::cpu::peaks {
namespace {

// Layout of LDTILECFG's operand: palette, start row, bytes per row of each tile, rows of each tile.
struct alignas(64) TileConfig {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);
constinit const TileConfig kConfig = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// 16 rows of 64 bytes. As int8 and as bfloat16 (0x3f00 = 0.5) small enough that sums stay finite.
struct alignas(64) Tile {
  std::uint16_t values[512];
};
constexpr Tile make_tile() {
  Tile tile{};
  for (std::uint16_t& value : tile.values) value = 0x3f00;
  return tile;
}
constinit const Tile kTile = make_tile();

#define QUIRE_TILE_LOOP(instruction) \
  "ldtilecfg (%1)\n\t"               \
  ".irp r,0,1,2,3\n\t"               \
  "tilezero %%tmm\\r\n\t"            \
  ".endr\n\t"                        \
  ".irp r,4,5,6,7\n\t"               \
  "tileloadd (%2,%3), %%tmm\\r\n\t"  \
  ".endr\n\t"                        \
  ".p2align 6\n"                     \
  "1:\n\t" instruction               \
  " %%tmm6, %%tmm4, %%tmm0\n\t"      \
  "" instruction                     \
  " %%tmm7, %%tmm4, %%tmm1\n\t"      \
  "" instruction                     \
  " %%tmm6, %%tmm5, %%tmm2\n\t"      \
  "" instruction                     \
  " %%tmm7, %%tmm5, %%tmm3\n\t"      \
  "dec %0\n\t"                       \
  "jnz 1b\n\t"                       \
  "tilerelease"

void int8_rounds(std::int64_t count) {
  __asm__ volatile(QUIRE_TILE_LOOP("tdpbssd")
                   : "+r"(count)
                   : "r"(&kConfig), "r"(&kTile), "r"(std::int64_t{64})
                   : "cc", "memory");
}

void bf16_rounds(std::int64_t count) {
  __asm__ volatile(QUIRE_TILE_LOOP("tdpbf16ps")
                   : "+r"(count)
                   : "r"(&kConfig), "r"(&kTile), "r"(std::int64_t{64})
                   : "cc", "memory");
}

}  // namespace

constinit const PeakTable kPeaksAmx = {{"", nullptr, 0},
                                       {"tdpbf16ps", bf16_rounds, 4.0 * 16 * 16 * 32},
                                       {"tdpbssd", int8_rounds, 4.0 * 16 * 16 * 64},
                                       nullptr};

}  // namespace quire::cpu::peaks
