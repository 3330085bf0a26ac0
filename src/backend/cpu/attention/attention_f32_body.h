// Purpose: attention in float32, written once on 16 lanes; attention_f32_{generic,avx2,avx512}.cc include a
// simd/vec16_*.h, attention_common.h and then this file. Internal linkage.
//
// Rows (query x head of one kv head) go in row blocks of at most kMaxRows. For each group of kGroup
// positions: scores (keys transposed: lanes are positions, each lane one chain of multiply-adds over
// head_dim), then the running softmax, then the weighted values (each output one chain of multiply-adds over
// the group's visible positions in ascending order). Every chain belongs to one row, so how rows are blocked
// changes no bit.
//   total = total * alpha + sum_j p_j * v_j,  sum likewise,  alpha = 2^(old maximum - new maximum).
// Scores are in units of log2: scale * log2(e) is folded into the query.
#pragma once

namespace quire::cpu {
namespace {

// Positions per step of the running softmax, counted from position 0 of the sequence: part of the arithmetic,
// the same in every tier and for every shape.
inline constexpr std::int64_t kGroup = 32;
// Query rows that one unit may have: enough to read a group's keys and values from the nearest cache many
// times, few enough that queries and totals stay there too.
inline constexpr std::int64_t kMaxUnitRows = 64;
inline constexpr int kGroupTiles = static_cast<int>(kGroup) / kLanes;
static_assert(kGroup % kLanes == 0 && kSplit % kGroup == 0);

// The keys and values of one group: tiles [first_tile, end_tile) are there, kLanes positions each.
struct Group {
  const std::byte* keys[kGroupTiles];    // [head_dim, kLanes]
  const std::byte* values[kGroupTiles];  // [kLanes, value_stride]
  int first_tile;
  int end_tile;
};

// What is the same for all groups and rows of a unit.
struct Sizes {
  std::int64_t head_dim;
  std::int64_t padded_dim;    // head_dim rounded up to lanes: the stride of totals
  std::int64_t value_stride;  // elements from one position's values to the next's
  float tanh_scale;           // softcap * log2(e), or 0
};

// scores[r][i] for the tiles [first, first + kTiles). queries: [head_dim, kRows]. With kAhead it also asks
// for the keys of `next`, one step's cache line at each step: in a decode the arithmetic takes about as long
// as the bytes take to arrive, so the two must overlap.
template <DType kType, int kRows, int kTiles, bool kAhead>
void score_tiles(const float* queries, const Group& group, const Group& next, int first,
                 std::int64_t head_dim, float* scores) {
  const std::byte* keys[kTiles];
  const std::byte* ahead[kTiles];
  Vec sums[kRows][kTiles];
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) {
    keys[t] = group.keys[first + t];
    ahead[t] = next.keys[first + t];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][t] = v_zero();
  }
  for (std::int64_t d = 0; d < head_dim; ++d) {
    Vec key[kTiles];
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) {
      key[t] = load_as<kType>(keys[t], d * kLanes);
      if constexpr (kAhead) prefetch(ahead[t] + d * kLanes * element_bytes(kType));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec query = v_splat(queries[d * kRows + r]);
#pragma GCC unroll 8
      for (int t = 0; t < kTiles; ++t) sums[r][t] = v_fma(query, key[t], sums[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) v_store(scores + r * kGroup + (first + t) * kLanes, sums[r][t]);
  }
}

template <DType kType, int kRows, bool kAhead>
void score_group(const float* queries, const Group& group, const Group& next, std::int64_t head_dim,
                 float* scores) {
  int tile = group.first_tile;
  for (; tile + kScoreTiles <= group.end_tile; tile += kScoreTiles) {
    score_tiles<kType, kRows, kScoreTiles, kAhead>(queries, group, next, tile, head_dim, scores);
  }
  if constexpr (kScoreTiles > 1) {
    for (; tile < group.end_tile; ++tile) {
      score_tiles<kType, kRows, 1, kAhead>(queries, group, next, tile, head_dim, scores);
    }
  }
}

// Adds sum over positions [low, high) of weights[r][j] * values[j] to target[r], for the vectors
// [d, d + kLanes * kVectors). If kFinish, the sum starts from 0 and target = target * alpha[r] + sum. With
// kAhead it also asks for the same part of the values of `next`.
template <DType kType, int kRows, int kVectors, bool kFinish, bool kAhead>
inline void weigh_vectors(const float* weights, const Group& group, const Group& next, int low, int high,
                          const Sizes& sizes, std::int64_t d, const float* alpha, float* target) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sums[r][c] = kFinish ? v_zero() : v_load(target + r * sizes.padded_dim + d + c * kLanes);
    }
  }
  for (int tile = low / kLanes; tile * kLanes < high; ++tile) {
    const int begin = low > tile * kLanes ? low - tile * kLanes : 0;
    const int end = high < (tile + 1) * kLanes ? high - tile * kLanes : kLanes;
    const float* tile_weights = weights + tile * kLanes;
    std::int64_t index = begin * sizes.value_stride + d;
    for (int j = begin; j < end; ++j, index += sizes.value_stride) {
      Vec value[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        value[c] = load_as<kType>(group.values[tile], index + c * kLanes);
        if constexpr (kAhead) {
          if (c * kLanes * element_bytes(kType) % 64 == 0) {
            prefetch(next.values[tile] + (index + c * kLanes) * element_bytes(kType));
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec weight = v_splat(tile_weights[r * kGroup + j]);
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) sums[r][c] = v_fma(weight, value[c], sums[r][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* place = target + r * sizes.padded_dim + d + c * kLanes;
      v_store(place, kFinish ? v_fma(v_load(place), v_splat(alpha[r]), sums[r][c]) : sums[r][c]);
    }
  }
}

template <DType kType, int kRows, bool kFinish, bool kAhead>
void weigh_values(const float* weights, const Group& group, const Group& next, int low, int high,
                  const Sizes& sizes, const float* alpha, float* target) {
  constexpr int kVectors = value_vectors(kRows);
  std::int64_t d = 0;
  for (; d + kLanes * kVectors <= sizes.padded_dim; d += kLanes * kVectors) {
    weigh_vectors<kType, kRows, kVectors, kFinish, kAhead>(weights, group, next, low, high, sizes, d, alpha,
                                                           target);
  }
  for (; d < sizes.padded_dim; d += kLanes) {
    weigh_vectors<kType, kRows, 1, kFinish, kAhead>(weights, group, next, low, high, sizes, d, alpha, target);
  }
}

// One row's running softmax. scores [kGroup] become weights; positions outside [low, high) get weight 0
// whatever they hold. Returns alpha.
inline float softmax_step(float* scores, int low, int high, float tanh_scale, float* maximum, float* sum) {
  const Vec lowest = v_splat(-__builtin_inff());
  Vec x[kGroupTiles];
  Vec largest = lowest;
#pragma GCC unroll 8
  for (int t = 0; t < kGroupTiles; ++t) {
    x[t] = v_load(scores + t * kLanes);
    if (tanh_scale != 0) x[t] = v_mul(v_tanh(x[t]), v_splat(tanh_scale));
    const int from = low - t * kLanes;
    const int to = high - t * kLanes;
    if (from > 0 || to < kLanes) {
      const int begin = from < 0 ? 0 : from > kLanes ? kLanes : from;
      const int end = to < begin ? begin : to > kLanes ? kLanes : to;
      x[t] = v_keep(x[t], begin, end, lowest);
    }
    largest = v_max(x[t], largest);
  }
  float alpha = 1.0f;
  if (v_any_greater(largest, v_splat(*maximum))) {
    const float old = *maximum;
    *maximum = v_max_lanes(largest);
    float lanes[kLanes];
    v_store(lanes, v_exp2_nonpositive(v_splat(old - *maximum)));
    alpha = lanes[0];
  }
  Vec added = v_zero();
#pragma GCC unroll 8
  for (int t = 0; t < kGroupTiles; ++t) {
    x[t] = v_exp2_nonpositive(v_sub(x[t], v_splat(*maximum)));
    v_store(scores + t * kLanes, x[t]);
    added = v_add(added, x[t]);
  }
  v_store(sum, v_fma(v_load(sum), v_splat(alpha), added));
  return alpha;
}

// The operations on one row block, for each number of rows.
using ScoreOp = void (*)(const float* queries, const Group& group, const Group& next, std::int64_t head_dim,
                         float* scores);
using WeighOp = void (*)(const float* weights, const Group& group, const Group& next, int low, int high,
                         const Sizes& sizes, const float* alpha, float* target);
struct RowBlockOps {
  ScoreOp score[2];  // [1] also prefetches the next group
  WeighOp weigh[2];
  WeighOp weigh_part;
};
template <DType kType, int kRows>
constexpr RowBlockOps row_block_ops() {
  return {{&score_group<kType, kRows, false>, &score_group<kType, kRows, true>},
          {&weigh_values<kType, kRows, true, false>, &weigh_values<kType, kRows, true, true>},
          &weigh_values<kType, kRows, false, false>};
}
struct OpsTable {
  RowBlockOps by_rows[kMaxRows + 1] = {};  // [0] is unused
};
template <DType kType, int kRows = kMaxRows>
constexpr void fill_ops(OpsTable& table) {
  table.by_rows[kRows] = row_block_ops<kType, kRows>();
  if constexpr (kRows > 1) fill_ops<kType, kRows - 1>(table);
}
template <DType kType>
constexpr OpsTable make_ops() {
  OpsTable table;
  fill_ops<kType>(table);
  return table;
}
constexpr OpsTable kOps[] = {make_ops<DType::kF32>(), make_ops<DType::kF16>(), make_ops<DType::kBf16>()};
static_assert(static_cast<int>(DType::kF32) == 0 && static_cast<int>(DType::kF16) == 1 &&
              static_cast<int>(DType::kBf16) == 2);

// Finds or gathers the keys and values of one group for one unit.
class GroupReader {
 public:
  // in_place: the kernels read the cache itself; otherwise float32 copies in scratch (the same values, bit
  // for bit: the conversions are exact).
  GroupReader(const AttentionTile& tile, const Sizes& sizes, bool in_place, float* scratch)
      : cache_(tile),
        padded_dim_(sizes.padded_dim),
        in_place_(in_place),
        keys_(scratch),
        values_(keys_ + kGroup * padded_dim_),
        raw_(values_ + kGroup * padded_dim_) {}
  static constexpr std::int64_t scratch_floats(std::int64_t padded_dim) {
    return (2 * kGroup + kLanes) * padded_dim;
  }

  // The group that begins at position `start`; only positions [low, high) of the sequence are needed, and
  // blocks without one of them are not touched (a block outside the window may be gone).
  Group read(std::int64_t start, std::int64_t low, std::int64_t high) const {
    Group group = {};
    group.first_tile = low > start ? static_cast<int>((low - start) / kLanes) : 0;
    group.end_tile = static_cast<int>((min_of(high, start + kGroup) - start + kLanes - 1) / kLanes);
    for (int t = group.first_tile; t < group.end_tile; ++t) {
      const std::int64_t position = start + t * kLanes;
      if (in_place_) {
        group.keys[t] = cache_.keys_at(position);
        group.values[t] = cache_.values_at(position);
        continue;
      }
      float* keys = keys_ + t * kLanes * padded_dim_;
      float* values = values_ + t * kLanes * padded_dim_;
      group.keys[t] = reinterpret_cast<const std::byte*>(keys);
      group.values[t] = reinterpret_cast<const std::byte*>(values);
      cache_.gather(position, low, high, keys, values, raw_);
    }
    // Absent tiles have a place too, so that prefetching one is harmless.
    for (int t = 0; t < kGroupTiles; ++t) {
      if (t >= group.first_tile && t < group.end_tile) continue;
      group.keys[t] = group.keys[group.first_tile];
      group.values[t] = group.values[group.first_tile];
    }
    return group;
  }

 private:
  CacheReader cache_;
  std::int64_t padded_dim_;
  bool in_place_;
  float* keys_;    // [kGroupTiles, padded_dim, kLanes]
  float* values_;  // [kGroup, padded_dim]
  float* raw_;     // [kLanes * padded_dim]
};

// Values for rows that do not all see the same positions: what all see goes together, the rest row by row,
// each row in ascending order.
inline void weigh_uneven(const OpsTable& ops, int num_rows, const Visible* visible, const float* weights,
                         const Group& group, const Sizes& sizes, const float* alpha, float* part,
                         float* totals) {
  int low = 0;
  int high = static_cast<int>(kGroup);
  for (int r = 0; r < num_rows; ++r) {
    low = visible[r].low > low ? static_cast<int>(visible[r].low) : low;
    high = visible[r].high < high ? static_cast<int>(visible[r].high) : high;
  }
  const bool have_common = low < high;
  for (std::int64_t i = 0; i < num_rows * sizes.padded_dim; ++i) part[i] = 0;
  const auto one_row = [&](int r, std::int64_t from, std::int64_t to) {
    if (from < to) {
      ops.by_rows[1].weigh_part(weights + r * kGroup, group, group, static_cast<int>(from),
                                static_cast<int>(to), sizes, nullptr, part + r * sizes.padded_dim);
    }
  };
  for (int r = 0; r < num_rows; ++r) one_row(r, visible[r].low, have_common ? low : visible[r].high);
  if (have_common) {
    ops.by_rows[num_rows].weigh_part(weights, group, group, low, high, sizes, nullptr, part);
    for (int r = 0; r < num_rows; ++r) one_row(r, high, visible[r].high);
  }
  for (int r = 0; r < num_rows; ++r) {
    if (visible[r].low >= visible[r].high) continue;
    for (std::int64_t d = 0; d < sizes.padded_dim; d += kLanes) {
      float* total = totals + r * sizes.padded_dim + d;
      v_store(total, v_fma(v_load(total), v_splat(alpha[r]), v_load(part + r * sizes.padded_dim + d)));
    }
  }
}

constexpr std::int64_t row_scratch_floats(std::int64_t num_rows, std::int64_t padded_dim) {
  // Queries, lanes of the sums, two states.
  return num_rows * (padded_dim + kLanes) + 2 * attention_state_floats(num_rows, padded_dim);
}
std::size_t scratch_bytes(std::int64_t head_dim) {
  const std::int64_t padded_dim = round_up_to_lanes(head_dim);
  const std::int64_t floats = row_scratch_floats(kMaxUnitRows, padded_dim) +
                              kMaxRows * (padded_dim + kGroup) + GroupReader::scratch_floats(padded_dim);
  return static_cast<std::size_t>(floats) * sizeof(float) + std::size_t{64} * 8;  // each piece is aligned
}

// One unit at work.
class Unit {
 public:
  explicit Unit(const AttentionTile& tile)
      : tile_(tile),
        num_rows_(static_cast<int>(tile.num_queries * tile.num_heads)),
        num_blocks_((num_rows_ + kMaxRows - 1) / kMaxRows),
        scratch_(tile.scratch) {
    sizes_.head_dim = tile.head_dim;
    sizes_.padded_dim = round_up_to_lanes(tile.head_dim);
    sizes_.tanh_scale = tile.softcap > 0 ? tile.softcap * kLog2E : 0.0f;
    // Reading 16-bit values in place converts them once per row block, a copy once per unit.
    in_place_ = tile.tile_width == kLanes && tile.head_dim == sizes_.padded_dim &&
                (tile.dtype == DType::kF32 || num_blocks_ <= 2);
    sizes_.value_stride = sizes_.padded_dim;
    queries_ = scratch_.take<float>(num_rows_ * sizes_.padded_dim);
    sums_ = scratch_.take<float>(num_rows_ * kLanes);
    part_ = scratch_.take<float>(kMaxRows * sizes_.padded_dim);
    scores_ = scratch_.take<float>(kMaxRows * kGroup);
    group_ = scratch_.take<float>(GroupReader::scratch_floats(sizes_.padded_dim));
    states_ = scratch_.take<float>(2 * attention_state_floats(num_rows_, tile.head_dim));
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
        float* to = queries_ + first * sizes_.padded_dim + r;
        for (std::int64_t d = 0; d < tile_.head_dim; ++d) to[d * count] = from[d] * factor;
      }
    }
  }

  void walk(std::int64_t split, const State& state) {
    const OpsTable& ops = kOps[in_place_ ? static_cast<int>(tile_.dtype) : 0];
    const GroupReader reader(tile_, sizes_, in_place_, group_);
    for (std::int64_t i = 0; i < num_rows_ * sizes_.padded_dim; ++i) state.totals[i] = 0;
    for (int i = 0; i < num_rows_ * kLanes; ++i) sums_[i] = 0;
    for (int r = 0; r < num_rows_; ++r) state.maximum(r) = -__builtin_inff();

    // The positions that some row sees.
    const std::int64_t begin = max_of(row_sees(tile_, 0).low, split * kSplit);
    const std::int64_t end = min_of(row_sees(tile_, num_rows_ - 1).high, (split + 1) * kSplit);
    for (std::int64_t start = begin / kGroup * kGroup; start < end; start += kGroup) {
      const Group group = reader.read(start, begin, end);
      const bool have_next = in_place_ && start + kGroup < end;
      const Group next = have_next ? reader.read(start + kGroup, begin, end) : group;
      for (int b = 0; b < num_blocks_; ++b) {
        weigh_block(ops, b, start, group, next, have_next && b == 0 ? 1 : 0, state);
      }
    }
    for (int r = 0; r < num_rows_; ++r) state.sum(r) = v_sum_lanes(v_load(sums_ + r * kLanes));
  }

  void weigh_block(const OpsTable& ops, int block, std::int64_t start, const Group& group, const Group& next,
                   int ahead, const State& state) {
    const int first = first_row(block);
    const int count = first_row(block + 1) - first;
    Visible visible[kMaxRows];
    bool any = false;
    bool even = true;
    for (int r = 0; r < count; ++r) {
      visible[r] = row_sees(tile_, first + r, start, kGroup);
      any = any || visible[r].low < visible[r].high;
      even = even && visible[r].low == visible[0].low && visible[r].high == visible[0].high;
    }
    if (!any) return;
    const RowBlockOps& block_ops = ops.by_rows[count];
    block_ops.score[ahead](queries_ + first * sizes_.padded_dim, group, next, sizes_.head_dim, scores_);
    float alpha[kMaxRows];
    for (int r = 0; r < count; ++r) {
      if (visible[r].low >= visible[r].high) continue;
      alpha[r] = softmax_step(scores_ + r * kGroup, static_cast<int>(visible[r].low),
                              static_cast<int>(visible[r].high), sizes_.tanh_scale, &state.maximum(first + r),
                              sums_ + (first + r) * kLanes);
    }
    float* totals = state.totals + first * sizes_.padded_dim;
    if (even) {
      block_ops.weigh[ahead](scores_, group, next, static_cast<int>(visible[0].low),
                             static_cast<int>(visible[0].high), sizes_, alpha, totals);
    } else {
      weigh_uneven(ops, count, visible, scores_, group, sizes_, alpha, part_, totals);
    }
  }

  const AttentionTile& tile_;
  const int num_rows_;
  const int num_blocks_;
  Scratch scratch_;
  Sizes sizes_;
  bool in_place_;
  float* queries_;  // per row block [head_dim, rows of the block]
  float* sums_;     // [num_rows, kLanes]
  float* part_;     // [kMaxRows, padded_dim]
  float* scores_;   // [rows of the block, kGroup]
  float* group_;
  float* states_;
};

void run_tile(const AttentionTile& tile) {
  Unit(tile).run();
}

}  // namespace
}  // namespace quire::cpu
