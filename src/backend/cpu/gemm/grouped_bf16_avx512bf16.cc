// Purpose: grouped integer weights x bfloat16 activations with the native pairwise dot product (vdpbf16ps).
// Integers of up to 8 bits are exact in bfloat16, so only the activations were rounded. Arithmetic per
// output, segments in ascending order:
//   part = two chains of pairwise dot products (features 4i, 4i+1 and 4i+2, 4i+3), added at the end
//   up to 6 bits: the dot products see 128 + q; part = fma(128 + zero, -(sum of x), part)
//   sum = fma(part, scale, sum); with minimums: sum = fma(min, -(sum of x), sum)
// (bytes_avx512.h must come before the body that is written on its names.)
#include <type_traits>

#include "backend/cpu/gemm/bytes_avx512.h"
#include "backend/cpu/gemm/grouped_body.h"

namespace quire::cpu::gemm {
namespace {

inline __m512bh as_bf16(Ints a) {
  return (__m512bh)a;
}

// Two features (bytes kByte and kByte + 1 of each lane, signed) as a pair of bfloat16. The float32 of such a
// byte has at most 8 significant bits: its lower half is zero, and its upper half is the bfloat16.
template <int kByte>
inline __attribute__((always_inline)) Ints bf16_pair(Ints w) {
  const Ints first = _mm512_castps_si512(i_to_float(i_right_signed<24>(i_left<24 - 8 * kByte>(w))));
  Ints spread = w;
  if constexpr (kByte + 1 < 3) spread = i_left<24 - 8 * (kByte + 1)>(w);
  const Ints second = _mm512_castps_si512(i_to_float(i_right_signed<24>(spread)));
  return i_or(i_right<16>(first), second);
}

struct Pairs {
  __m512bh first;
  __m512bh second;
};

template <typename Quads, int kBits, int kQuad>
inline __attribute__((always_inline)) Pairs make_pairs(const std::uint8_t* block, Ints zero) {
  const Ints q = Quads::template load<kQuad>(block);
  if constexpr (kBits == 8) {
    const Ints w = i_sub_bytes(q, zero);
    return {as_bf16(bf16_pair<0>(w)), as_bf16(bf16_pair<2>(w))};
  } else {
    // 0x43qq is the bfloat16 128 + qq for qq below 128: one byte interleave instead of a conversion.
    const Ints top = i_splat(0x43434343u);
    return {as_bf16(_mm512_unpacklo_epi8(q, top)), as_bf16(_mm512_unpackhi_epi8(q, top))};
  }
}

struct PairQuads {
  static constexpr bool kFromMemory = false;
  static constexpr std::int64_t kBytes = 1024;
};
template <int kBits>
struct PairSpread {
  using Quads = PairQuads;
  static constexpr bool kUseful = true;
  template <int kQuad, typename Constants>
  static inline __attribute__((always_inline)) void store(const Constants& constants,
                                                          const std::uint8_t* from, std::uint8_t* to) {
    const Pairs pairs = make_pairs<PackedQuads<kBits>, kBits, kQuad>(from, constants.zero);
    i_store(to + 128 * kQuad, (__m512i)pairs.first);
    i_store(to + 128 * kQuad + 64, (__m512i)pairs.second);
  }
};

template <int kBits>
struct Bf16Product {
  using Block = Bf16Block;
  using Spread = PairSpread<kBits>;
  static constexpr int kRows = 4;           // two chains per row and tile
  static constexpr int kStretchBlocks = 8;  // two tiles take 16 KiB of pairs
  struct Constants {
    Ints zero;   // in every byte (8 bits)
    Vec offset;  // 128 + zero (up to 6 bits)
  };
  // Up to 6 bits the lanes of a chain mix both kinds of pairs of two columns (see finish); with 8 bits lanes
  // are columns and a chain is one kind.
  template <int kNumRows, int kTiles>
  struct Parts {
    Vec chains[kNumRows][kTiles][2];
  };

  static bool is_shifted(const GroupedTile& tile) { return kBits == 8 && tile.mins != nullptr; }
  static Constants constants(const GroupedTile& tile) {
    return {i_splat(static_cast<std::uint32_t>(is_shifted(tile) ? 128 : tile.zero) * 0x01010101u),
            v_splat(static_cast<float>(128 + tile.zero))};
  }
  // As in grouped_f32_body.h.
  static float min_shift(const GroupedTile& tile) { return is_shifted(tile) ? 128.0f : 0.0f; }

  template <int kWhich, bool kMins, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void clear(const Constants&, const Block* const (&)[kNumRows],
                                                          Parts<kNumRows, kTiles>& parts) {
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) parts.chains[r][t][0] = parts.chains[r][t][1] = v_zero();
  }

  template <typename Quads, int kQuad, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) void add_quad(const Constants& constants,
                                                             const std::uint8_t* const (&block)[kTiles],
                                                             const Block* const (&row)[kNumRows],
                                                             Parts<kNumRows, kTiles>& parts) {
    Pairs pairs[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (std::is_same_v<Quads, PairQuads>) {
        pairs[t] = {as_bf16(i_load(block[t] + 128 * kQuad)), as_bf16(i_load(block[t] + 128 * kQuad + 64))};
      } else {
        pairs[t] = make_pairs<Quads, kBits, kQuad>(block[t], constants.zero);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kNumRows; ++r) {
      const std::uint16_t* x = row[r]->x + 4 * kQuad;
      __m512bh x_first;
      __m512bh x_second;
      if constexpr (kBits == 8) {
        x_first = as_bf16(i_load_splat(x));
        x_second = as_bf16(i_load_splat(x + 2));
      } else {
        x_first = x_second = (__m512bh)_mm512_broadcastsd_pd(
            _mm_load_sd(static_cast<const double*>(static_cast<const void*>(x))));
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        parts.chains[r][t][0] = _mm512_dpbf16_ps(parts.chains[r][t][0], pairs[t].first, x_first);
        parts.chains[r][t][1] = _mm512_dpbf16_ps(parts.chains[r][t][1], pairs[t].second, x_second);
      }
    }
  }

  template <int kWhich, int kNumRows, int kTiles>
  static inline __attribute__((always_inline)) Vec finish(const Constants& constants, const Block& row,
                                                          const Parts<kNumRows, kTiles>& parts, int r, int t,
                                                          Vec scale, Vec sum) {
    const Vec a = parts.chains[r][t][0];
    const Vec b = parts.chains[r][t][1];
    if constexpr (kBits == 8) {
      return v_fma(v_add(a, b), scale, sum);
    } else {
      // Lanes of a, by 128 bits: column 0 first pair, column 0 second pair, column 1 first, column 1 second;
      // b has columns 2 and 3.
      const Vec part = v_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
      return v_fma(v_fma(constants.offset, v_load_splat(&row.neg_sum[kWhich]), part), scale, sum);
    }
  }
};

}  // namespace

constinit const GroupedBf16Table kGroupedBf16Avx512Bf16 = {"avx512bf16", QUIRE_GROUPED_KERNELS(Bf16Product)};

}  // namespace quire::cpu::gemm
