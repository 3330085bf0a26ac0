// Purpose: the weights of one block of a pair of tiles (32 columns x 32 features), packed as amx.h says, into
// two tiles of bf16, [32 columns][32]. Written on the vector names of amx_vectors_*.h; a kernel file includes
// one of those first. Internal linkage only. Out of scope: products (amx_body.h).
//
// Bound: the two ports for vectors of 64 bytes. Cycles per weight of the loops below as compiled, by LLVM
// 19's llvm-mca for sapphirerapids (which knows one port for multiply-add) and by counting two, as Xeons
// have:
//   4 bits, groups of 128, 64, 32: 0.072, 0.088, 0.120 and 0.061, 0.066, 0.090; groups of 16: 0.19 and 0.15
//   5 bits, groups of 32: 0.21 and 0.17;  6 bits: 0.22 and 0.20;  8 bits: 0.19 and 0.16
// A word permutation is 2 operations there, rounding two vectors to bf16 is 4: of 4 bits in groups of 32, 88
// operations per 1024 weights select and 96 make tables.
#pragma once

#include <cstring>

#include "backend/cpu/gemm/amx.h"

namespace quire::cpu::gemm {
namespace {

// Packed weights are fetched this many bytes before they are needed: about 8 steps of int4, some 250 ns.
constexpr std::int64_t kFetchAhead = 4096;

// Where an unpacker stands, and the scales of the 32 columns there, [32] float32.
class ScaleReader {
 public:
  explicit ScaleReader(const AmxWeights& weights) : w_(weights) {}

  // To the first segment of a block of a pair.
  void seek(std::int64_t pair, std::int64_t first_segment) {
    pair_ = pair;
    group_ = first_segment / w_.segments_per_group;
    left_ = w_.segments_per_group - static_cast<int>(first_segment % w_.segments_per_group);
    is_new_ = true;
  }
  // The scales of the next segment.
  void next(float* scales, float* mins) {
    advance();
    read(scales, mins);
  }
  // The same if they are others than those of the segment before (since seek()). Returns whether they are.
  bool next_if_new(float* scales, float* mins) {
    if (!advance()) return false;
    read(scales, mins);
    return true;
  }
  bool has_mins() const { return w_.mins != nullptr; }

 private:
  bool advance() {
    if (left_ == 0) {
      left_ = w_.segments_per_group;
      ++group_;
      is_new_ = true;
    }
    --left_;
    const bool was_new = is_new_;
    is_new_ = false;
    return was_new;
  }
  void read(float* scales, float* mins) const {
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = (pair_ * w_.num_groups + group_) * kAmxPairCols + half * kTileCols;
      Vec scale;
      Vec min = v_zero();
      if (w_.scale_kind == kScaleCodes) {
        const std::int64_t super =
            (pair_ * w_.num_supers + group_ / w_.groups_per_super) * kAmxPairCols + half * kTileCols;
        scale = v_mul(v_load_f16(w_.super_scales + super),
                      v_load_i8(static_cast<const std::int8_t*>(w_.scales) + at));
        if (has_mins())
          min = v_mul(v_load_f16(w_.super_mins + super),
                      v_load_u8(static_cast<const std::uint8_t*>(w_.mins) + at));
      } else if (w_.scale_kind == kScaleF16) {
        scale = v_load_f16(static_cast<const std::uint16_t*>(w_.scales) + at);
        if (has_mins()) min = v_load_f16(static_cast<const std::uint16_t*>(w_.mins) + at);
      } else {
        scale = v_load(static_cast<const float*>(w_.scales) + at);
        if (has_mins()) min = v_load(static_cast<const float*>(w_.mins) + at);
      }
      v_store(scales + half * kTileCols, scale);
      v_store(mins + half * kTileCols, min);
    }
  }

  const AmxWeights& w_;
  std::int64_t pair_ = 0;
  std::int64_t group_ = 0;
  int left_ = 0;  // segments of this group not yet passed
  bool is_new_ = true;
};

// The 16 integers first, first + 1, ... as float32.
inline Vec levels_from(int first) {
  float levels[16];
  for (int i = 0; i < 16; ++i) levels[i] = static_cast<float>(first + i);
  return v_load(levels);
}

// What the checkpoint's format defines, in float32: scale * (q - zero), or scale * q - min.
template <bool kHasMins>
inline __attribute__((always_inline)) Vec weights_of(Vec level, const float* scales, const float* mins,
                                                     int column) {
  if constexpr (kHasMins)
    return v_fms_once(level, v_load_splat(scales + column), v_load_splat(mins + column));
  return v_mul(level, v_load_splat(scales + column));
}

// value in each 16-bit word of the upper half (features 16..31), 0 in the lower.
inline Ints upper_words(std::uint32_t two_words) {
  std::uint32_t lanes[16] = {};
  for (int i = 8; i < 16; ++i) lanes[i] = two_words;
  return i_load(lanes);
}

template <int kValue>
struct Constant {
  constexpr operator int() const { return kValue; }
};
// Calls f(index) for 0..kCount-1 with the index as a constant.
template <int kCount, typename F>
inline __attribute__((always_inline)) void for_constants(const F& f) {
  if constexpr (kCount > 0) {
    for_constants<kCount - 1>(f);
    f(Constant<kCount - 1>());
  }
}

// 4 and 5 bits: tables of the values of each column's group, words that select from them.
// kBits 4: a table has 16 words, and a pair of columns is rounded at once; both halves of the register are
// the
//   same table, so what an index has above its nibble does not matter.
// kBits 4, kHalves: the table's halves are those of the block's two segments of 16 features.
// kBits 5: a table has 32 words.
template <int kBits, bool kHalves>
class TableUnpacker {
 public:
  static constexpr bool kDirect = false;
  static constexpr int kBlockBytes = 64 * kBits;
  static_assert(kBits == 4 || (kBits == 5 && !kHalves));

  explicit TableUnpacker(const AmxWeights& weights)
      : reader_(weights),
        data_(weights.data),
        num_blocks_(weights.num_blocks),
        low_(levels_from(-weights.zero)),
        high_(levels_from(kHalves ? -weights.zero : 16 - weights.zero)) {}
  void seek(std::int64_t pair, std::int64_t block) {
    next_ = data_ + (pair * num_blocks_ + block) * 2 * kBlockBytes;
    reader_.seek(pair, kHalves ? 2 * block : block);
  }
  // The block at hand, and on to the next.  out: two tiles
  __attribute__((always_inline)) void step(std::uint8_t* out) {
    for (int line = 0; line < 2 * kBlockBytes; line += 64) prefetch(next_ + kFetchAhead + line);
    bool is_new = true;
    if constexpr (kHalves) {
      reader_.next(scales_[0], mins_[0]);
      reader_.next(scales_[1], mins_[1]);
    } else {
      is_new = reader_.next_if_new(scales_[0], mins_[0]);
    }
    if (is_new) {
      if (reader_.has_mins()) {
        make_tables<true>();
      } else {
        make_tables<false>();
      }
    }
    unpack_tile(next_, tables_, out);
    unpack_tile(next_ + kBlockBytes, tables_ + kTileCols * kTableBytes, out + 1024);
    next_ += 2 * kBlockBytes;
  }

 private:
  static constexpr bool kTwoTables = kBits == 4 && !kHalves;
  static constexpr int kTableBytes = kTwoTables ? 32 : 64;

  template <bool kHasMins>
  __attribute__((always_inline)) void make_tables() {
    constexpr int kHigh = kHalves ? 1 : 0;
    for (int first = 0; first < kAmxPairCols; first += 8) {
      for_constants<kTwoTables ? 4 : 8>([&](auto i) __attribute__((always_inline)) {
        if constexpr (kTwoTables) {
          const int column = first + 2 * i;
          i_put(tables_ + column * kTableBytes,
                v_round_to_bf16(weights_of<kHasMins>(low_, scales_[0], mins_[0], column + 1),
                                weights_of<kHasMins>(low_, scales_[0], mins_[0], column)));
        } else {
          const int column = first + i;
          i_put(tables_ + column * kTableBytes,
                v_round_to_bf16(weights_of<kHasMins>(high_, scales_[kHigh], mins_[kHigh], column),
                                weights_of<kHasMins>(low_, scales_[0], mins_[0], column)));
        }
      });
    }
  }

  static __attribute__((always_inline)) void unpack_tile(const std::uint8_t* block,
                                                         const std::uint8_t* tables, std::uint8_t* out) {
    Ints fifth_bits = i_zero();
    if constexpr (kBits == 5) fifth_bits = i_load(block + 256);
    const Ints nibble = i_splat(0x000f000fu);
    const Ints second_half = upper_words(0x00100010u);
    for_constants<4>([&](auto vector) __attribute__((always_inline)) {
      const Ints q = i_load(block + 64 * vector);
      for_constants<4>([&](auto place) __attribute__((always_inline)) {
        constexpr int kColumn = 4 * vector + place;
        Ints index = q;
        if constexpr (place != 0) index = i_right_words<4 * place>(q);
        const std::uint8_t* table = tables + kColumn * kTableBytes;
        if constexpr (kTwoTables) {
          i_put(out + 64 * kColumn, i_look_up_words(index, i_load_twice(table)));
        } else {
          Ints upper = second_half;
          if constexpr (kBits == 5 && kColumn <= 4) upper = i_left_words<4 - kColumn>(fifth_bits);
          if constexpr (kBits == 5 && kColumn > 4) upper = i_right_words<kColumn - 4>(fifth_bits);
          i_put(out + 64 * kColumn, i_look_up_words(i_select(nibble, index, upper), i_load(table)));
        }
      });
    });
  }

  ScaleReader reader_;
  const std::uint8_t* const data_;
  const std::int64_t num_blocks_;
  const std::uint8_t* next_ = nullptr;
  Vec low_;   // levels of the lower table half
  Vec high_;  // and of the upper
  alignas(64) float scales_[kHalves ? 2 : 1][kAmxPairCols];
  alignas(64) float mins_[kHalves ? 2 : 1][kAmxPairCols];
  alignas(64) std::uint8_t tables_[kAmxPairCols * kTableBytes];
};

// 6 and 8 bits: each weight is computed in float32 and rounded.
template <int kBits, bool kSigned>
class ArithmeticUnpacker {
 public:
  static constexpr bool kDirect = false;
  static constexpr int kBlockBytes = 64 * kBits;
  static_assert(kBits == 6 || kBits == 8);

  explicit ArithmeticUnpacker(const AmxWeights& weights)
      : reader_(weights),
        data_(weights.data),
        num_blocks_(weights.num_blocks),
        zero_(i_splat(static_cast<std::uint32_t>(weights.zero) * 0x01010101u)) {}
  void seek(std::int64_t pair, std::int64_t block) {
    next_ = data_ + (pair * num_blocks_ + block) * 2 * kBlockBytes;
    reader_.seek(pair, 2 * block);
  }
  __attribute__((always_inline)) void step(std::uint8_t* out) {
    for (int line = 0; line < 2 * kBlockBytes; line += 64) prefetch(next_ + kFetchAhead + line);
    reader_.next(scales_[0], mins_[0]);
    reader_.next(scales_[1], mins_[1]);
    if (reader_.has_mins()) {
      unpack_pair<true>(out);
    } else {
      unpack_pair<false>(out);
    }
    next_ += 2 * kBlockBytes;
  }

 private:
  template <bool kHasMins>
  __attribute__((always_inline)) void unpack_pair(std::uint8_t* out) {
    for (int tile = 0; tile < 2; ++tile) {
      const std::uint8_t* block = next_ + tile * kBlockBytes;
      for_constants<8>([&](auto two_columns) __attribute__((always_inline)) {
        const std::uint8_t* bytes = block + 64 * two_columns;
        if constexpr (kBits == 6) {
          i_put(bytes_[two_columns], i_sub_bytes(six_bits<two_columns>(block), zero_));
          bytes = bytes_[two_columns];
        }
        for (int i = 0; i < 2; ++i) {
          const int column = 2 * two_columns + i;
          i_put(out + 1024 * tile + 64 * column,
                v_round_to_bf16(half_column<kHasMins>(bytes + 32 * i, 1, kTileCols * tile + column),
                                half_column<kHasMins>(bytes + 32 * i, 0, kTileCols * tile + column)));
        }
      });
    }
  }
  // Byte vector kVector of a block, unsigned.
  template <int kVector>
  static __attribute__((always_inline)) Ints six_bits(const std::uint8_t* block) {
    Ints low = i_load(block + 64 * (kVector % 4));
    if constexpr (kVector >= 4) low = i_right_words<4>(low);
    Ints high = i_load(block + 256 + 64 * (kVector / 4));
    constexpr int kFrom = 2 * (kVector % 4);  // to bit 4
    if constexpr (kFrom < 4) high = i_left_words<4 - kFrom>(high);
    if constexpr (kFrom > 4) high = i_right_words<kFrom - 4>(high);
    return i_and(i_select(i_splat(0x0f0f0f0fu), low, high), i_splat(0x3f3f3f3fu));
  }
  template <bool kHasMins>
  __attribute__((always_inline)) Vec half_column(const std::uint8_t* bytes, int half, int column) const {
    const Vec level = kSigned ? v_load_i8(bytes + 16 * half) : v_load_u8(bytes + 16 * half);
    return weights_of<kHasMins>(level, scales_[half], mins_[half], column);
  }

  ScaleReader reader_;
  const std::uint8_t* const data_;
  const std::int64_t num_blocks_;
  const std::uint8_t* next_ = nullptr;
  Ints zero_;
  alignas(64) float scales_[2][kAmxPairCols];
  alignas(64) float mins_[2][kAmxPairCols];
  alignas(64) std::uint8_t bytes_[8][64];
};

}  // namespace
}  // namespace quire::cpu::gemm
