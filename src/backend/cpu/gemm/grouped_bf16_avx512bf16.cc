// Purpose: grouped integer weights x bfloat16 activations with the native pairwise dot product (vdpbf16ps).
// Integers of up to 8 bits are exact in bfloat16, so only the activations were rounded. Arithmetic per
// output, segments in ascending order:
//   part = two chains of pairwise dot products (features 4i, 4i+1 and 4i+2, 4i+3), added at the end
//   up to 6 bits: the dot products see 128 + q; part = fma(128 + zero, -(sum of x), part)
//   sum = fma(part, scale, sum); with minimums: sum = fma(min, -(sum of x), sum)
// (bytes_avx512.h must come before the body that is written on its names.)
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

// parts[r] has the two chains of row r. Up to 6 bits the lanes of a chain mix both kinds of pairs of two
// columns (see gather_parts); with 8 bits lanes are columns and a chain is one kind.
template <int kBits, int kQuad, int kRows>
inline __attribute__((always_inline)) void add_quad(const std::uint8_t* block, Ints zero,
                                                    const Bf16Block* const (&row)[kRows],
                                                    Vec (&parts)[kRows][2]) {
  const Ints q = quad_bytes<kBits, kQuad>(block);
  if constexpr (kBits == 8) {
    const Ints w = i_sub_bytes(q, zero);
    const __m512bh first = as_bf16(bf16_pair<0>(w));
    const __m512bh second = as_bf16(bf16_pair<2>(w));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const std::uint16_t* x = row[r]->x + 4 * kQuad;
      parts[r][0] = _mm512_dpbf16_ps(parts[r][0], first, as_bf16(i_load_splat(x)));
      parts[r][1] = _mm512_dpbf16_ps(parts[r][1], second, as_bf16(i_load_splat(x + 2)));
    }
  } else {
    // 0x43qq is the bfloat16 128 + qq for qq below 128: one byte interleave instead of a conversion.
    const Ints top = i_splat(0x43434343u);
    const __m512bh low = as_bf16(_mm512_unpacklo_epi8(q, top));
    const __m512bh high = as_bf16(_mm512_unpackhi_epi8(q, top));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto* x = static_cast<const double*>(static_cast<const void*>(row[r]->x + 4 * kQuad));
      const __m512bh four = (__m512bh)_mm512_broadcastsd_pd(_mm_load_sd(x));
      parts[r][0] = _mm512_dpbf16_ps(parts[r][0], low, four);
      parts[r][1] = _mm512_dpbf16_ps(parts[r][1], high, four);
    }
  }
}

template <int kBits>
inline __attribute__((always_inline)) Vec gather_parts(const Vec (&parts)[2]) {
  if constexpr (kBits == 8) {
    return v_add(parts[0], parts[1]);
  } else {
    // Lanes of parts[0], by 128 bits: column 0 first pair, column 0 second pair, column 1 first, column 1
    // second; parts[1] has columns 2 and 3.
    return v_add(_mm512_shuffle_ps(parts[0], parts[1], 0x88), _mm512_shuffle_ps(parts[0], parts[1], 0xdd));
  }
}

// kWhich: 0, 1 = half of a block, 2 = all of it.
template <int kBits, int kWhich, int kRows>
inline __attribute__((always_inline)) void add_segment(const std::uint8_t* block, const float* scales,
                                                       const float* mins, Ints zero, Vec offset,
                                                       const Bf16Block* const (&row)[kRows],
                                                       Vec (&sums)[kRows]) {
  Vec parts[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) parts[r][0] = parts[r][1] = v_zero();
  if constexpr (kWhich != 1) {
    add_quad<kBits, 0>(block, zero, row, parts);
    add_quad<kBits, 1>(block, zero, row, parts);
    add_quad<kBits, 2>(block, zero, row, parts);
    add_quad<kBits, 3>(block, zero, row, parts);
  }
  if constexpr (kWhich != 0) {
    add_quad<kBits, 4>(block, zero, row, parts);
    add_quad<kBits, 5>(block, zero, row, parts);
    add_quad<kBits, 6>(block, zero, row, parts);
    add_quad<kBits, 7>(block, zero, row, parts);
  }
  const Vec scale = v_load(scales);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    Vec part = gather_parts<kBits>(parts[r]);
    if constexpr (kBits != 8) part = v_fma(offset, v_load_splat(&row[r]->neg_sum[kWhich]), part);
    sums[r] = v_fma(part, scale, sums[r]);
  }
  if (mins != nullptr) {
    const Vec min = v_load(mins);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = v_fma(min, v_load_splat(&row[r]->neg_sum[kWhich]), sums[r]);
  }
}

template <int kBits, int kSegments, int kRows>
void bf16_rows(const GroupedTile& tile, const Stretch& stretch, int byte_zero, std::int64_t first_block,
               int num_blocks, const Bf16Block* x, std::int64_t row_stride, float* out) {
  Vec sums[kRows];
  const Bf16Block* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride + first_block;
    sums[r] = first_block == 0 ? v_zero() : v_load(out + r * kTileCols);
  }
  const Ints zero = i_splat(static_cast<std::uint32_t>(byte_zero) * 0x01010101u);
  const Vec offset = v_splat(static_cast<float>(128 + tile.zero));
  const std::uint8_t* block = tile.data + first_block * block_bytes(kBits);
  const float* scales = stretch.scales;
  const float* mins = tile.mins == nullptr ? nullptr : stretch.mins;
  for (int b = 0; b < num_blocks; ++b) {
    if constexpr (kSegments == 1) {
      add_segment<kBits, 2>(block, scales, mins, zero, offset, row, sums);
    } else {
      add_segment<kBits, 0>(block, scales, mins, zero, offset, row, sums);
      add_segment<kBits, 1>(block, scales + kTileCols, mins == nullptr ? nullptr : mins + kTileCols, zero,
                            offset, row, sums);
    }
    block += block_bytes(kBits);
    scales += kSegments * kTileCols;
    if (mins != nullptr) mins += kSegments * kTileCols;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) v_store(out + r * kTileCols, sums[r]);
}

template <int kBits, int kSegments>
void bf16_tile(const GroupedTile& tile, const Bf16Block* x, std::int64_t row_stride, int num_rows,
               float* out) {
  const bool shifted = kBits == 8 && tile.mins != nullptr;  // as in grouped_f32_body.h
  const int byte_zero = shifted ? 128 : tile.zero;
  Stretch stretch;
  for (std::int64_t first = 0; first < tile.num_blocks; first += kStretchBlocks) {
    const int count =
        static_cast<int>(tile.num_blocks - first < kStretchBlocks ? tile.num_blocks - first : kStretchBlocks);
    load_scales(tile, first * kSegments, count * kSegments, shifted ? 128.0f : 0.0f, stretch);
    int r = 0;
    const auto rows = [&](auto rows_kernel, int step) {
      for (; r + step <= num_rows; r += step)
        rows_kernel(tile, stretch, byte_zero, first, count, x + r * row_stride, row_stride,
                    out + r * kTileCols);
    };
    rows(bf16_rows<kBits, kSegments, 8>, 8);
    rows(bf16_rows<kBits, kSegments, 4>, 4);
    rows(bf16_rows<kBits, kSegments, 2>, 2);
    rows(bf16_rows<kBits, kSegments, 1>, 1);
  }
}

}  // namespace

constinit const GroupedBf16Table kGroupedBf16Avx512Bf16 = {"avx512bf16",
                                                           {{bf16_tile<4, 1>, bf16_tile<4, 2>},
                                                            {bf16_tile<5, 1>, bf16_tile<5, 2>},
                                                            {bf16_tile<6, 1>, bf16_tile<6, 2>},
                                                            {bf16_tile<8, 1>, bf16_tile<8, 2>}}};

}  // namespace quire::cpu::gemm
