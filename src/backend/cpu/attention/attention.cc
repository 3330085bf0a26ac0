#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace quire::cpu {
namespace {

const AttentionKernel& attention_kernel(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      return kAttentionAvx512;
#endif
    default:
      return kAttentionGeneric;
  }
}

}  // namespace

Attention::Attention(Isa isa, ThreadPool& pool)
    : kernel_(attention_kernel(isa)), pool_(pool), scratch_(static_cast<std::size_t>(pool.num_threads())) {}

// Cuts the batch into units and puts the costly ones first, so that the threads end together. How a batch is
// cut changes no result: every row is computed alone.
void Attention::plan(const KvSpec& spec, const AttentionShape& shape, const AttentionParams& params) {
  const std::int64_t heads_per_kv = params.num_heads / spec.num_kv_heads;
  units_.clear();
  for (std::int64_t s = 0; s < shape.num_seqs; ++s) {
    const std::int64_t num_queries = shape.query_starts[s + 1] - shape.query_starts[s];
    const std::int64_t first_position = shape.context_lens[s] - num_queries;
    QUIRE_CHECK_GE(num_queries, 0);
    QUIRE_CHECK_GE(first_position, 0);
    QUIRE_CHECK_LE(shape.context_lens[s], shape.block_table_stride * spec.block_size);
    const std::int64_t oldest =
        params.window > 0 ? std::max<std::int64_t>(0, first_position - params.window + 1) : 0;
    for (std::int64_t b = oldest / spec.block_size; b * spec.block_size < shape.context_lens[s]; ++b) {
      const std::int32_t block = shape.block_tables[s * shape.block_table_stride + b];
      QUIRE_CHECK(block >= 0 && block < spec.num_blocks) << "block " << block << " of sequence " << s;
    }
    const std::int64_t head_step = std::min(heads_per_kv, kMaxTileRows);
    const std::int64_t query_step = std::max<std::int64_t>(1, kMaxTileRows / head_step);
    for (std::int64_t q = 0; q < num_queries; q += query_step) {
      const std::int64_t count = std::min(query_step, num_queries - q);
      std::int64_t seen = first_position + q + count;
      if (params.window > 0) seen = std::min(seen, params.window + count);
      for (std::int64_t h = 0; h < params.num_heads;
           h += std::min(head_step, heads_per_kv - h % heads_per_kv)) {
        const std::int64_t num_heads = std::min(head_step, heads_per_kv - h % heads_per_kv);
        units_.push_back({count * num_heads * seen, static_cast<std::int32_t>(s),
                          static_cast<std::int32_t>(h), static_cast<std::int32_t>(num_heads),
                          static_cast<std::int32_t>(q), static_cast<std::int32_t>(count)});
      }
    }
  }
  std::stable_sort(units_.begin(), units_.end(),
                   [](const Unit& a, const Unit& b) { return a.cost > b.cost; });
}

void Attention::run(const float* q, const CpuKvCache& cache, std::int64_t layer, const AttentionShape& shape,
                    const AttentionParams& params, float* out) {
  const KvSpec& spec = cache.spec();
  QUIRE_CHECK_GT(params.num_heads, 0);
  QUIRE_CHECK_EQ(params.num_heads % spec.num_kv_heads, 0);
  plan(spec, shape, params);
  if (units_.empty()) return;

  const std::int64_t heads_per_kv = params.num_heads / spec.num_kv_heads;
  const std::size_t scratch_bytes =
      static_cast<std::size_t>(attention_scratch_floats(spec.head_dim)) * sizeof(float);
  for (Buffer& scratch : scratch_) {
    if (scratch.size() < scratch_bytes) scratch = Buffer(scratch_bytes);
  }
  const std::byte* areas = cache.area(layer, 0, 0);
  const std::size_t head_bytes = cache.block_stride_bytes() / static_cast<std::size_t>(spec.num_kv_heads);

  // One part per thread, each with its own scratch; they take the units one by one.
  const auto num_units = static_cast<std::int64_t>(units_.size());
  std::atomic<std::int64_t> next{0};
  pool_.run(std::min<std::int64_t>(num_units, pool_.num_threads()), [&](std::int64_t thread) {
    AttentionTile tile;
    tile.row_stride = params.num_heads * spec.head_dim;
    tile.head_dim = spec.head_dim;
    tile.window = params.window;
    tile.scale = params.scale;
    tile.softcap = params.softcap;
    tile.block_stride_bytes = cache.block_stride_bytes();
    tile.value_offset_bytes = cache.value_offset_bytes();
    tile.block_size = spec.block_size;
    tile.tile_width = cache.tile_width();
    tile.dtype = spec.dtype;
    tile.scratch = scratch_[static_cast<std::size_t>(thread)].as<float>();
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= num_units) return;
      const Unit& unit = units_[static_cast<std::size_t>(i)];
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
      kernel_.run(tile);
    }
  });
}

}  // namespace quire::cpu
