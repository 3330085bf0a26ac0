// Purpose: the AMX tile registers in plain C++, with the checks and the arithmetic of the instructions (Intel
// SDM volume 2, LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS); the same names as amx_tiles.h. What
// the processor answers with a fault aborts here with a message. In: a configuration. Thread: one object, one
// thread. Everything has internal linkage. For tests: some hundred times slower than the instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/gemm/amx_tile_config.h"

namespace quire::cpu::gemm {
namespace {

class Tiles {
 public:
  explicit Tiles(const TileConfig& config) {
    if (config.palette != 1) fault("LDTILECFG", "the palette is not 1");
    if (config.start_row != 0) fault("LDTILECFG", "a load would start in the middle");
    for (const std::uint8_t byte : config.reserved)
      if (byte != 0) fault("LDTILECFG", "a reserved byte is not zero");
    for (int i = 0; i < 16; ++i) {
      if (i >= kNumTiles && (config.num_rows[i] != 0 || config.row_bytes[i] != 0))
        fault("LDTILECFG", "there are only 8 tiles");
      if (config.num_rows[i] > kMaxTileRows) fault("LDTILECFG", "a tile has more than 16 rows");
      if (config.row_bytes[i] > kMaxRowBytes) fault("LDTILECFG", "a row has more than 64 bytes");
      if ((config.num_rows[i] == 0) != (config.row_bytes[i] == 0))
        fault("LDTILECFG", "a tile has rows of no bytes, or bytes in no rows");
    }
    for (int i = 0; i < kNumTiles; ++i) {
      tiles_[i].num_rows = config.num_rows[i];
      tiles_[i].row_bytes = config.row_bytes[i];
    }
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  void zero() {
    std::memset(configured<kTile>("TILEZERO").bytes, 0, sizeof(Tile::bytes));
  }
  template <int kTile>
  void load(const void* from, std::int64_t stride) {
    Tile& tile = configured<kTile>("TILELOADD");
    std::memset(tile.bytes, 0, sizeof(tile.bytes));
    for (int row = 0; row < tile.num_rows; ++row)
      std::memcpy(tile.bytes[row], static_cast<const char*>(from) + row * stride,
                  static_cast<std::size_t>(tile.row_bytes));
  }
  template <int kTile>
  void load_once(const void* from, std::int64_t stride) {
    load<kTile>(from, stride);
  }
  template <int kTile>
  void store(void* to, std::int64_t stride) {
    const Tile& tile = configured<kTile>("TILESTORED");
    for (int row = 0; row < tile.num_rows; ++row)
      std::memcpy(static_cast<char*>(to) + row * stride, tile.bytes[row],
                  static_cast<std::size_t>(tile.row_bytes));
  }
  template <int kA, int kB>
  void dot() {
    static_assert((kA == 4 || kA == 5) && (kB == 6 || kB == 7));
    dot_tiles<2 * (kA - 4) + (kB - 6), kA, kB>();
  }

  // TDPBF16PS kSum, kA, kB. Products of bf16 are exact in float32 unless they underflow, and every result
  // that is too small for a normal float32 becomes zero, so it does not matter that the processor may fuse.
  template <int kSum, int kA, int kB>
  void dot_tiles() {
    static_assert(kSum != kA && kSum != kB && kA != kB, "TDPBF16PS wants three different tiles");
    Tile& sum = configured<kSum>("TDPBF16PS");
    const Tile& a = configured<kA>("TDPBF16PS");
    const Tile& b = configured<kB>("TDPBF16PS");
    if (sum.row_bytes % 4 != 0 || a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0)
      fault("TDPBF16PS", "a row is not made of whole pairs");
    if (sum.num_rows != a.num_rows) fault("TDPBF16PS", "sums and the first operand differ in rows");
    if (sum.row_bytes != b.row_bytes) fault("TDPBF16PS", "sums and the second operand differ in columns");
    if (a.row_bytes / 4 != b.num_rows) fault("TDPBF16PS", "the operands differ in the number of pairs");
    const int columns = b.row_bytes / 4;
    float first[16][16];  // of each pair, [pair][column]
    float second[16][16];
    for (int pair = 0; pair < b.num_rows; ++pair) {
      for (int n = 0; n < 16; ++n) {
        first[pair][n] = bf16_at(b, pair, 2 * n);
        second[pair][n] = bf16_at(b, pair, 2 * n + 1);
      }
    }
    for (int m = 0; m < sum.num_rows; ++m) {
      float chains[2][16] = {};
      for (int pair = 0; pair < b.num_rows; ++pair) {
        const float x = bf16_at(a, m, 2 * pair);
        const float y = bf16_at(a, m, 2 * pair + 1);
        for (int n = 0; n < 16; ++n) chains[0][n] = flush(chains[0][n] + flush(x * first[pair][n]));
        for (int n = 0; n < 16; ++n) chains[1][n] = flush(chains[1][n] + flush(y * second[pair][n]));
      }
      float row[16];
      std::memcpy(row, sum.bytes[m], sizeof(row));
      for (int n = 0; n < columns; ++n) row[n] = flush(flush(row[n]) + flush(chains[0][n] + chains[1][n]));
      std::memcpy(sum.bytes[m], row, sizeof(row));
    }
  }

 private:
  static constexpr int kNumTiles = 8;
  static constexpr int kMaxTileRows = 16;
  static constexpr int kMaxRowBytes = 64;

  struct Tile {
    int num_rows = 0;
    int row_bytes = 0;
    std::uint8_t bytes[kMaxTileRows][kMaxRowBytes] = {};
  };

  [[noreturn]] static void fault(const char* instruction, const char* why) {
    std::fprintf(stderr, "emulated AMX: %s: %s\n", instruction, why);
    std::abort();
  }
  template <int kTile>
  Tile& configured(const char* instruction) {
    static_assert(kTile >= 0 && kTile < kNumTiles);
    if (tiles_[kTile].num_rows == 0) fault(instruction, "the tile is not configured");
    return tiles_[kTile];
  }
  static float flush(float x) { return __builtin_fabsf(x) < 1.17549435e-38f ? x * 0.0f : x; }
  static float bf16_at(const Tile& tile, int row, int index) {
    std::uint16_t half;
    std::memcpy(&half, &tile.bytes[row][2 * index], sizeof(half));
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return flush(value);
  }

  Tile tiles_[kNumTiles];
};

}  // namespace
}  // namespace quire::cpu::gemm
