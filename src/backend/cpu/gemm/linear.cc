#include "backend/cpu/gemm/linear.h"

#include <algorithm>

#include "base/check.h"

namespace quire::cpu::gemm {
namespace {

// Below this much work a call stays on its own thread: waking the others costs some microseconds.
constexpr std::int64_t kMinParallelMacs = 64 * 1024;
constexpr std::int64_t kMinParallelValues = 32 * 1024;
// Parts per thread: enough to even out threads of unequal speed, few enough to keep a part's weights one
// long stream of memory. A part's weights stay in the second-level cache while row panels pass over them.
constexpr std::size_t kPartsPerThread = 8;
constexpr std::size_t kMinPartBytes = std::size_t{32} << 10;
constexpr std::size_t kMaxPartBytes = std::size_t{256} << 10;

}  // namespace

Linear::Linear(Isa isa, ComputeMode mode, ThreadPool& pool)
    : mode_(mode), pool_(pool), kernels_(select_kernels(isa)) {}

// Activations are rounded only for a kernel that gains from it: without a native bf16 dot product, and for
// weights stored as f32 or f16, bf16 mode keeps float32. Float weights have no integer dot product: int8 mode
// computes them as bf16 mode does.
Linear::Form Linear::form_of(const LinearTarget& target) const {
  const CpuWeight& weight = CpuWeight::cast(*target.weight);
  const bool quantized = weight.is_quantized();
  const bool has_bf16_kernel = quantized
                                   ? kernels_.grouped_bf16 != nullptr
                                   : kernels_.dense_bf16 != nullptr &&
                                         static_cast<const DenseWeight&>(weight).storage() == DType::kBf16;
  const bool finer = target.finer_activations;
  if (mode_ == ComputeMode::kInt8 && quantized && !finer) return kInt8;
  const bool rounds = mode_ == ComputeMode::kInt8 || (mode_ == ComputeMode::kBf16 && !finer);
  return rounds && has_bf16_kernel ? kBf16 : kF32;
}

ComputeMode Linear::mode_of(const LinearTarget& target) const {
  const Form form = form_of(target);
  return form == kInt8 ? ComputeMode::kInt8 : form == kBf16 ? ComputeMode::kBf16 : ComputeMode::kF32;
}

void Linear::prepare(Form form, const float* x, std::int64_t num_rows, std::int64_t k) {
  constexpr std::size_t kBlockBytes[kNumForms] = {sizeof(Int8Block), sizeof(F32Block), sizeof(Bf16Block)};
  const std::int64_t num_blocks = (k + kBlockK - 1) / kBlockK;
  const std::size_t row_bytes = static_cast<std::size_t>(num_blocks) * kBlockBytes[form];
  Buffer& buffer = forms_[form];
  if (buffer.size() < static_cast<std::size_t>(num_rows) * row_bytes)
    buffer = Buffer(static_cast<std::size_t>(num_rows) * row_bytes);
  const auto prepare_row = [&](std::int64_t row) {
    const float* from = x + row * k;
    const ActivationTable& to = *kernels_.activations;
    switch (form) {
      case kInt8:
        return to.to_int8(from, k, num_blocks, buffer.as<Int8Block>() + row * num_blocks);
      case kF32:
        return to.to_f32(from, k, num_blocks, buffer.as<F32Block>() + row * num_blocks);
      default:
        return to.to_bf16(from, k, num_blocks, buffer.as<Bf16Block>() + row * num_blocks);
    }
  };
  const std::int64_t rows_per_part = std::max<std::int64_t>(1, kMinParallelValues / 4 / k);
  if (num_rows * k < kMinParallelValues) {
    for (std::int64_t row = 0; row < num_rows; ++row) prepare_row(row);
  } else {
    pool_.run((num_rows + rows_per_part - 1) / rows_per_part, [&](std::int64_t part) {
      const std::int64_t end = std::min(num_rows, (part + 1) * rows_per_part);
      for (std::int64_t row = part * rows_per_part; row < end; ++row) prepare_row(row);
    });
  }
}

// All targets go into one call of the pool, so that q, k and v, or gate and up, run side by side.
bool Linear::plan(std::int64_t num_rows, std::span<const LinearTarget> targets) {
  parts_.clear();
  std::size_t total_bytes = 0;
  std::int64_t total_macs = 0;
  for (const LinearTarget& target : targets) {
    total_bytes += target.weight->num_bytes();
    total_macs += num_rows * target.weight->n() * target.weight->k();
  }
  const std::size_t part_bytes =
      std::clamp(total_bytes / (static_cast<std::size_t>(pool_.num_threads()) * kPartsPerThread),
                 kMinPartBytes, kMaxPartBytes);
  const bool alone = pool_.num_threads() == 1 || total_macs < kMinParallelMacs;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const CpuWeight& weight = CpuWeight::cast(*targets[i].weight);
    const std::int64_t num_tiles = weight.num_tiles();
    // On one thread parts still matter for many rows: each panel of rows passes over one part's weights.
    const std::int64_t step =
        alone && num_rows <= kPanelRows
            ? num_tiles
            : std::max<std::int64_t>(1, static_cast<std::int64_t>(part_bytes / weight.tile_bytes()));
    for (std::int64_t first = 0; first < num_tiles; first += step)
      parts_.push_back({i, first, std::min(step, num_tiles - first)});
  }
  return !alone;
}

void Linear::run_tile(const CpuWeight& weight, Form form, std::int64_t tile, std::int64_t first_row,
                      int num_rows, float* out) const {
  const std::int64_t num_blocks = weight.num_blocks();
  const std::int64_t offset = first_row * num_blocks;
  if (weight.is_quantized()) {
    const auto& grouped = static_cast<const GroupedWeight&>(weight);
    const int bits = grouped.bits_index();
    const int segment = grouped.segment_index();
    if (form == kInt8) {
      kernels_.grouped_int8->kernels[bits][segment](
          grouped.tile(tile), forms_[kInt8].as<Int8Block>() + offset, num_blocks, num_rows, out);
    } else if (form == kBf16) {
      kernels_.grouped_bf16->kernels[bits][segment](
          grouped.tile(tile), forms_[kBf16].as<Bf16Block>() + offset, num_blocks, num_rows, out);
    } else {
      kernels_.grouped_f32->kernels[bits][segment](grouped.tile(tile), forms_[kF32].as<F32Block>() + offset,
                                                   num_blocks, num_rows, out);
    }
    return;
  }
  const auto& dense = static_cast<const DenseWeight&>(weight);
  if (form == kBf16) {
    kernels_.dense_bf16->kernel(dense.tile(tile), num_blocks, forms_[kBf16].as<Bf16Block>() + offset,
                                num_blocks, num_rows, out);
  } else {
    kernels_.dense_f32->kernels[static_cast<int>(dense.storage())](
        dense.tile(tile), num_blocks, forms_[kF32].as<F32Block>() + offset, num_blocks, num_rows, out);
  }
}

void Linear::run_part(const Part& part, std::int64_t num_rows, const LinearTarget& target) const {
  const CpuWeight& weight = CpuWeight::cast(*target.weight);
  const Form form = form_of(target);
  const std::int64_t n = weight.n();
  alignas(64) float sums[kPanelRows * kTileCols];
  for (std::int64_t first_row = 0; first_row < num_rows; first_row += kPanelRows) {
    const auto rows = static_cast<int>(std::min<std::int64_t>(kPanelRows, num_rows - first_row));
    for (std::int64_t tile = part.first_tile; tile < part.first_tile + part.num_tiles; ++tile) {
      run_tile(weight, form, tile, first_row, rows, sums);
      const std::int64_t begin = tile * kTileCols;
      const std::int64_t columns = std::min<std::int64_t>(kTileCols, n - begin);
      float bias[kTileCols] = {};
      if (target.bias != nullptr) std::copy_n(target.bias + begin, columns, bias);
      for (int r = 0; r < rows; ++r) {
        const float* from = sums + r * kTileCols;
        float* to = target.out + (first_row + r) * n + begin;
        for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c] + bias[c];
      }
    }
  }
}

void Linear::run(const float* x, std::int64_t num_rows, std::span<const LinearTarget> targets) {
  if (num_rows == 0 || targets.empty()) return;
  const std::int64_t k = targets[0].weight->k();
  bool wanted[kNumForms] = {};
  for (const LinearTarget& target : targets) {
    QUIRE_CHECK_EQ(target.weight->k(), k);
    wanted[form_of(target)] = true;
  }
  for (int form = 0; form < kNumForms; ++form)
    if (wanted[form]) prepare(static_cast<Form>(form), x, num_rows, k);
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
