#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>

#include "base/check.h"

namespace quire::cpu {
namespace {

// Rows of a unit below which reading the keys and values begins to count.
constexpr std::int64_t kFewRows = 64;
// That work, in rows.
constexpr std::int64_t kRowsPerRead = 4;
// Pieces per thread from which on the last piece's length no longer matters.
constexpr std::int64_t kEnoughPieces = 8;
// Piece::first_split of a unit's sinks.
constexpr std::int32_t kSinkPiece = -1;

static_assert(kMaxKvSinks == kSplit);

}  // namespace

Attention::Attention(Isa isa, ComputeMode mode, ThreadPool& pool)
    : kernels_(select_attention_kernels(isa, mode)),
      pool_(pool),
      scratch_(static_cast<std::size_t>(pool.num_threads())) {}

// Cuts the batch into units and pieces and puts the costly ones first, so that the threads end together. How
// a batch is cut changes no result: every row is computed alone, and its context always in the same splits.
void Attention::plan(const AttentionKernel& kernel, const KvSpec& spec, const AttentionShape& shape,
                     const AttentionParams& params) {
  const std::int64_t heads_per_kv = params.num_heads / spec.num_kv_heads;
  units_.clear();
  // Units of many rows share the reading of keys and values, but there should be enough units.
  std::int64_t max_rows = kernel.max_rows;
  for (; max_rows > kFewRows; max_rows /= 2) {
    const std::int64_t rows = shape.query_starts[shape.num_seqs] * params.num_heads;
    if (rows / max_rows >= kEnoughPieces / 2 * pool_.num_threads()) break;
  }
  for (std::int64_t s = 0; s < shape.num_seqs; ++s) {
    const std::int64_t num_queries = shape.query_starts[s + 1] - shape.query_starts[s];
    const std::int64_t first_position = shape.context_lens[s] - num_queries;
    QUIRE_CHECK_GE(num_queries, 0);
    QUIRE_CHECK_GE(first_position, 0);
    QUIRE_CHECK_LE(shape.context_lens[s], shape.block_table_stride * spec.block_size);
    const AttentionReach reach = attention_reach(shape, params, s);
    QUIRE_CHECK(reach.sinks >= 0 && reach.sinks <= kMaxKvSinks) << reach.sinks << " sinks";
    // Where the query at this position begins to see, behind the sinks.
    const auto oldest = [&](std::int64_t position) {
      return reach.window > 0 ? std::max(reach.sinks, position - reach.window + 1) : 0;
    };
    const auto check_blocks = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin / spec.block_size; b * spec.block_size < end; ++b) {
        const std::int32_t block = shape.block_tables[s * shape.block_table_stride + b];
        QUIRE_CHECK(block >= 0 && block < spec.num_blocks) << "block " << block << " of sequence " << s;
      }
    };
    check_blocks(0, std::min<std::int64_t>(reach.sinks, shape.context_lens[s]));
    check_blocks(oldest(first_position), shape.context_lens[s]);
    const std::int64_t head_step = std::min(heads_per_kv, max_rows);
    const std::int64_t query_step = std::max<std::int64_t>(1, max_rows / head_step);
    for (std::int64_t q = 0; q < num_queries; q += query_step) {
      const std::int64_t count = std::min(query_step, num_queries - q);
      const std::int64_t end = first_position + q + count;
      const std::int64_t begin = std::max<std::int64_t>(0, oldest(first_position + q));
      for (std::int64_t h = 0; h < params.num_heads;
           h += std::min(head_step, heads_per_kv - h % heads_per_kv)) {
        const std::int64_t num_heads = std::min(head_step, heads_per_kv - h % heads_per_kv);
        Unit unit;
        unit.cost = (count * num_heads + kRowsPerRead) * std::max<std::int64_t>(0, end - begin);
        unit.seq = static_cast<std::int32_t>(s);
        unit.head = static_cast<std::int32_t>(h);
        unit.num_heads = static_cast<std::int32_t>(num_heads);
        unit.first = static_cast<std::int32_t>(q);
        unit.count = static_cast<std::int32_t>(count);
        unit.first_split = static_cast<std::int32_t>(begin / kSplit);
        // The first queries may see nothing behind the sinks: then there is no split, as the kernels expect
        // some row to see some position of each.
        unit.end_split =
            begin < end ? static_cast<std::int32_t>((end + kSplit - 1) / kSplit) : unit.first_split;
        unit.sinks = reach.sinks;
        unit.window = reach.window;
        units_.push_back(unit);
      }
    }
  }
  clear_pieces();
  for (std::size_t u = 0; u < units_.size(); ++u) add_pieces(u, 1, spec.head_dim);
  const auto costly_first = [](const Piece& a, const Piece& b) { return a.cost > b.cost; };
  std::stable_sort(pieces_.begin(), pieces_.end(), costly_first);
  const auto num_pieces = static_cast<std::int64_t>(pieces_.size());
  if (pool_.num_threads() > 1 && num_pieces < kEnoughPieces * pool_.num_threads()) {
    cut(spec);
    std::stable_sort(pieces_.begin(), pieces_.end(), costly_first);
  }
  const std::size_t num_bytes = static_cast<std::size_t>(num_state_floats_) * sizeof(float);
  if (states_.size() < num_bytes) states_ = Buffer(num_bytes);
}

void Attention::clear_pieces() {
  pieces_.clear();
  cut_units_.clear();
  num_state_floats_ = 0;
}

// The unit's splits in so many pieces, and its sinks as one more.
void Attention::add_pieces(std::size_t index, std::int64_t num_parts, std::int64_t head_dim) {
  Unit& unit = units_[index];
  const auto u = static_cast<std::int32_t>(index);
  const std::int64_t num_splits = unit.end_split - unit.first_split;
  num_parts = std::min(num_parts, num_splits);
  for (std::int64_t i = 0; i < num_parts; ++i) {
    const auto first = static_cast<std::int32_t>(unit.first_split + i * num_splits / num_parts);
    const auto end = static_cast<std::int32_t>(unit.first_split + (i + 1) * num_splits / num_parts);
    pieces_.push_back({unit.cost * (end - first) / num_splits, u, first, end});
  }
  if (num_parts == 1 && unit.sinks == 0) return;
  if (unit.sinks > 0) {
    const std::int64_t cost = (unit.count * unit.num_heads + kRowsPerRead) * unit.sinks;
    pieces_.push_back({cost, u, kSinkPiece, kSinkPiece + 1});
  }
  cut_units_.push_back(u);
  unit.states = num_state_floats_;
  num_state_floats_ +=
      (num_splits + (unit.sinks > 0 ? 1 : 0)) * attention_state_floats(unit.count * unit.num_heads, head_dim);
}

// The time until the last thread ends, in cost, if each takes the next piece when it is free.
std::int64_t Attention::makespan() const {
  std::vector<std::int64_t> busy(static_cast<std::size_t>(pool_.num_threads()), 0);  // a heap, least on top
  for (const Piece& piece : pieces_) {
    std::pop_heap(busy.begin(), busy.end(), std::greater<>());
    busy.back() += piece.cost;
    std::push_heap(busy.begin(), busy.end(), std::greater<>());
  }
  return *std::max_element(busy.begin(), busy.end());
}

// Where whole units would leave threads idle for more than an eighth of the time, cuts the larger ones.
void Attention::cut(const KvSpec& spec) {
  std::int64_t total = 0;
  for (const Piece& piece : pieces_) total += piece.cost;
  const std::int64_t share = total / pool_.num_threads();
  if (makespan() <= share + share / 8) return;
  const std::int64_t aim = std::max<std::int64_t>(1, share / (kEnoughPieces / 2));
  clear_pieces();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    add_pieces(u, std::max<std::int64_t>(1, units_[u].cost / aim), spec.head_dim);
  }
}

void Attention::run(const float* q, const CpuKvCache& cache, std::int64_t layer, const AttentionShape& shape,
                    const AttentionParams& params, float* out) {
  const KvSpec& spec = cache.spec();
  QUIRE_CHECK_GT(params.num_heads, 0);
  QUIRE_CHECK_EQ(params.num_heads % spec.num_kv_heads, 0);
  const AttentionKernel& kernel = kernels_[spec.dtype];
  QUIRE_CHECK(cache.holds_integers() == (kernel.store != nullptr)) << "the cache was made for another kernel";
  plan(kernel, spec, shape, params);
  if (units_.empty()) return;

  const std::int64_t heads_per_kv = params.num_heads / spec.num_kv_heads;
  const std::size_t scratch_bytes = kernel.scratch_bytes(spec.head_dim);
  for (Buffer& scratch : scratch_) {
    if (scratch.size() < scratch_bytes) scratch = Buffer(scratch_bytes);
  }
  const std::byte* areas = cache.area(layer, 0, 0);
  const std::size_t head_bytes = cache.block_stride_bytes() / static_cast<std::size_t>(spec.num_kv_heads);
  const auto state_floats = [&](const Unit& unit) {
    return attention_state_floats(unit.count * unit.num_heads, spec.head_dim);
  };
  const auto tile_of = [&](const Unit& unit, std::int64_t thread) {
    AttentionTile tile;
    tile.row_stride = params.num_heads * spec.head_dim;
    tile.head_dim = spec.head_dim;
    tile.window = unit.window;
    tile.visible_begin = unit.sinks;
    tile.visible_end = std::numeric_limits<std::int64_t>::max();
    tile.scale = params.scale;
    tile.softcap = params.softcap;
    tile.block_stride_bytes = cache.block_stride_bytes();
    tile.value_offset_bytes = cache.value_offset_bytes();
    tile.scale_offset_bytes = cache.scale_offset_bytes();
    tile.block_size = spec.block_size;
    tile.tile_width = cache.tile_width();
    tile.dtype = spec.dtype;
    tile.scratch = scratch_[static_cast<std::size_t>(thread)].data();
    const std::int64_t num_queries = shape.query_starts[unit.seq + 1] - shape.query_starts[unit.seq];
    const std::int64_t place =
        (shape.query_starts[unit.seq] + unit.first) * tile.row_stride + unit.head * spec.head_dim;
    tile.q = q + place;
    tile.out = out + place;
    tile.num_queries = unit.count;
    tile.num_heads = unit.num_heads;
    tile.first_position = shape.context_lens[unit.seq] - num_queries + unit.first;
    tile.areas = areas + static_cast<std::size_t>(unit.head / heads_per_kv) * head_bytes;
    tile.block_table = shape.block_tables + unit.seq * shape.block_table_stride;
    tile.first_split = unit.first_split;
    tile.end_split = unit.end_split;
    tile.states = unit.states < 0 ? nullptr : states_.as<float>() + unit.states;
    tile.sink_state =
        unit.sinks > 0 ? tile.states + (unit.end_split - unit.first_split) * state_floats(unit) : nullptr;
    return tile;
  };
  // One part per thread, each with its own scratch; they take the pieces one by one.
  const auto take_each = [&](std::int64_t count, const auto& work) {
    std::atomic<std::int64_t> next{0};
    pool_.run(std::min<std::int64_t>(count, pool_.num_threads()), [&](std::int64_t thread) {
      for (;;) {
        const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= count) return;
        work(static_cast<std::size_t>(i), thread);
      }
    });
  };
  take_each(static_cast<std::int64_t>(pieces_.size()), [&](std::size_t i, std::int64_t thread) {
    const Piece& piece = pieces_[i];
    const Unit& unit = units_[static_cast<std::size_t>(piece.unit)];
    AttentionTile tile = tile_of(unit, thread);
    if (piece.first_split == kSinkPiece) {
      tile.q = shape.sink_q + (tile.q - q);
      tile.states += (unit.end_split - unit.first_split) * state_floats(unit);
      tile.window = 0;
      tile.visible_begin = 0;
      tile.visible_end = unit.sinks;
      tile.first_split = 0;
      tile.end_split = 1;
    } else {
      if (tile.states != nullptr) tile.states += (piece.first_split - unit.first_split) * state_floats(unit);
      tile.first_split = piece.first_split;
      tile.end_split = piece.end_split;
    }
    kernel.run(tile);
  });
  if (cut_units_.empty()) return;
  take_each(static_cast<std::int64_t>(cut_units_.size()), [&](std::size_t i, std::int64_t thread) {
    kernel.merge(tile_of(units_[static_cast<std::size_t>(cut_units_[i])], thread));
  });
}

}  // namespace quire::cpu
