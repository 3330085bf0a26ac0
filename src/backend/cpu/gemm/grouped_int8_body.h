// Purpose: linear layer, grouped integer weights x int8 activations. Included by grouped_int8_*.cc after one
// bytes_*.h. Arithmetic per output, segments in ascending order:
//   dot = exact integer sum of (q - zero) * x;  sum = fma(dot, x_scale * scale, sum)
//   with minimums: sum = fma(min, -(x_scale * sum(x)), sum)
// The integer stays below 2^24 (32 * 255 * 127), so it is exact in float32.
#pragma once

#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

template <int kBits>
struct Int8Product {
  using Block = Int8Block;
  using Spread = ByteSpread<kBits>;
  static constexpr int kRows = kRegisterRows;
  static constexpr bool kHasFewRows = true;
  static constexpr int kStretchBlocks = kMaxStretchBlocks;
  struct Constants {
    Ints zero;
  };
  template <int kNumRows, int kTiles>
  struct Parts {
    Ints dots[kNumRows][kTiles];
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
      for (int t = 0; t < kTiles; ++t) parts.dots[r][t] = start;
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
      const Ints x = i_load_splat(row[r]->q + 4 * kQuad);
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) parts.dots[r][t] = i_dot<kBits>(parts.dots[r][t], w[t], x);
    }
  }

  template <int kWhich, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) Vec finish(const Constants&, const Block& row,
                                                          const Parts<kNumRows, kTiles>& parts, int r, int t,
                                                          Vec scale, Vec sum) {
    return v_fma(i_to_float(parts.dots[r][t]), v_mul(scale, v_load_splat(&row.scale)), sum);
  }
};

}  // namespace
}  // namespace quire::cpu::gemm
