// Purpose: linear layer, grouped integer weights x 16-bit activations: what `bf16` mode does for quantized
// weights, and int8 mode for the output layer. Included by grouped_int16_*.cc after one bytes_*.h. An
// activation is 256 * high + low, both signed bytes, so that it takes two byte dot products: as fast as
// bfloat16 where that has half the rate, with eight more bits, no conversion of weights, and exact sums.
// Arithmetic per output, segments in ascending order:
//   dot = exact integer sum of (q - zero) * x;  sum = fma(float(dot), x_scale * scale, sum)
//   with minimums: sum = fma(min, -(x_scale * sum(x)), sum)
// The integer stays below 2^28 (32 * 255 * 32512); float32 rounds it to 24 bits, once.
#pragma once

#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

template <int kBits>
struct Int16Product {
  using Block = Int16Block;
  using Spread = ByteSpread<kBits>;
  static constexpr int kRows =
      kRegisterTiles == 2 ? 4 : (kRegisterRows + 1) / 2;  // two sums per row and tile
  static constexpr bool kHasFewRows = true;
  static constexpr int kStretchBlocks = kMaxStretchBlocks;
  struct Constants {
    Ints zero;
  };
  template <int kNumRows, int kTiles>
  struct Parts {
    Ints high[kNumRows][kTiles];
    Ints low[kNumRows][kTiles];
  };

  static Constants constants(const GroupedTile& tile) {
    return {i_splat(static_cast<std::uint32_t>(tile.zero))};
  }
  static float min_shift(const GroupedTile&) { return 0.0f; }

  template <int kWhich, bool kMins, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void clear(const Constants& constants,
                                                          const Block* const (&row)[kNumRows],
                                                          Parts<kNumRows, kTiles>& parts) {
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r) {
      Ints start = i_zero();
      if constexpr (!kMins) start = i_mul(constants.zero, i_load_splat(&row[r]->neg_q_sum[kWhich]));
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        parts.high[r][t] = i_zero();
        parts.low[r][t] = start;
      }
    }
  }

  template <typename Quads, int kQuad, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void add_quad(const Constants&,
                                                             const std::uint8_t* const (&block)[kTiles],
                                                             const Block* const (&row)[kNumRows],
                                                             Parts<kNumRows, kTiles>& parts) {
    Ints w[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) w[t] = Quads::template load<kQuad>(block[t]);
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r) {
      const Ints high = i_load_splat(row[r]->high + 4 * kQuad);
      const Ints low = i_load_splat(row[r]->low + 4 * kQuad);
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        parts.high[r][t] = i_dot<kBits>(parts.high[r][t], w[t], high);
        parts.low[r][t] = i_dot<kBits>(parts.low[r][t], w[t], low);
      }
    }
  }

  template <int kWhich, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) Vec finish(const Constants&, const Block& row,
                                                          const Parts<kNumRows, kTiles>& parts, int r, int t,
                                                          Vec scale, Vec sum) {
    const Ints dot = i_add(i_left<8>(parts.high[r][t]), parts.low[r][t]);
    return v_fma(i_to_float(dot), v_mul(scale, v_load_splat(&row.scale)), sum);
  }
};

}  // namespace
}  // namespace quire::cpu::gemm
