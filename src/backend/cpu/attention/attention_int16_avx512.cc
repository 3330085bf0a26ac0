// Purpose: attention in 16-bit fixed point for AVX-512 with VNNI: twice the multiply-adds of float32 per
// instruction, over a cache of 16-bit integers. For the compute modes that round activations.
//
// Each vector has its own scale: a query and a key 32700 / (its length), so that no product of the two can
// overflow int32; the values of a position a power of two, 2^-e, that puts their largest element between 4096
// and 8191. Keys and values are held so (kv_cache.h), with the scale of the key and e. The scale of the
// values is folded into the softmax: with s_j the score of position j in units of log2, p_j = 2^(s_j + e_j -
// largest of the group), and the dot product of the rounded 4095 * p_j with the integers of the values is
// exact. The sum of the weights takes the unrounded 2^(s_j - largest) = p_j * 2^-e_j. Errors are those of the
// rounding: 2^-15 of a query's or a key's length per element (float16: 2^-12 of the element), 2^-13 of a
// position's largest value and of a group's largest weight.
//
// Per group of kGroup positions, with m the largest s_j + e_j of the group:
//   total = total * 2^(old maximum - new) + (sum_j round(4095 p_j) * v_j) / 4095 * 2^(m - new), and so the
// sum of the weights.
// Integer sums are exact, and everything else belongs to one row, so how rows are blocked changes no bit.
// The order of the headers matters: vectors, then functions of them, then what kernels share.
// clang-format off
#include "backend/cpu/attention/attention_kernel.h"
#include "backend/cpu/simd/vec16_avx512.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/attention/attention_common.h"
// clang-format on

namespace quire::cpu {
namespace {

// Positions per step of the running softmax: part of the arithmetic.
inline constexpr std::int64_t kGroup = 64;
inline constexpr int kGroupTiles = static_cast<int>(kGroup) / kLanes;
inline constexpr int kGroupPairs = static_cast<int>(kGroup) / 2;
static_assert(kSplit % kGroup == 0);
// Query rows of one unit: queries and totals stay in the second-level cache, keys and values in the first.
inline constexpr std::int64_t kMaxUnitRows = 256;
inline constexpr int kBlockRows = 8;  // rows per pass over a group: 2 x 8 sums in registers

inline constexpr float kVectorLength = 32700.0f;  // its square < 2^31; rounding adds less than sqrt(head_dim)
inline constexpr float kWeightOne = 4095.0f;      // 64 * 4095 * 8191 < 2^31
inline constexpr int kMinExponent = -40;          // of the values of a position: 2^40 * 64 stays finite
// Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits, in two's complement.
inline constexpr float kRound = 12582912.0f;

// Keys and values of one group, in tiles of kLanes positions; 16-bit integers in pairs, as the dot product of
// pairs wants them. Absent tiles have a place too, so that computing or prefetching one is harmless.
struct Tiles {
  const std::int16_t* keys[kGroupTiles];    // [num_pairs of head_dim, kLanes, 2]
  const std::int16_t* values[kGroupTiles];  // [kLanes / 2, padded_dim, 2]
};
// What goes with each position of a group.
struct Scales {
  float* key;            // [kGroup]; a score is integer * key scale * query scale
  float* value_log2;     // [kGroup]: e
  float* value_inverse;  // [kGroup]: 2^-e
};

inline __m512i load_ints(const void* p) {
  return _mm512_loadu_si512(p);
}
// x * scale as 16-bit integers in the low halves.
inline Vec to_ints(Vec x, Vec scale) {
  return v_fma(x, scale, v_splat(kRound));
}
// 32700 / sqrt(square), 0 for a vector of (almost) nothing; a NaN shows in the scale.
inline Vec length_factor(Vec square, Vec* scale) {
  const Vec length = _mm512_sqrt_ps(square);
  *scale = v_mul(length, v_splat(1.0f / kVectorLength));
  return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(length, v_splat(1e-30f), _CMP_GT_OQ), v_splat(kVectorLength),
                             length);
}

std::int64_t num_pairs_of(std::int64_t head_dim) {
  return (head_dim + 1) / 2;
}

// AttentionKernel::store.
void store_row(const float* key, const float* value, const Int16Slot& slot) {
  const std::int64_t head_dim = slot.head_dim;
  const std::int64_t padded_dim = round_up_to_lanes(head_dim);
  const std::int64_t width = slot.tile_width;
  const std::int64_t in_tile = slot.offset % width;
  Vec square = v_zero();
  __m512i largest = _mm512_setzero_si512();  // as integers: NaN > infinity > numbers
  for (std::int64_t d = 0; d < head_dim; d += kLanes) {
    const std::int64_t count = min_of(head_dim - d, kLanes);
    const Vec k = v_load_first(key + d, count);
    square = v_fma(k, k, square);
    largest = _mm512_max_epu32(largest, _mm512_castps_si512(v_abs(v_load_first(value + d, count))));
  }
  auto* scales = reinterpret_cast<float*>(slot.area + slot.scale_offset_bytes) + slot.offset;
  Vec key_scale;
  const Vec key_factor = length_factor(v_splat(v_sum_lanes(square)), &key_scale);
  scales[0] = _mm512_cvtss_f32(key_scale);
  // largest in [2^k, 2^(k + 1)) -> e = k - 12; infinity and NaN become a NaN of the weight.
  alignas(64) std::uint32_t lanes[kLanes];
  _mm512_store_si512(lanes, largest);
  std::uint32_t bits = 0;
  for (const std::uint32_t lane : lanes) bits = lane > bits ? lane : bits;
  const int field = static_cast<int>(bits >> 23);
  const int e = field - (127 + 12) < kMinExponent ? kMinExponent : field - (127 + 12);
  scales[slot.block_size] = field == 255 ? __builtin_nanf("") : static_cast<float>(e);
  const Vec value_factor = v_shift_to_exponent(_mm512_castsi512_ps(_mm512_set1_epi32(127 - e)));

  auto* keys = reinterpret_cast<std::int32_t*>(slot.area) +
               slot.offset / width * width * num_pairs_of(head_dim) + in_tile;
  const bool paired = width % 2 == 0;
  auto* values = reinterpret_cast<std::int16_t*>(slot.area + slot.value_offset_bytes) +
                 (paired ? slot.offset / 2 * 2 * padded_dim + slot.offset % 2 : slot.offset * padded_dim);
  const std::int64_t step = paired ? 2 : 1;
  for (std::int64_t d = 0; d < head_dim; d += kLanes) {
    const std::int64_t count = min_of(head_dim - d, kLanes);
    alignas(64) std::int16_t integers[2 * kLanes];
    const Vec k = to_ints(v_load_first(key + d, count), key_factor);
    const Vec v = to_ints(v_load_first(value + d, count), value_factor);
    _mm256_store_si256(reinterpret_cast<__m256i*>(integers), _mm512_cvtepi32_epi16(_mm512_castps_si512(k)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(integers + kLanes),
                       _mm512_cvtepi32_epi16(_mm512_castps_si512(v)));
    for (std::int64_t i = 0; i < count; i += 2) {
      __builtin_memcpy(keys + (d + i) / 2 * width, integers + i, sizeof(std::int32_t));
    }
    for (std::int64_t i = 0; i < kLanes; ++i) values[(d + i) * step] = integers[kLanes + i];
  }
}

// scores[r][tile * kLanes + i] for kTiles tiles from `first` on. queries: [num_pairs, kRows] of two integers.
// With kAhead it also asks for the keys of `next`, a line at each step.
template <int kRows, int kTiles, bool kAhead>
inline void score_tiles(const std::int32_t* queries, const Tiles& tiles, const Tiles& next, int first,
                        std::int64_t num_pairs, std::int32_t* scores) {
  __m512i sums[kRows][kTiles];
  const std::int16_t* keys[kTiles];
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) {
    keys[t] = tiles.keys[first + t];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][t] = _mm512_setzero_si512();
  }
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    __m512i key[kTiles];
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) {
      key[t] = load_ints(keys[t] + pair * 2 * kLanes);
      if constexpr (kAhead) prefetch(next.keys[first + t] + pair * 2 * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i query = _mm512_set1_epi32(queries[pair * kRows + r]);
#pragma GCC unroll 8
      for (int t = 0; t < kTiles; ++t) sums[r][t] = _mm512_dpwssd_epi32(sums[r][t], query, key[t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t)
      _mm512_store_si512(scores + r * kGroup + (first + t) * kLanes, sums[r][t]);
  }
}

constexpr int tiles_per_pass(int num_rows) {
  return num_rows <= 4 ? 4 : 2;
}

template <int kRows, bool kAhead>
void score_group(const std::int32_t* queries, const Tiles& tiles, const Tiles& next, int first_tile,
                 int end_tile, std::int64_t num_pairs, std::int32_t* scores) {
  constexpr int kTiles = tiles_per_pass(kRows);
  for (int t = first_tile / kTiles * kTiles; t < end_tile; t += kTiles) {
    score_tiles<kRows, kTiles, kAhead>(queries, tiles, next, t, num_pairs, scores);
  }
}

// total = total * alpha + (weighted integers) * beta, for kVectors vectors of 16 values from d on.
template <int kRows, int kVectors, bool kAhead>
inline void weigh_vectors(const std::int32_t* weights, const Tiles& tiles, const Tiles& next, int first_tile,
                          int end_tile, std::int64_t padded_dim, std::int64_t d, const float* alpha,
                          const float* beta, float* totals) {
  __m512i sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sums[r][c] = _mm512_setzero_si512();
  }
  for (int t = first_tile; t < end_tile; ++t) {
    const std::int16_t* row = tiles.values[t] + 2 * d;
    const std::int16_t* ahead = next.values[t] + 2 * d;
    const std::int32_t* tile_weights = weights + t * kLanes / 2;
    for (int pair = 0; pair < kLanes / 2; ++pair, row += 2 * padded_dim, ahead += 2 * padded_dim) {
      __m512i value[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        value[c] = load_ints(row + c * 2 * kLanes);
        if constexpr (kAhead) prefetch(ahead + c * 2 * kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i weight = _mm512_set1_epi32(tile_weights[r * kGroupPairs + pair]);
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) sums[r][c] = _mm512_dpwssd_epi32(sums[r][c], weight, value[c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* total = totals + r * padded_dim + d + c * kLanes;
      const Vec added = v_mul(_mm512_cvtepi32_ps(sums[r][c]), v_splat(beta[r]));
      v_store(total, v_fma(v_load(total), v_splat(alpha[r]), added));
    }
  }
}

template <int kRows, bool kAhead>
void weigh_group(const std::int32_t* weights, const Tiles& tiles, const Tiles& next, int first_tile,
                 int end_tile, std::int64_t padded_dim, const float* alpha, const float* beta,
                 float* totals) {
  constexpr int kVectors = tiles_per_pass(kRows);
  std::int64_t d = 0;
  for (; d + kVectors * kLanes <= padded_dim; d += kVectors * kLanes) {
    weigh_vectors<kRows, kVectors, kAhead>(weights, tiles, next, first_tile, end_tile, padded_dim, d, alpha,
                                           beta, totals);
  }
  for (; d < padded_dim; d += kLanes) {
    weigh_vectors<kRows, 1, kAhead>(weights, tiles, next, first_tile, end_tile, padded_dim, d, alpha, beta,
                                    totals);
  }
}

using ScoreOp = void (*)(const std::int32_t* queries, const Tiles& tiles, const Tiles& next, int first_tile,
                         int end_tile, std::int64_t num_pairs, std::int32_t* scores);
using WeighOp = void (*)(const std::int32_t* weights, const Tiles& tiles, const Tiles& next, int first_tile,
                         int end_tile, std::int64_t padded_dim, const float* alpha, const float* beta,
                         float* totals);
struct OpsTable {
  ScoreOp score[kBlockRows + 1][2] = {};  // by number of rows ([0] is unused); [1] also prefetches
  WeighOp weigh[kBlockRows + 1][2] = {};
};
template <int kRows>
constexpr void fill_ops(OpsTable& table) {
  table.score[kRows][0] = &score_group<kRows, false>;
  table.score[kRows][1] = &score_group<kRows, true>;
  table.weigh[kRows][0] = &weigh_group<kRows, false>;
  table.weigh[kRows][1] = &weigh_group<kRows, true>;
  if constexpr (kRows > 1) fill_ops<kRows - 1>(table);
}
constexpr OpsTable make_ops() {
  OpsTable table;
  fill_ops<kBlockRows>(table);
  return table;
}
constexpr OpsTable kOps = make_ops();

// kWeightOne * 2^x for x <= 0, to 3.6e-6 (a weight is rounded to 12 bits); exact at 0. The polynomial is
// fitted as those of vec_math.h.
inline Vec weight_of(Vec x) {
  x = v_max(v_splat(-127.0f), x);
  const Vec shifted = v_add(x, v_splat(kRoundToExponent));
  const Vec f = v_sub(x, v_sub(shifted, v_splat(kRoundToExponent)));
  Vec p = v_splat(40.0610237f);
  p = v_fma(p, f, v_splat(229.225342f));
  p = v_fma(p, f, v_splat(983.648132f));
  p = v_fma(p, f, v_splat(2838.30029f));
  p = v_fma(p, f, v_splat(kWeightOne));
  return v_mul(p, v_shift_to_exponent(shifted));
}

// Scores to weights for one row. Positions outside `visible` (of the group) get weight 0 whatever they hold;
// kAll: there are none. Returns the largest score, in `added` the lanes of the sum of weights.
template <bool kAll>
inline float weights_of(const std::int32_t* scores, const Scales& scales, Visible visible, float query_scale,
                        float tanh_scale, std::int16_t* weights, Vec* added) {
  Vec x[kGroupTiles];
  Vec largest = v_splat(kLowest);
  __mmask16 seen[kGroupTiles];
#pragma GCC unroll 8
  for (int t = 0; t < kGroupTiles; ++t) {
    const Vec integer = _mm512_cvtepi32_ps(load_ints(scores + t * kLanes));
    const Vec scale = v_mul(v_load(scales.key + t * kLanes), v_splat(query_scale));
    const Vec exponent = v_load(scales.value_log2 + t * kLanes);
    if (tanh_scale != 0) {
      x[t] = v_fma(v_tanh(v_mul(integer, scale)), v_splat(tanh_scale), exponent);
    } else {
      x[t] = v_fma(integer, scale, exponent);
    }
    if constexpr (!kAll) {
      const std::int64_t low = min_of(max_of(visible.low - t * kLanes, 0), kLanes);
      const std::int64_t high = min_of(max_of(visible.high - t * kLanes, 0), kLanes);
      seen[t] = static_cast<__mmask16>(lanes_below(high) & ~lanes_below(low));
      x[t] = _mm512_mask_mov_ps(v_splat(-__builtin_inff()), seen[t], x[t]);
    }
    largest = v_max(x[t], largest);
  }
  const float maximum = v_max_lanes(largest);
  Vec sum = v_zero();
#pragma GCC unroll 8
  for (int t = 0; t < kGroupTiles; ++t) {
    const Vec p = weight_of(v_sub(x[t], v_splat(maximum)));
    const Vec rounded = v_add(p, v_splat(kRound));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + t * kLanes),
                       _mm512_cvtepi32_epi16(_mm512_castps_si512(rounded)));
    const Vec inverse = v_load(scales.value_inverse + t * kLanes);
    if constexpr (kAll) {
      sum = v_fma(p, inverse, sum);
    } else {
      sum = _mm512_mask3_fmadd_ps(p, inverse, sum, seen[t]);
    }
  }
  *added = sum;
  return maximum;
}

std::size_t scratch_bytes(std::int64_t head_dim) {
  const std::int64_t num_pairs = num_pairs_of(head_dim);
  const std::int64_t padded_dim = round_up_to_lanes(head_dim);
  return Scratch::bytes<std::int32_t>(kMaxUnitRows * num_pairs) + Scratch::bytes<float>(kMaxUnitRows) +
         Scratch::bytes<float>(kMaxUnitRows * kLanes) + Scratch::bytes<std::int32_t>(kBlockRows * kGroup) +
         Scratch::bytes<std::int16_t>(kBlockRows * kGroup) + 3 * Scratch::bytes<float>(kGroup) +
         Scratch::bytes<std::int32_t>(kGroup * num_pairs) +
         Scratch::bytes<std::int16_t>(kGroup * padded_dim) +
         Scratch::bytes<float>(2 * attention_state_floats(kMaxUnitRows, head_dim));
}

// One unit at work.
class Unit {
 public:
  explicit Unit(const AttentionTile& tile)
      : tile_(tile),
        num_rows_(static_cast<int>(tile.num_queries * tile.num_heads)),
        num_blocks_((num_rows_ + kBlockRows - 1) / kBlockRows),
        padded_dim_(round_up_to_lanes(tile.head_dim)),
        num_pairs_(num_pairs_of(tile.head_dim)),
        in_place_(tile.tile_width == kLanes),
        tanh_scale_(tile.softcap > 0 ? tile.softcap * kLog2E : 0.0f) {
    Scratch scratch(tile.scratch);
    queries_ = scratch.take<std::int32_t>(num_rows_ * num_pairs_);
    query_scale_ = scratch.take<float>(num_rows_);
    sums_ = scratch.take<float>(num_rows_ * kLanes);
    scores_ = scratch.take<std::int32_t>(kBlockRows * kGroup);
    weights_ = scratch.take<std::int16_t>(kBlockRows * kGroup);
    scales_.key = scratch.take<float>(kGroup);
    scales_.value_log2 = scratch.take<float>(kGroup);
    scales_.value_inverse = scratch.take<float>(kGroup);
    keys_ = scratch.take<std::int32_t>(kGroup * num_pairs_);
    values_ = scratch.take<std::int16_t>(kGroup * padded_dim_);
    states_ = scratch.take<float>(2 * attention_state_floats(num_rows_, tile.head_dim));
    take_queries();
  }

  void run() {
    for_each_split(tile_, states_, [this](std::int64_t split, const State& state) { walk(split, state); });
  }

 private:
  int first_row(int block) const { return block * num_rows_ / num_blocks_; }

  void take_queries() {
    const float factor = tile_.softcap > 0 ? tile_.scale / tile_.softcap : tile_.scale * kLog2E;
    for (int b = 0; b < num_blocks_; ++b) {
      const int first = first_row(b);
      const int count = first_row(b + 1) - first;
      for (int r = 0; r < count; ++r) {
        const std::int64_t query = (first + r) / tile_.num_heads;
        const std::int64_t head = (first + r) % tile_.num_heads;
        const float* from = tile_.q + query * tile_.row_stride + head * tile_.head_dim;
        Vec square = v_zero();
        for (std::int64_t d = 0; d < padded_dim_; d += kLanes) {
          const Vec x = v_mul(v_load_first(from + d, min_of(tile_.head_dim - d, kLanes)), v_splat(factor));
          square = v_fma(x, x, square);
        }
        Vec scale;
        const Vec to_integer = length_factor(v_splat(v_sum_lanes(square)), &scale);
        query_scale_[first + r] = _mm512_cvtss_f32(scale);
        std::int32_t* to = queries_ + first * num_pairs_ + r;
        for (std::int64_t d = 0; d < padded_dim_; d += kLanes) {
          const Vec x = v_mul(v_load_first(from + d, min_of(tile_.head_dim - d, kLanes)), v_splat(factor));
          alignas(32) std::int16_t integers[kLanes];
          _mm256_store_si256(reinterpret_cast<__m256i*>(integers),
                             _mm512_cvtepi32_epi16(_mm512_castps_si512(to_ints(x, to_integer))));
          for (std::int64_t i = 0; i < kLanes && d + i < tile_.head_dim; i += 2) {
            __builtin_memcpy(to + (d + i) / 2 * count, integers + i, sizeof(std::int32_t));
          }
        }
      }
    }
  }

  // Finds the group that begins at position `start`, or copies it together where the blocks are not whole
  // tiles; only positions [low, high) are needed, and blocks without one of them are not touched (a block
  // outside the window may be gone). Scales of other positions keep what they held.
  Tiles read(std::int64_t start, std::int64_t low, std::int64_t high, bool with_scales) const {
    Tiles tiles;
    int some = -1;
    for (int t = 0; t < kGroupTiles; ++t) {
      const std::int64_t position = start + t * kLanes;
      tiles.keys[t] = nullptr;
      if (position + kLanes <= low || position >= high) continue;
      some = t;
      if (in_place_) {
        const std::byte* area = area_of(position);
        const std::int64_t offset = position % tile_.block_size;
        tiles.keys[t] = reinterpret_cast<const std::int16_t*>(area) + offset * 2 * num_pairs_;
        tiles.values[t] =
            reinterpret_cast<const std::int16_t*>(area + tile_.value_offset_bytes) + offset * padded_dim_;
        const float* scales = reinterpret_cast<const float*>(area + tile_.scale_offset_bytes) + offset;
        if (with_scales) {
          v_store(scales_.key + t * kLanes, v_load(scales));
          v_store(scales_.value_log2 + t * kLanes, v_load(scales + tile_.block_size));
        } else {
          prefetch(scales);
          prefetch(scales + tile_.block_size);
        }
      } else {
        for (std::int64_t lane = 0; lane < kLanes; lane += tile_.tile_width) {
          if (position + lane + tile_.tile_width > low && position + lane < high) gather(t, position, lane);
        }
        tiles.keys[t] = reinterpret_cast<const std::int16_t*>(keys_ + t * kLanes * num_pairs_);
        tiles.values[t] = values_ + t * kLanes * padded_dim_;
      }
    }
    for (int t = 0; t < kGroupTiles; ++t) {
      if (tiles.keys[t] != nullptr) continue;
      tiles.keys[t] = tiles.keys[some];
      tiles.values[t] = tiles.values[some];
    }
    if (with_scales) {
      for (int t = 0; t < kGroupTiles; ++t) {
        const __m512i e = _mm512_cvtps_epi32(v_load(scales_.value_log2 + t * kLanes));
        v_store(scales_.value_inverse + t * kLanes,
                _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), e), 23)));
      }
    }
    return tiles;
  }
  const std::byte* area_of(std::int64_t position) const {
    const std::int64_t block = tile_.block_table[position / tile_.block_size];
    return tile_.areas + static_cast<std::size_t>(block) * tile_.block_stride_bytes;
  }
  // Copies tile_width positions from `position` + `lane` on into lanes [lane, lane + tile_width) of tile t.
  void gather(int t, std::int64_t position, std::int64_t lane) const {
    const std::int64_t width = tile_.tile_width;
    const std::int64_t offset = (position + lane) % tile_.block_size;
    const std::byte* area = area_of(position + lane);
    const auto* keys = reinterpret_cast<const std::int32_t*>(area) + offset * num_pairs_;
    std::int32_t* to_keys = keys_ + t * kLanes * num_pairs_ + lane;
    for (std::int64_t pair = 0; pair < num_pairs_; ++pair) {
      for (std::int64_t i = 0; i < width; ++i) to_keys[pair * kLanes + i] = keys[pair * width + i];
    }
    const auto* values = reinterpret_cast<const std::int16_t*>(area + tile_.value_offset_bytes);
    std::int16_t* to_values = values_ + t * kLanes * padded_dim_;
    if (width % 2 == 0) {
      __builtin_memcpy(to_values + lane * padded_dim_, values + offset * padded_dim_,
                       static_cast<std::size_t>(width * padded_dim_) * sizeof(std::int16_t));
    } else {
      for (std::int64_t i = 0; i < width; ++i) {
        const std::int64_t at = lane + i;
        std::int16_t* to = to_values + at / 2 * 2 * padded_dim_ + at % 2;
        for (std::int64_t d = 0; d < padded_dim_; ++d) to[2 * d] = values[(offset + i) * padded_dim_ + d];
      }
    }
    const auto* scales = reinterpret_cast<const float*>(area + tile_.scale_offset_bytes) + offset;
    for (std::int64_t i = 0; i < width; ++i) {
      scales_.key[t * kLanes + lane + i] = scales[i];
      scales_.value_log2[t * kLanes + lane + i] = scales[tile_.block_size + i];
    }
  }

  void walk(std::int64_t split, const State& state) {
    for (std::int64_t i = 0; i < num_rows_ * padded_dim_; i += kLanes) v_store(state.totals + i, v_zero());
    for (int i = 0; i < num_rows_; ++i) v_store(sums_ + i * kLanes, v_zero());
    for (int r = 0; r < num_rows_; ++r) state.maximum(r) = kLowest;

    // The positions that some row sees.
    const std::int64_t begin = max_of(row_sees(tile_, 0).low, split * kSplit);
    const std::int64_t end = min_of(row_sees(tile_, num_rows_ - 1).high, (split + 1) * kSplit);
    for (std::int64_t start = begin / kGroup * kGroup; start < end; start += kGroup) {
      const Tiles tiles = read(start, begin, end, /*with_scales=*/true);
      const bool have_next = in_place_ && start + kGroup < end;
      const Tiles next = have_next ? read(start + kGroup, begin, end, /*with_scales=*/false) : tiles;
      for (int b = 0; b < num_blocks_; ++b) {
        weigh_block(b, start, tiles, next, have_next && b == 0 ? 1 : 0, state);
      }
    }
    for (int r = 0; r < num_rows_; ++r) state.sum(r) = v_sum_lanes(v_load(sums_ + r * kLanes));
  }

  void weigh_block(int block, std::int64_t start, const Tiles& tiles, const Tiles& next, int ahead,
                   const State& state) {
    const int first = first_row(block);
    const int count = first_row(block + 1) - first;
    // The rows are in order of position, so what any of them sees lies between these two.
    const Visible first_sees = row_sees(tile_, first, start, kGroup);
    const Visible last_sees = row_sees(tile_, first + count - 1, start, kGroup);
    const Visible any = {first_sees.low, last_sees.high};
    if (any.low >= any.high) return;
    const bool all = last_sees.low == 0 && first_sees.high == kGroup;
    const int first_tile = static_cast<int>(any.low) / kLanes;
    const int end_tile = static_cast<int>(any.high + kLanes - 1) / kLanes;

    kOps.score[count][ahead](queries_ + first * num_pairs_, tiles, next, first_tile, end_tile, num_pairs_,
                             scores_);
    alignas(64) float largest[kLanes];
    alignas(64) float maximum[kLanes];
    Vec added[kBlockRows];
    v_store(largest, v_splat(kLowest));
    v_store(maximum, v_splat(kLowest));
    for (int r = 0; r < count; ++r) {
      maximum[r] = state.maximum(first + r);
      const std::int32_t* scores = scores_ + r * kGroup;
      std::int16_t* weights = weights_ + r * kGroup;
      if (all) {
        largest[r] = weights_of<true>(scores, scales_, {0, kGroup}, query_scale_[first + r], tanh_scale_,
                                      weights, &added[r]);
      } else {
        largest[r] = weights_of<false>(scores, scales_, row_sees(tile_, first + r, start, kGroup),
                                       query_scale_[first + r], tanh_scale_, weights, &added[r]);
      }
    }
    const Vec now = v_max(v_load(largest), v_load(maximum));
    const Vec old_factors = v_exp2_nonpositive(v_sub(v_load(maximum), now));
    const Vec new_factors =
        v_mul(v_exp2_nonpositive(v_sub(v_load(largest), now)), v_splat(1.0f / kWeightOne));
    alignas(64) float alpha[kLanes];
    alignas(64) float beta[kLanes];
    v_store(alpha, old_factors);
    v_store(beta, new_factors);
    v_store(maximum, now);
    for (int r = 0; r < count; ++r) {
      state.maximum(first + r) = maximum[r];
      float* sum = sums_ + (first + r) * kLanes;
      v_store(sum, v_fma(v_load(sum), v_splat(alpha[r]), v_mul(added[r], v_splat(beta[r]))));
    }
    kOps.weigh[count][ahead](reinterpret_cast<const std::int32_t*>(weights_), tiles, next, first_tile,
                             end_tile, padded_dim_, alpha, beta, state.totals + first * padded_dim_);
  }

  const AttentionTile& tile_;
  const int num_rows_;
  const int num_blocks_;
  const std::int64_t padded_dim_;
  const std::int64_t num_pairs_;
  const bool in_place_;
  const float tanh_scale_;
  std::int32_t* queries_;  // per row block [num_pairs, rows of the block] of two integers
  float* query_scale_;     // [num_rows]
  float* sums_;            // [num_rows, kLanes]
  std::int32_t* scores_;   // [rows of the block, kGroup]
  std::int16_t* weights_;  // [rows of the block, kGroup]
  Scales scales_;
  std::int32_t* keys_;  // copies of one group, where the cache cannot be read in place
  std::int16_t* values_;
  float* states_;
};

void run_tile(const AttentionTile& tile) {
  Unit(tile).run();
}

}  // namespace

constinit const AttentionKernel kAttentionInt16Avx512 = {
    "16-bit fixed point, AVX-512 VNNI", kMaxUnitRows, &run_tile, &merge_states, &scratch_bytes, &store_row};

}  // namespace quire::cpu
