#include "backend/cpu/gemm/amx_linear.h"

#include <algorithm>

#include "base/check.h"

namespace quire::cpu::gemm {
namespace {

// Below this much work a call stays on its own thread: waking the others costs some microseconds.
constexpr std::int64_t kMinParallelMacs = 64 * 1024;
constexpr std::int64_t kMinParallelValues = 32 * 1024;
// Pairs per kernel call: their results (64 KiB per pair at 512 rows) are read again at once. Where the
// activations do not fit the second-level cache more columns share one reading of them.
constexpr std::int64_t kPairsPerCall = 4;
constexpr std::int64_t kPairsPerLongCall = 16;
// With many rows a part reads all activations once, so it wants many columns; the pool wants some parts per
// thread.
constexpr std::int64_t kPartsPerThread = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

const AmxWeight& amx(const PackedWeight* weight) {
  const auto* own = dynamic_cast<const AmxWeight*>(weight);
  QUIRE_CHECK(own != nullptr);
  return *own;
}

// Grows to what the largest call of this thread wanted.
float* scratch_of_this_thread(int which, std::int64_t num_floats) {
  thread_local Buffer buffers[3];
  Buffer& buffer = buffers[which];
  const auto bytes = static_cast<std::size_t>(num_floats) * sizeof(float);
  if (buffer.size() < bytes) buffer = Buffer(bytes);
  return buffer.as<float>();
}

void add_bias(const float* bias, std::int64_t columns, int num_rows, std::int64_t stride, float* sums) {
  if (bias == nullptr) return;
  for (int r = 0; r < num_rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) sums[r * stride + c] += bias[c];
}

}  // namespace

AmxLinear::AmxLinear(const AmxTable& table, const ElementwiseKernel& elementwise, const CpuTuning& tuning,
                     ThreadPool& pool)
    : table_(table), elementwise_(elementwise), tuning_(tuning), pool_(pool) {}

void AmxLinear::pack_rows(const LinearInput& input, std::int64_t k) {
  const std::int64_t num_blocks = ceil_div(k, kBlockK);
  const int width = amx_panel_width(input.num_rows);
  const std::int64_t panel_bytes = amx_panel_bytes(width, num_blocks);
  const std::int64_t num_panels = amx_num_panels(input.num_rows);
  const auto bytes = static_cast<std::size_t>(num_panels * panel_bytes);
  if (panels_.size() < bytes) panels_ = Buffer(bytes);
  auto* const panels = panels_.as<std::uint16_t>();
  const auto pack_one = [&](std::int64_t panel) {
    const std::int64_t first = panel * kAmxPanelRows;
    const auto rows = static_cast<int>(std::min<std::int64_t>(kAmxPanelRows, input.num_rows - first));
    const float* from = input.x + first * k;
    if (input.norm_weight != nullptr) {
      float* const normed = scratch_of_this_thread(0, kAmxPanelRows * k);
      for (int r = 0; r < rows; ++r)
        elementwise_.rms_norm(from + r * k, input.norm_weight, input.norm_eps, k, normed + r * k);
      from = normed;
    }
    table_.pack_panel(from, k, rows, width, k, num_blocks, panels + panel * (panel_bytes / 2));
  };
  if (num_panels == 1 || input.num_rows * k < kMinParallelValues) {
    for (std::int64_t panel = 0; panel < num_panels; ++panel) pack_one(panel);
  } else {
    pool_.run(num_panels, pack_one);
  }
}

// All targets go into one call of the pool, so that q, k and v, or gate and up, run side by side. Returns
// whether they are worth more than one thread.
bool AmxLinear::plan(std::int64_t num_rows, std::span<const LinearTarget> targets) {
  parts_.clear();
  std::int64_t total_bytes = 0;
  std::int64_t total_macs = 0;
  std::int64_t total_pairs = 0;
  for (const LinearTarget& target : targets) {
    const AmxWeight& weight = amx(target.weight);
    const std::int64_t products = target.gate == nullptr ? 1 : 2;
    total_bytes += static_cast<std::int64_t>(weight.num_bytes() +
                                             (target.gate == nullptr ? 0 : target.gate->num_bytes()));
    total_macs += products * num_rows * weight.n() * weight.k();
    total_pairs += weight.num_pairs();
  }
  const std::int64_t threads = pool_.num_threads();
  const bool alone = threads == 1 || total_macs < kMinParallelMacs;
  // Few rows: parts of enough bytes to be one long stream of memory, as linear.cc cuts them.
  const std::int64_t part_bytes = std::clamp(total_bytes / (threads * tuning_.parts_per_thread),
                                             tuning_.min_part_bytes, tuning_.max_part_bytes);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const AmxWeight& weight = amx(targets[i].weight);
    const auto pair_bytes = static_cast<std::int64_t>(
        2 * (weight.tile_bytes() + (targets[i].gate == nullptr ? 0 : amx(targets[i].gate).tile_bytes())));
    std::int64_t step = weight.num_pairs();
    if (!alone)
      step =
          std::max<std::int64_t>(1, num_rows > 2 * kAmxPanelRows ? total_pairs / (threads * kPartsPerThread)
                                                                 : part_bytes / pair_bytes);
    for (std::int64_t first = 0; first < weight.num_pairs(); first += step)
      parts_.push_back({i, first, std::min(step, weight.num_pairs() - first)});
  }
  return !alone;
}

void AmxLinear::run_part(const Part& part, std::int64_t num_rows, const LinearTarget& target) const {
  const int width = amx_panel_width(num_rows);
  const std::int64_t row_blocks = ceil_div(num_rows, kAmxMaxRows);
  // Of about equal size, in whole pairs of panels.
  const std::int64_t step = ceil_div(ceil_div(num_rows, row_blocks), 2 * kAmxPanelRows) * 2 * kAmxPanelRows;
  for (std::int64_t begin = 0; begin < num_rows; begin += step) {
    const auto rows = static_cast<int>(std::min(step, num_rows - begin));
    const std::int64_t num_blocks = amx(target.weight).num_blocks();
    const std::int64_t most = amx_walk_blocks(rows, num_blocks) == num_blocks && rows > 2 * kAmxPanelRows
                                  ? kPairsPerCall
                                  : kPairsPerLongCall;
    for (std::int64_t pair = 0; pair < part.num_pairs; pair += most)
      run_pairs(target, part.first_pair + pair, std::min(most, part.num_pairs - pair), begin, rows, width);
  }
}

void AmxLinear::run_pairs(const LinearTarget& target, std::int64_t first_pair, std::int64_t num_pairs,
                          std::int64_t rows_begin, int num_rows, int width) const {
  const AmxWeight& weight = amx(target.weight);
  const std::int64_t n = weight.n();
  const std::int64_t num_blocks = weight.num_blocks();
  const std::uint16_t* const x =
      panels_.as<std::uint16_t>() + rows_begin / kAmxPanelRows * (amx_panel_bytes(width, num_blocks) / 2);
  float* const scratch = scratch_of_this_thread(0, amx_scratch_floats(num_pairs, num_rows, num_blocks));
  const std::int64_t begin = first_pair * kAmxPairCols;
  const std::int64_t stride = num_pairs * kAmxPairCols;
  const std::int64_t columns = std::min(stride, n - begin);
  float* const to = target.out + rows_begin * n + begin;
  if (columns == stride && target.bias == nullptr && target.gate == nullptr && !target.accumulate)
    return table_.run(weight.view(), first_pair, num_pairs, x, width, num_rows, scratch, to, n);

  float* const sums = scratch_of_this_thread(1, num_rows * stride);
  table_.run(weight.view(), first_pair, num_pairs, x, width, num_rows, scratch, sums, stride);
  if (target.bias != nullptr) add_bias(target.bias + begin, columns, num_rows, stride, sums);
  if (target.gate != nullptr) {
    float* const gates = scratch_of_this_thread(2, num_rows * stride);
    table_.run(amx(target.gate).view(), first_pair, num_pairs, x, width, num_rows, scratch, gates, stride);
    if (target.gate_bias != nullptr) add_bias(target.gate_bias + begin, columns, num_rows, stride, gates);
    elementwise_.silu_mul(gates, sums, num_rows * stride, sums);
  }
  for (int r = 0; r < num_rows; ++r) {
    const float* from = sums + r * stride;
    if (target.accumulate) {
      for (std::int64_t c = 0; c < columns; ++c) to[r * n + c] += from[c];
    } else {
      std::copy_n(from, columns, to + r * n);
    }
  }
}

void AmxLinear::run(const LinearInput& input, std::span<const LinearTarget> targets) {
  if (input.num_rows == 0 || targets.empty()) return;
  pack_rows(input, targets[0].weight->k());
  const bool parallel = plan(input.num_rows, targets);
  const auto run_one = [&](std::int64_t i) {
    const Part& part = parts_[static_cast<std::size_t>(i)];
    run_part(part, input.num_rows, targets[part.target]);
  };
  const auto num_parts = static_cast<std::int64_t>(parts_.size());
  if (parallel) {
    pool_.run(num_parts, run_one);
  } else {
    for (std::int64_t i = 0; i < num_parts; ++i) run_one(i);
  }
}

bool AmxLinear::is_packed_for_amx(const PackedWeight& weight) {
  return dynamic_cast<const AmxWeight*>(&weight) != nullptr;
}

void AmxLinear::run_mixed(const LinearInput& input, std::span<const LinearTarget> targets,
                          const Otherwise& otherwise) {
  std::vector<LinearTarget> own;
  std::vector<LinearTarget> others;
  for (const LinearTarget& target : targets) {
    const bool weight_is_own = is_packed_for_amx(*target.weight);
    if (target.gate == nullptr || is_packed_for_amx(*target.gate) == weight_is_own) {
      (weight_is_own ? own : others).push_back(target);
      continue;
    }
    // A gate packed otherwise than its weight: both as plain targets, then joined.
    const std::int64_t count = input.num_rows * target.weight->n();
    std::vector<float> ups(static_cast<std::size_t>(count));
    std::vector<float> gates(ups.size());
    LinearTarget up = target;
    up.gate = nullptr;
    up.accumulate = false;
    up.out = ups.data();
    LinearTarget gate = up;
    gate.weight = target.gate;
    gate.bias = target.gate_bias;
    gate.out = gates.data();
    run(input, {weight_is_own ? &up : &gate, 1});
    otherwise({weight_is_own ? &gate : &up, 1});
    elementwise_.silu_mul(gates.data(), ups.data(), count, ups.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = ups[static_cast<std::size_t>(i)];
      target.out[i] = target.accumulate ? target.out[i] + value : value;
    }
  }
  run(input, own);
  if (!others.empty()) otherwise(others);
}

}  // namespace quire::cpu::gemm
