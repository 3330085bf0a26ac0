#include "backend/cpu/gemm/linear.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/elementwise/elementwise.h"
#include "base/check.h"

namespace quire::cpu::gemm {
namespace {

// Below this much work a call stays on its own thread: waking the others costs some microseconds.
constexpr std::int64_t kMinParallelMacs = 64 * 1024;
constexpr std::int64_t kMinParallelValues = 32 * 1024;

// Inlined, so that a whole tile's row has a constant size.
inline void put(const float* from, std::int64_t columns, bool accumulate, float* to) {
  if (accumulate) {
    for (std::int64_t c = 0; c < columns; ++c) to[c] += from[c];
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
  }
}

// sums: [num_rows, 16]
void add_bias(const float* bias, std::int64_t begin, std::int64_t columns, int num_rows, float* sums) {
  if (bias == nullptr) return;
  for (int r = 0; r < num_rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) sums[r * kTileCols + c] += bias[begin + c];
}

}  // namespace

Linear::Linear(Isa isa, ComputeMode mode, const CpuTuning& tuning, ThreadPool& pool)
    : mode_(mode),
      tuning_(tuning),
      pool_(pool),
      kernels_(select_kernels(isa)),
      elementwise_(elementwise_kernel(isa)) {
  QUIRE_CHECK(tuning_.panel_rows > 0 && tuning_.panel_rows <= kPanelRows);
  QUIRE_CHECK_GT(tuning_.parts_per_thread, 0);
  QUIRE_CHECK(tuning_.min_part_bytes > 0 && tuning_.min_part_bytes <= tuning_.max_part_bytes);
  if (kernels_.amx != nullptr) amx_.emplace(*kernels_.amx, elementwise_, tuning_, pool_);
}

// Quantized weights: int8 where the mode says so and the target does not mind, else 16 bits, which also
// `bf16` means for them (more exact than bfloat16 and as fast). Float weights have no integer dot product:
// both modes round their activations to bfloat16 only where a native dot product gains from it.
Linear::Form Linear::form_of(const PackedWeight& packed, bool finer) const {
  if (mode_ == ComputeMode::kF32) return kF32;
  const CpuWeight& weight = CpuWeight::cast(packed);
  if (weight.is_quantized()) return mode_ == ComputeMode::kInt8 && !finer ? kInt8 : kInt16;
  const bool rounds = mode_ == ComputeMode::kInt8 || !finer;
  const bool has_kernel =
      kernels_.dense_bf16 != nullptr && static_cast<const DenseWeight&>(weight).storage() == DType::kBf16;
  return rounds && has_kernel ? kBf16 : kF32;
}

ComputeMode Linear::mode_of(const LinearTarget& target) const {
  if (AmxLinear::is_packed_for_amx(*target.weight)) return ComputeMode::kBf16;
  const Form form = form_of(*target.weight, target.finer_activations);
  return form == kInt8 ? ComputeMode::kInt8 : form == kF32 ? ComputeMode::kF32 : ComputeMode::kBf16;
}

void Linear::prepare(const bool (&wanted)[kNumForms], const LinearInput& input, std::int64_t k) {
  constexpr std::size_t kBlockBytes[kNumForms] = {sizeof(Int8Block), sizeof(Int16Block), sizeof(F32Block),
                                                  sizeof(Bf16Block)};
  const std::int64_t num_rows = input.num_rows;
  const std::int64_t num_blocks = (k + kBlockK - 1) / kBlockK;
  for (int form = 0; form < kNumForms; ++form) {
    const std::size_t bytes = static_cast<std::size_t>(num_rows * num_blocks) * kBlockBytes[form];
    if (wanted[form] && forms_[form].size() < bytes) forms_[form] = Buffer(bytes);
  }
  const ActivationTable& to = *kernels_.activations;
  const auto prepare_rows = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> normed(input.norm_weight == nullptr ? 0 : static_cast<std::size_t>(k));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* from = input.x + row * k;
      if (input.norm_weight != nullptr) {
        elementwise_.rms_norm(from, input.norm_weight, input.norm_eps, k, normed.data());
        from = normed.data();
      }
      const std::int64_t at = row * num_blocks;
      if (wanted[kInt8]) to.to_int8(from, k, num_blocks, forms_[kInt8].as<Int8Block>() + at);
      if (wanted[kInt16]) to.to_int16(from, k, num_blocks, forms_[kInt16].as<Int16Block>() + at);
      if (wanted[kF32]) to.to_f32(from, k, num_blocks, forms_[kF32].as<F32Block>() + at);
      if (wanted[kBf16]) to.to_bf16(from, k, num_blocks, forms_[kBf16].as<Bf16Block>() + at);
    }
  };
  if (num_rows * k < kMinParallelValues) return prepare_rows(0, num_rows);
  const std::int64_t step = std::max<std::int64_t>(1, kMinParallelValues / 4 / k);
  pool_.run((num_rows + step - 1) / step,
            [&](std::int64_t part) { prepare_rows(part * step, std::min(num_rows, (part + 1) * step)); });
}

// All targets go into one call of the pool, so that q, k and v, or gate and up, run side by side.
bool Linear::plan(std::int64_t num_rows, std::span<const LinearTarget> targets) {
  parts_.clear();
  std::size_t total_bytes = 0;
  std::int64_t total_macs = 0;
  for (const LinearTarget& target : targets) {
    for (const PackedWeight* weight : {target.weight, target.gate}) {
      if (weight == nullptr) continue;
      total_bytes += weight->num_bytes();
      total_macs += num_rows * weight->n() * weight->k();
    }
  }
  const auto part_bytes = static_cast<std::size_t>(
      std::clamp(static_cast<std::int64_t>(total_bytes) / (pool_.num_threads() * tuning_.parts_per_thread),
                 tuning_.min_part_bytes, tuning_.max_part_bytes));
  const bool alone = pool_.num_threads() == 1 || total_macs < kMinParallelMacs;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const CpuWeight& weight = CpuWeight::cast(*targets[i].weight);
    const std::int64_t num_tiles = weight.num_tiles();
    const std::size_t tile_bytes =
        weight.tile_bytes() +
        (targets[i].gate == nullptr ? 0 : CpuWeight::cast(*targets[i].gate).tile_bytes());
    // On one thread parts still matter for many rows: each panel of rows passes over one part's weights.
    const std::int64_t step =
        alone && num_rows <= tuning_.panel_rows
            ? num_tiles
            : std::max<std::int64_t>(1, static_cast<std::int64_t>(part_bytes / tile_bytes / kMaxTiles)) *
                  kMaxTiles;
    for (std::int64_t first = 0; first < num_tiles; first += step)
      parts_.push_back({i, first, std::min(step, num_tiles - first)});
  }
  return !alone;
}

void Linear::run_tiles(const CpuWeight& weight, Form form, const Span& span, float* sums) const {
  const std::int64_t num_blocks = weight.num_blocks();
  const std::int64_t offset = span.first_row * num_blocks;
  if (weight.is_quantized()) {
    const auto& grouped = static_cast<const GroupedWeight&>(weight);
    const int bits = grouped.bits_index();
    const int segment = grouped.segment_index();
    GroupedTile tiles[kMaxTiles];
    for (int i = 0; i < span.num_tiles; ++i) tiles[i] = grouped.tile(span.first_tile + i);
    if (form == kInt8) {
      kernels_.grouped_int8->kernels[bits][segment](
          tiles, span.num_tiles, forms_[kInt8].as<Int8Block>() + offset, num_blocks, span.num_rows, sums);
    } else if (form == kInt16) {
      kernels_.grouped_int16->kernels[bits][segment](
          tiles, span.num_tiles, forms_[kInt16].as<Int16Block>() + offset, num_blocks, span.num_rows, sums);
    } else {
      kernels_.grouped_f32->kernels[bits][segment](
          tiles, span.num_tiles, forms_[kF32].as<F32Block>() + offset, num_blocks, span.num_rows, sums);
    }
    return;
  }
  const auto& dense = static_cast<const DenseWeight&>(weight);
  const DenseTiles tiles = {dense.tile(span.first_tile), static_cast<std::int64_t>(dense.tile_bytes()),
                            num_blocks};
  if (form == kBf16) {
    kernels_.dense_bf16->kernel(tiles, span.num_tiles, forms_[kBf16].as<Bf16Block>() + offset, num_blocks,
                                span.num_rows, sums);
  } else {
    kernels_.dense_f32->kernels[static_cast<int>(dense.storage())](
        tiles, span.num_tiles, forms_[kF32].as<F32Block>() + offset, num_blocks, span.num_rows, sums);
  }
}

// From sums of some tiles to the target: bias, gate, residual.
void Linear::finish(const LinearTarget& target, const Span& span, float* sums, float* gates) const {
  const std::int64_t n = target.weight->n();
  for (int t = 0; t < span.num_tiles; ++t) {
    const std::int64_t begin = (span.first_tile + t) * kTileCols;
    const std::int64_t columns = std::min<std::int64_t>(kTileCols, n - begin);
    float* tile = sums + t * span.num_rows * kTileCols;
    add_bias(target.bias, begin, columns, span.num_rows, tile);
    if (target.gate != nullptr) {
      float* gate = gates + t * span.num_rows * kTileCols;
      add_bias(target.gate_bias, begin, columns, span.num_rows, gate);
      elementwise_.silu_mul(gate, tile, span.num_rows * kTileCols, tile);
    }
    for (int r = 0; r < span.num_rows; ++r) {
      const float* from = tile + r * kTileCols;
      float* to = target.out + (span.first_row + r) * n + begin;
      if (columns == kTileCols) {
        put(from, kTileCols, target.accumulate, to);
      } else {
        put(from, columns, target.accumulate, to);
      }
    }
  }
}

void Linear::run_part(const Part& part, std::int64_t num_rows, const LinearTarget& target) const {
  const CpuWeight& weight = CpuWeight::cast(*target.weight);
  const Form form = form_of(*target.weight, target.finer_activations);
  const CpuWeight* gate = target.gate == nullptr ? nullptr : &CpuWeight::cast(*target.gate);
  const Form gate_form = gate == nullptr ? form : form_of(*target.gate, target.finer_activations);
  alignas(64) float sums[kMaxTiles * kPanelRows * kTileCols];
  alignas(64) float gates[kMaxTiles * kPanelRows * kTileCols];
  const std::int64_t end_tile = part.first_tile + part.num_tiles;
  for (std::int64_t row = 0; row < num_rows; row += tuning_.panel_rows) {
    const auto rows = static_cast<int>(std::min(tuning_.panel_rows, num_rows - row));
    for (std::int64_t tile = part.first_tile; tile < end_tile; tile += kMaxTiles) {
      const Span span = {row, rows, tile,
                         static_cast<int>(std::min<std::int64_t>(kMaxTiles, end_tile - tile))};
      run_tiles(weight, form, span, sums);
      if (gate != nullptr) run_tiles(*gate, gate_form, span, gates);
      finish(target, span, sums, gates);
    }
  }
}

void Linear::run(const LinearInput& input, std::span<const LinearTarget> targets) {
  if (!amx_) return run_tiled(input, targets);
  amx_->run_mixed(input, targets, [&](std::span<const LinearTarget> others) { run_tiled(input, others); });
}

void Linear::run_tiled(const LinearInput& input, std::span<const LinearTarget> targets) {
  const std::int64_t num_rows = input.num_rows;
  if (num_rows == 0 || targets.empty()) return;
  const std::int64_t k = targets[0].weight->k();
  bool wanted[kNumForms] = {};
  for (const LinearTarget& target : targets) {
    QUIRE_CHECK_EQ(target.weight->k(), k);
    wanted[form_of(*target.weight, target.finer_activations)] = true;
    if (target.gate == nullptr) continue;
    QUIRE_CHECK_EQ(target.gate->k(), k);
    QUIRE_CHECK_EQ(target.gate->n(), target.weight->n());
    wanted[form_of(*target.gate, target.finer_activations)] = true;
  }
  prepare(wanted, input, k);
  const bool parallel = plan(num_rows, targets);
  const auto run_one = [&](std::int64_t i) {
    const Part& part = parts_[static_cast<std::size_t>(i)];
    run_part(part, num_rows, targets[part.target]);
  };
  const auto num_parts = static_cast<std::int64_t>(parts_.size());
  if (parallel) {
    pool_.run(num_parts, run_one);
  } else {
    for (std::int64_t i = 0; i < num_parts; ++i) run_one(i);
  }
}

void Linear::embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out) {
  const CpuWeight& weight = CpuWeight::cast(table);
  const std::int64_t k = weight.k();
  const auto embed_one = [&](std::int64_t i) {
    const std::int32_t id = ids[static_cast<std::size_t>(i)];
    QUIRE_CHECK(id >= 0 && id < weight.n()) << "token id " << id << " of " << weight.n();
    weight.dequantize_row(id, out + i * k);
  };
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count * k < kMinParallelValues) {
    for (std::int64_t i = 0; i < count; ++i) embed_one(i);
  } else {
    pool_.run(count, embed_one);
  }
}

}  // namespace quire::cpu::gemm
