// Purpose: linear layer, grouped integer weights x float32 activations. Included by grouped_f32_*.cc after
// one bytes_*.h. Arithmetic per output:
//   each segment: part = sum of (q - zero) * x by fma, features in ascending order
//   segments in ascending order: sum = fma(part, scale, sum); with minimums: sum = fma(min, -(sum of x), sum)
#pragma once

#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

template <int kBits>
struct F32Product {
  using Block = F32Block;
  using Spread = ByteSpread<kBits>;
  static constexpr int kRows = kRegisterRows;
  // One or two rows take the walk of many: this product is there to be exact, not fast.
  static constexpr bool kHasFewRows = false;
  static constexpr int kStretchBlocks = kMaxStretchBlocks;
  struct Constants {
    Ints zero;  // in every byte
  };
  template <int kNumRows, int kTiles>
  struct Parts {
    Vec sums[kNumRows][kTiles];
  };

  // The bytes are taken as signed. Eight bits with minimums (0..255) are shifted by 128, and scale * 128
  // moves into the minimum.
  static bool is_shifted(const GroupedTile& tile) { return kBits == 8 && tile.mins != nullptr; }
  static Constants constants(const GroupedTile& tile) {
    return {i_splat(static_cast<std::uint32_t>(is_shifted(tile) ? 128 : tile.zero) * 0x01010101u)};
  }
  static float min_shift(const GroupedTile& tile) { return is_shifted(tile) ? 128.0f : 0.0f; }

  template <int kWhich, bool kMins, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void clear(const Constants&, const Block* const (&)[kNumRows],
                                                          Parts<kNumRows, kTiles>& parts) {
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) parts.sums[r][t] = v_zero();
  }

  template <int kQuad, int kByte, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void add_feature(const Ints (&w)[kTiles],
                                                                const Block* const (&row)[kNumRows],
                                                                Parts<kNumRows, kTiles>& parts) {
    Vec values[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      Ints top = w[t];
      if constexpr (kByte < 3) top = i_left<24 - 8 * kByte>(w[t]);
      values[t] = i_to_float(i_right_signed<24>(top));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r) {
      const Vec x = v_load_splat(row[r]->x + 4 * kQuad + kByte);
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) parts.sums[r][t] = v_fma(values[t], x, parts.sums[r][t]);
    }
  }

  template <typename Quads, int kQuad, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void add_quad(const Constants& constants,
                                                             const std::uint8_t* const (&block)[kTiles],
                                                             const Block* const (&row)[kNumRows],
                                                             Parts<kNumRows, kTiles>& parts) {
    Ints w[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t)
      w[t] = i_sub_bytes(Quads::template load<kQuad>(block[t]), constants.zero);
    add_feature<kQuad, 0>(w, row, parts);
    add_feature<kQuad, 1>(w, row, parts);
    add_feature<kQuad, 2>(w, row, parts);
    add_feature<kQuad, 3>(w, row, parts);
  }

  template <int kWhich, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) Vec finish(const Constants&, const Block&,
                                                          const Parts<kNumRows, kTiles>& parts, int r, int t,
                                                          Vec scale, Vec sum) {
    return v_fma(parts.sums[r][t], scale, sum);
  }
};

}  // namespace
}  // namespace quire::cpu::gemm
