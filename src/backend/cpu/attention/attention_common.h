// Purpose: what the attention kernels share: where a run of 16 positions lies in the paged cache, its
// conversion to float32, which positions a row sees, and the merging of splits. Include after a
// simd/vec16_*.h and simd/vec_math.h. Internal linkage.
#pragma once

namespace quire::cpu {
namespace {

inline constexpr int kLanes = 16;
inline constexpr float kLog2E = 1.44269504f;
// Below every score, in units of log2: a maximum to start from that keeps differences finite.
inline constexpr float kLowest = -1e30f;

template <DType kType>
inline Vec load_as(const std::byte* p, std::int64_t index) {
  if constexpr (kType == DType::kF32) return v_load(reinterpret_cast<const float*>(p) + index);
  if constexpr (kType == DType::kF16) return v_load_f16(reinterpret_cast<const std::uint16_t*>(p) + index);
  if constexpr (kType == DType::kBf16) return v_load_bf16(reinterpret_cast<const std::uint16_t*>(p) + index);
}

constexpr std::int64_t element_bytes(DType type) {
  return type == DType::kF32 ? 4 : 2;
}

constexpr std::int64_t round_up_to_lanes(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

inline std::int64_t min_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
inline std::int64_t max_of(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// Hands out 64-byte aligned pieces of the unit's scratch.
class Scratch {
 public:
  explicit Scratch(std::byte* begin) : next_(begin) {}
  template <typename T>
  T* take(std::int64_t count) {
    T* taken = reinterpret_cast<T*>(next_);
    next_ += bytes<T>(count);
    return taken;
  }
  template <typename T>
  static constexpr std::size_t bytes(std::int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
  }

 private:
  std::byte* next_;
};

// Converts count elements; those past the last whole vector are read only as far as they go.
inline void widen(const std::byte* from, DType type, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    v_store(to + i, type == DType::kF32   ? load_as<DType::kF32>(from, i)
                    : type == DType::kF16 ? load_as<DType::kF16>(from, i)
                                          : load_as<DType::kBf16>(from, i));
  }
  if (i == count) return;
  if (type == DType::kF32) {
    v_store_first(to + i, v_load_first(reinterpret_cast<const float*>(from) + i, count - i), count - i);
    return;
  }
  std::uint16_t rest[kLanes] = {};
  const std::uint16_t* half = reinterpret_cast<const std::uint16_t*>(from) + i;
  for (std::int64_t j = 0; j < count - i; ++j) rest[j] = half[j];
  v_store_first(to + i, type == DType::kF16 ? v_load_f16(rest) : v_load_bf16(rest), count - i);
}

// Finds positions of one sequence in the cache.
class CacheReader {
 public:
  explicit CacheReader(const AttentionTile& tile)
      : tile_(tile), padded_dim_(round_up_to_lanes(tile.head_dim)) {}

  // position is a multiple of the tile width.
  const std::byte* keys_at(std::int64_t position) const {
    const std::int64_t block = tile_.block_table[position / tile_.block_size];
    return tile_.areas + static_cast<std::size_t>(block) * tile_.block_stride_bytes +
           position % tile_.block_size * tile_.head_dim * element_bytes(tile_.dtype);
  }
  const std::byte* values_at(std::int64_t position) const {
    return keys_at(position) + tile_.value_offset_bytes;
  }
  // Float32 copies of kLanes positions from `position` (a multiple of kLanes) on, for any tile width and
  // head_dim: keys [head_dim, kLanes], values [kLanes, padded_dim] with zeros behind head_dim. Only tiles
  // with a position in [low, high) are read (a block outside may be gone); the places of others keep what
  // they held. raw: kLanes * padded_dim floats.
  void gather(std::int64_t position, std::int64_t low, std::int64_t high, float* keys, float* values,
              float* raw) const {
    for (std::int64_t lane = 0; lane < kLanes; lane += tile_.tile_width) {
      if (position + lane + tile_.tile_width > low && position + lane < high) {
        gather_tile(position + lane, lane, keys, values, raw);
      }
    }
  }

 private:
  void gather_tile(std::int64_t position, std::int64_t lane, float* keys, float* values, float* raw) const {
    const std::int64_t width = tile_.tile_width;
    const std::int64_t head_dim = tile_.head_dim;
    const std::byte* from_values = values_at(position);
    if (width == kLanes) {
      widen(keys_at(position), tile_.dtype, head_dim * width, keys);
    } else {
      widen(keys_at(position), tile_.dtype, head_dim * width, raw);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        for (std::int64_t i = 0; i < width; ++i) keys[d * kLanes + lane + i] = raw[d * width + i];
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      float* to = values + (lane + i) * padded_dim_;
      widen(from_values + i * head_dim * element_bytes(tile_.dtype), tile_.dtype, head_dim, to);
      for (std::int64_t d = head_dim; d < padded_dim_; ++d) to[d] = 0;
    }
  }

  const AttentionTile& tile_;
  std::int64_t padded_dim_;
};

// Which positions a row sees: [low, high).
struct Visible {
  std::int64_t low;
  std::int64_t high;
};
inline Visible row_sees(const AttentionTile& tile, int row) {
  const std::int64_t position = tile.first_position + row / tile.num_heads;
  const std::int64_t oldest = tile.window > 0 ? position - tile.window + 1 : 0;
  return {max_of(tile.visible_begin, oldest), min_of(position + 1, tile.visible_end)};
}
// The same, within `count` positions from `start` on and counted from there.
inline Visible row_sees(const AttentionTile& tile, int row, std::int64_t start, std::int64_t count) {
  const Visible all = row_sees(tile, row);
  return {min_of(max_of(all.low - start, 0), count), min_of(max_of(all.high - start, 0), count)};
}

// The state of the rows of a unit: see attention_state_floats.
struct State {
  float* totals;  // [num_rows, padded_dim]
  float* maximum_and_sum;

  State(float* memory, std::int64_t num_rows, std::int64_t padded_dim)
      : totals(memory), maximum_and_sum(memory + num_rows * padded_dim) {}
  float& maximum(int row) const { return maximum_and_sum[2 * row]; }
  float& sum(int row) const { return maximum_and_sum[2 * row + 1]; }
};

// Merges the state of `split` into what the splits before it gave. Rows that see nothing of a split skip it;
// a row's first split is copied.
inline void merge_split(const AttentionTile& tile, std::int64_t split, const State& from, const State& into) {
  const std::int64_t padded_dim = round_up_to_lanes(tile.head_dim);
  const int num_rows = static_cast<int>(tile.num_queries * tile.num_heads);
  for (int r = 0; r < num_rows; ++r) {
    const Visible visible = row_sees(tile, r);
    if (visible.low >= (split + 1) * kSplit || visible.high <= split * kSplit) continue;
    if (visible.low >= visible.high) continue;
    const float* part = from.totals + r * padded_dim;
    float* total = into.totals + r * padded_dim;
    const bool is_first = tile.sink_state == nullptr && (visible.low >= split * kSplit || split == 0);
    if (is_first) {
      for (std::int64_t d = 0; d < padded_dim; d += kLanes) v_store(total + d, v_load(part + d));
      into.maximum(r) = from.maximum(r);
      into.sum(r) = from.sum(r);
      continue;
    }
    const float larger = from.maximum(r) > into.maximum(r) ? from.maximum(r) : into.maximum(r);
    const Vec old_factor = v_exp2_nonpositive(v_splat(into.maximum(r) - larger));
    const Vec new_factor = v_exp2_nonpositive(v_splat(from.maximum(r) - larger));
    for (std::int64_t d = 0; d < padded_dim; d += kLanes) {
      v_store(total + d, v_fma(v_load(total + d), old_factor, v_mul(v_load(part + d), new_factor)));
    }
    float sum[kLanes];
    v_store(sum, v_fma(v_splat(into.sum(r)), old_factor, v_mul(v_splat(from.sum(r)), new_factor)));
    into.maximum(r) = larger;
    into.sum(r) = sum[0];
  }
}

inline void write_out(const AttentionTile& tile, const State& state) {
  const std::int64_t padded_dim = round_up_to_lanes(tile.head_dim);
  const int num_rows = static_cast<int>(tile.num_queries * tile.num_heads);
  for (int r = 0; r < num_rows; ++r) {
    float* to = tile.out + r / tile.num_heads * tile.row_stride + r % tile.num_heads * tile.head_dim;
    const Vec inverse = v_splat(1.0f / state.sum(r));
    for (std::int64_t d = 0; d < tile.head_dim; d += kLanes) {
      const Vec total = v_load(state.totals + r * padded_dim + d);
      v_store_first(to + d, v_mul(total, inverse), min_of(tile.head_dim - d, kLanes));
    }
  }
}

// Calls walk(split, state) for the splits of the unit, which fills the state, and merges or hands out the
// states. memory: two states, used only where the states are not handed out.
template <typename Walk>
inline void for_each_split(const AttentionTile& tile, float* memory, const Walk& walk) {
  const std::int64_t num_rows = tile.num_queries * tile.num_heads;
  const std::int64_t padded_dim = round_up_to_lanes(tile.head_dim);
  const std::int64_t state_floats = attention_state_floats(num_rows, tile.head_dim);
  if (tile.states != nullptr) {
    for (std::int64_t split = tile.first_split; split < tile.end_split; ++split) {
      walk(split, State(tile.states + (split - tile.first_split) * state_floats, num_rows, padded_dim));
    }
    return;
  }
  const State one(memory, num_rows, padded_dim);
  if (tile.end_split - tile.first_split == 1) {
    walk(tile.first_split, one);
    write_out(tile, one);
    return;
  }
  const State all(memory + state_floats, num_rows, padded_dim);
  for (std::int64_t split = tile.first_split; split < tile.end_split; ++split) {
    walk(split, one);
    merge_split(tile, split, one, all);
  }
  write_out(tile, all);
}

// AttentionKernel::merge.
void merge_states(const AttentionTile& tile) {
  const std::int64_t num_rows = tile.num_queries * tile.num_heads;
  const std::int64_t padded_dim = round_up_to_lanes(tile.head_dim);
  const std::int64_t state_floats = attention_state_floats(num_rows, tile.head_dim);
  const State all(reinterpret_cast<float*>(tile.scratch), num_rows, padded_dim);
  if (tile.sink_state != nullptr) {  // every row sees some
    __builtin_memcpy(tile.scratch, tile.sink_state, static_cast<std::size_t>(state_floats) * sizeof(float));
  }
  for (std::int64_t split = tile.first_split; split < tile.end_split; ++split) {
    merge_split(tile, split,
                State(tile.states + (split - tile.first_split) * state_floats, num_rows, padded_dim), all);
  }
  write_out(tile, all);
}

}  // namespace
}  // namespace quire::cpu
