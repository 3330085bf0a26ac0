// Purpose: the walk over grouped integer tiles, written once for every form of activations. A kernel file
// includes one bytes_*.h (the vector names) first, then a product (grouped_int8_body.h, ...), which says how
// one segment of 16 or 32 features is multiplied and added. Internal linkage only.
//
// The walk: a stretch of blocks at a time, its scales made float32 and, for many rows, its integers spread to
// one byte each, so that both stay in the first-level cache while all rows of the call pass over them; then
// groups of rows whose sums stay in registers. What a row adds, and in which order, depends on none of this.
// Out of scope: the layout itself (kernel_types.h), the arithmetic (the products).
#pragma once

#include <type_traits>

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

// The most blocks per stretch: 512 features. Two tiles take 16 KiB of bytes and 4 to 16 KiB of scales.
constexpr int kMaxStretchBlocks = 16;
// How far ahead packed weights are asked for, and into which cache: the hardware's own prefetching stops at
// each page, and the first level has too few requests in flight. Measured on Zen 4, one row of int5 weights
// from memory, one thread, three rounds: 19 to 29 GB/s, against 16 to 24 with 2 KiB ahead into the first
// level.
constexpr int kToSecondLevel = 2;
constexpr std::int64_t kPrefetchBytes = 8192;
// From so many rows on, integers are spread and tiles go in groups.
constexpr int kManyRows = 4;
// (kMaxTiles is a multiple of every kRegisterTiles.)

constexpr std::int64_t block_bytes(int bits) {
  return 64 * bits;
}

// The bytes of quad kQuad of a block, unsigned.
template <int kBits, int kQuad>
inline __attribute__((always_inline)) Ints quad_bytes(const std::uint8_t* block) {
  if constexpr (kBits == 8) {
    return i_load(block + 64 * kQuad);
  } else {
    const Ints pair = i_load(block + 64 * (kQuad % 4));
    const Ints nibble = i_splat(0x0f0f0f0fu);
    Ints low;
    if constexpr (kQuad < 4) {
      low = i_and(pair, nibble);
    } else {
      low = i_and(i_right<4>(pair), nibble);
    }
    if constexpr (kBits == 5) {
      const Ints plane = i_load(block + 256);
      const Ints top = i_splat(0x10101010u);
      if constexpr (kQuad <= 4) {
        return i_or(low, i_and(i_left<4 - kQuad>(plane), top));
      } else {
        return i_or(low, i_and(i_right<kQuad - 4>(plane), top));
      }
    } else if constexpr (kBits == 6) {
      const Ints plane = i_load(block + 256 + 64 * (kQuad / 4));
      const Ints top = i_splat(0x30303030u);
      constexpr int kFrom = 2 * (kQuad % 4);
      if constexpr (kFrom <= 4) {
        return i_or(low, i_and(i_left<4 - kFrom>(plane), top));
      } else {
        return i_or(low, i_and(i_right<kFrom - 4>(plane), top));
      }
    } else {
      return low;
    }
  }
}

// float32 scales and minimums of the segments of one stretch, [segments, 16].
struct Stretch {
  alignas(64) float scales[2 * kMaxStretchBlocks * kTileCols];
  alignas(64) float mins[2 * kMaxStretchBlocks * kTileCols];
};

// min_shift * scale is subtracted from each minimum (for kernels that see q - min_shift).
inline void load_scales(const GroupedTile& tile, std::int64_t first_segment, int num_segments,
                        float min_shift, Stretch& stretch) {
  std::int64_t group = first_segment / tile.segments_per_group;
  int left_in_group = tile.segments_per_group - static_cast<int>(first_segment % tile.segments_per_group);
  const auto* scale_codes = static_cast<const std::int8_t*>(tile.scales);
  const auto* min_codes = static_cast<const std::uint8_t*>(tile.mins);
  const auto* scale_halves = static_cast<const std::uint16_t*>(tile.scales);
  const auto* min_halves = static_cast<const std::uint16_t*>(tile.mins);
  const auto* scale_floats = static_cast<const float*>(tile.scales);
  const auto* min_floats = static_cast<const float*>(tile.mins);
  const Vec shift = v_splat(-min_shift);
  for (int segment = 0; segment < num_segments;) {
    Vec scale;
    Vec min = v_zero();
    const std::int64_t at = group * kTileCols;
    if (tile.scale_kind == kScaleCodes) {
      const std::int64_t super = group / tile.groups_per_super * kTileCols;
      scale = v_mul(v_load_f16(tile.super_scales + super), v_load_i8(scale_codes + at));
      if (tile.mins != nullptr) min = v_mul(v_load_f16(tile.super_mins + super), v_load_u8(min_codes + at));
    } else if (tile.scale_kind == kScaleF16) {
      scale = v_load_f16(scale_halves + at);
      if (tile.mins != nullptr) min = v_load_f16(min_halves + at);
    } else {
      scale = v_load(scale_floats + at);
      if (tile.mins != nullptr) min = v_load(min_floats + at);
    }
    if (min_shift != 0.0f) min = v_fma(shift, scale, min);
    for (; left_in_group > 0 && segment < num_segments; --left_in_group, ++segment) {
      v_store(stretch.scales + segment * kTileCols, scale);
      if (tile.mins != nullptr) v_store(stretch.mins + segment * kTileCols, min);
    }
    left_in_group = tile.segments_per_group;
    ++group;
  }
}

// Where a product finds the quads of a block. Packed as they are kept:
template <int kBits>
struct PackedQuads {
  static constexpr bool kFromMemory = true;
  static constexpr std::int64_t kBytes = block_bytes(kBits);
  template <int kQuad>
  static inline __attribute__((always_inline)) Ints load(const std::uint8_t* block) {
    return quad_bytes<kBits, kQuad>(block);
  }
};
// Spread to one byte each, which is how 8-bit tiles are packed anyway.
struct ByteQuads : PackedQuads<8> {
  static constexpr bool kFromMemory = false;
};
template <int kBits>
struct ByteSpread {
  using Quads = ByteQuads;
  static constexpr bool kUseful = kBits != 8;
  template <int kQuad>
  static inline __attribute__((always_inline)) void store(const std::uint8_t* from, std::uint8_t* to) {
    i_store(to + 64 * kQuad, quad_bytes<kBits, kQuad>(from));
  }
};

template <typename Spread, int kBits>
void spread(const std::uint8_t* from, int num_blocks, std::uint8_t* to) {
  for (int b = 0; b < num_blocks; ++b, from += block_bytes(kBits), to += Spread::Quads::kBytes) {
    Spread::template store<0>(from, to);
    Spread::template store<1>(from, to);
    Spread::template store<2>(from, to);
    Spread::template store<3>(from, to);
    Spread::template store<4>(from, to);
    Spread::template store<5>(from, to);
    Spread::template store<6>(from, to);
    Spread::template store<7>(from, to);
  }
}

// One segment of kTiles tiles for kRows rows. kWhich: 0, 1 = half of a block, 2 = all of it.
template <typename Product, typename Quads, int kWhich, bool kMins, int kRows, int kTiles>
inline __attribute__((always_inline)) void add_segment(const typename Product::Constants& constants,
                                                       const std::uint8_t* const (&block)[kTiles],
                                                       const float* const (&scales)[kTiles],
                                                       const float* const (&mins)[kTiles],
                                                       const typename Product::Block* const (&row)[kRows],
                                                       Vec (&sums)[kRows][kTiles]) {
  typename Product::template Parts<kRows, kTiles> parts;
  Product::template clear<kWhich, kMins>(constants, row, parts);
  if constexpr (kWhich != 1) {
    Product::template add_quad<Quads, 0>(constants, block, row, parts);
    Product::template add_quad<Quads, 1>(constants, block, row, parts);
    Product::template add_quad<Quads, 2>(constants, block, row, parts);
    Product::template add_quad<Quads, 3>(constants, block, row, parts);
  }
  if constexpr (kWhich != 0) {
    Product::template add_quad<Quads, 4>(constants, block, row, parts);
    Product::template add_quad<Quads, 5>(constants, block, row, parts);
    Product::template add_quad<Quads, 6>(constants, block, row, parts);
    Product::template add_quad<Quads, 7>(constants, block, row, parts);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTiles; ++t) {
    const Vec scale = v_load(scales[t]);
    Vec min = v_zero();
    if constexpr (kMins) min = v_load(mins[t]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r][t] = Product::template finish<kWhich>(constants, *row[r], parts, r, t, scale, sums[r][t]);
      if constexpr (kMins) sums[r][t] = v_fma(min, v_load_splat(&row[r]->neg_sum[kWhich]), sums[r][t]);
    }
  }
}

// (Not inlined: beside another loop the compiler keeps fewer of the sums in registers.)
// kRows rows over one stretch of kTiles tiles; out: [kTiles] of [rows, 16], with out_stride floats between
// tiles.
template <typename Product, typename Quads, int kSegments, bool kMins, int kRows, int kTiles>
__attribute__((noinline)) void stretch_rows(const typename Product::Constants& constants,
                                            const std::uint8_t* const* data, const Stretch* stretches,
                                            bool is_first, int num_blocks, const typename Product::Block* x,
                                            std::int64_t row_stride, float* out, std::int64_t out_stride) {
  Vec sums[kRows][kTiles];
  const typename Product::Block* row[kRows];
  const std::uint8_t* block[kTiles];
  const float* scales[kTiles];
  const float* mins[kTiles];
#pragma GCC unroll 4
  for (int t = 0; t < kTiles; ++t) {
    block[t] = data[t];
    scales[t] = stretches[t].scales;
    mins[t] = stretches[t].mins;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = x + r * row_stride;
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t)
      sums[r][t] = is_first ? v_zero() : v_load(out + t * out_stride + r * kTileCols);
  }
  for (int b = 0; b < num_blocks; ++b) {
    if constexpr (Quads::kFromMemory) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t)
#pragma GCC unroll 8
        for (std::int64_t line = 0; line < Quads::kBytes; line += 64)
          __builtin_prefetch(block[t] + kPrefetchBytes + line, 0, kToSecondLevel);
    }
    if constexpr (kSegments == 1) {
      add_segment<Product, Quads, 2, kMins>(constants, block, scales, mins, row, sums);
    } else {
      add_segment<Product, Quads, 0, kMins>(constants, block, scales, mins, row, sums);
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        scales[t] += kTileCols;
        mins[t] += kTileCols;
      }
      add_segment<Product, Quads, 1, kMins>(constants, block, scales, mins, row, sums);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      block[t] += Quads::kBytes;
      scales[t] += kTileCols;
      mins[t] += kTileCols;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) v_store(out + t * out_stride + r * kTileCols, sums[r][t]);
}

inline void prefetch_lines(const void* from, std::int64_t num_bytes) {
  const auto* byte = static_cast<const char*>(from);
  for (std::int64_t at = 0; at < num_bytes; at += 64) __builtin_prefetch(byte + at, 0, kToSecondLevel);
}

// Asks for what the walk reads after this stretch: scales, which come in runs too short for the hardware to
// foresee, and before many rows the integers too. After the last stretch of a tile, the tile kTiles further
// on is next (or another part's, or nothing: a prefetch of any address is harmless).
template <int kBits, int kSegments, bool kMany, int kTiles>
inline void prefetch_next(const GroupedTile& tile, std::int64_t first, int count) {
  const std::int64_t end = first + count;
  const std::int64_t groups_per_tile = tile.num_blocks * kSegments / tile.segments_per_group;
  const std::int64_t ahead = end < tile.num_blocks ? end : kTiles * tile.num_blocks;
  const std::int64_t group =
      end < tile.num_blocks ? end * kSegments / tile.segments_per_group : kTiles * groups_per_tile;
  const std::int64_t width = kTileCols * (tile.scale_kind == kScaleCodes ? 1
                                          : tile.scale_kind == kScaleF16 ? 2
                                                                         : 4);
  const std::int64_t scale_bytes = width * (count * kSegments / tile.segments_per_group);
  prefetch_lines(static_cast<const char*>(tile.scales) + group * width, scale_bytes);
  if (tile.mins != nullptr) prefetch_lines(static_cast<const char*>(tile.mins) + group * width, scale_bytes);
  if constexpr (kMany) prefetch_lines(tile.data + ahead * block_bytes(kBits), count * block_bytes(kBits));
}

// All rows of a call over kTiles tiles. kMany: groups of as many rows as registers allow, over integers that
// were spread; otherwise one or two rows, over integers as they are packed.
template <template <int> typename ProductOf, int kBits, int kSegments, bool kMins, bool kMany, int kTiles>
void walk(const GroupedTile* const (&tiles)[kTiles], const typename ProductOf<kBits>::Block* x,
          std::int64_t row_stride, int num_rows, float* out) {
  using Spread = typename ProductOf<kBits>::Spread;
  constexpr bool kSpreads = kMany && Spread::kUseful;
  // Spread integers of up to 6 bits are one case: a third of the code.
  using Product = ProductOf<kSpreads ? 6 : kBits>;
  using Quads = std::conditional_t<kSpreads, typename Spread::Quads, PackedQuads<kBits>>;
  constexpr int kStretchBlocks = Product::kStretchBlocks;
  constexpr std::int64_t kSpreadBytes = kStretchBlocks * Spread::Quads::kBytes;
  const auto constants = Product::constants(*tiles[0]);
  const std::int64_t out_stride = static_cast<std::int64_t>(num_rows) * kTileCols;
  alignas(64) std::uint8_t bytes[kSpreads ? kTiles * kSpreadBytes : 1];
  Stretch stretches[kTiles];
  for (std::int64_t first = 0; first < tiles[0]->num_blocks; first += kStretchBlocks) {
    const std::int64_t left = tiles[0]->num_blocks - first;
    const int count = static_cast<int>(left < kStretchBlocks ? left : kStretchBlocks);
    const std::uint8_t* data[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      data[t] = tiles[t]->data + first * block_bytes(kBits);
      prefetch_next<kBits, kSegments, kMany, kTiles>(*tiles[t], first, count);
      load_scales(*tiles[t], first * kSegments, count * kSegments, Product::min_shift(*tiles[t]),
                  stretches[t]);
      if constexpr (kSpreads) {
        spread<Spread, kBits>(data[t], count, bytes + t * kSpreadBytes);
        data[t] = bytes + t * kSpreadBytes;
      }
    }
    int r = 0;
    const auto rows = [&](auto kernel, int step) {
      for (; r + step <= num_rows; r += step)
        kernel(constants, data, stretches, first == 0, count, x + r * row_stride + first, row_stride,
               out + r * kTileCols, out_stride);
    };
    if constexpr (kMany) {
      constexpr int kRows = Product::kRows;
      rows(stretch_rows<Product, Quads, kSegments, kMins, kRows, kTiles>, kRows);
      if constexpr (kRows > 4) rows(stretch_rows<Product, Quads, kSegments, kMins, 4, kTiles>, 4);
    }
    rows(stretch_rows<Product, Quads, kSegments, kMins, 2, kTiles>, 2);
    rows(stretch_rows<Product, Quads, kSegments, kMins, 1, kTiles>, 1);
  }
}

template <template <int> typename ProductOf, int kBits, int kSegments, bool kMins>
void walk_tiles(const GroupedTile* tiles, int num_tiles, const typename ProductOf<kBits>::Block* x,
                std::int64_t row_stride, int num_rows, float* out) {
  const std::int64_t out_stride = static_cast<std::int64_t>(num_rows) * kTileCols;
  if (num_rows < kManyRows && ProductOf<kBits>::kHasFewRows) {
    // One tile after the other: one stream of memory.
    if constexpr (ProductOf<kBits>::kHasFewRows) {
      for (int t = 0; t < num_tiles; ++t) {
        const GroupedTile* const one[] = {tiles + t};
        walk<ProductOf, kBits, kSegments, kMins, false>(one, x, row_stride, num_rows, out + t * out_stride);
      }
    }
    return;
  }
  for (int t = 0; t < num_tiles; t += kRegisterTiles) {
    const GroupedTile* group[kRegisterTiles];
    // A last tile without a partner is computed twice: out has room for kMaxTiles.
    for (int i = 0; i < kRegisterTiles; ++i) group[i] = tiles + (t + i < num_tiles ? t + i : t);
    walk<ProductOf, kBits, kSegments, kMins, true>(group, x, row_stride, num_rows, out + t * out_stride);
  }
}

template <template <int> typename ProductOf, int kBits, int kSegments>
void grouped_tiles(const GroupedTile* tiles, int num_tiles, const typename ProductOf<kBits>::Block* x,
                   std::int64_t row_stride, int num_rows, float* out) {
  if (tiles[0].mins != nullptr) {
    walk_tiles<ProductOf, kBits, kSegments, true>(tiles, num_tiles, x, row_stride, num_rows, out);
  } else {
    walk_tiles<ProductOf, kBits, kSegments, false>(tiles, num_tiles, x, row_stride, num_rows, out);
  }
}

}  // namespace
}  // namespace quire::cpu::gemm

// The kernels of one product, [bits][segments] as kernel_types.h orders them.
#define QUIRE_GROUPED_KERNELS(Product)                                  \
  {                                                                     \
    {grouped_tiles<Product, 4, 1>, grouped_tiles<Product, 4, 2>},       \
        {grouped_tiles<Product, 5, 1>, grouped_tiles<Product, 5, 2>},   \
        {grouped_tiles<Product, 6, 1>, grouped_tiles<Product, 6, 2>}, { \
      grouped_tiles<Product, 8, 1>, grouped_tiles<Product, 8, 2>        \
    }                                                                   \
  }
