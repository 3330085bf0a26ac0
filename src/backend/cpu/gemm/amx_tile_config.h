// Purpose: the configuration of the eight AMX tile registers for one kernel call, as LDTILECFG reads it
// (Intel SDM volume 1, 18.2). Plain data; everything has internal linkage, because kernel files include it.
#pragma once

#include <cstdint>

namespace quire::cpu::gemm {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t num_rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0..3: sums, [16 output columns][width rows of the call] float32; tile 2a + b belongs to weights a and
// activations b. Tiles 4, 5: weights, [16 output columns][32 features] bf16. Tiles 6, 7: activations,
// [16 pairs of features][width][2] bf16.
constexpr TileConfig tile_config(int width) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.num_rows[tile] = 16;
    config.row_bytes[tile] = static_cast<std::uint16_t>(tile == 4 || tile == 5 ? 64 : 4 * width);
  }
  return config;
}
// By the logarithm of the width. Static and constant: it is in memory whole before any code runs.
constexpr TileConfig kTileConfigs[5] = {tile_config(1), tile_config(2), tile_config(4), tile_config(8),
                                        tile_config(16)};

}  // namespace
}  // namespace quire::cpu::gemm
