#include "backend/cpu/gemm/packed_scales.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace quire::cpu::gemm {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Calls f(begin, end) for ranges of [0, count) on the pool.
template <typename F>
void for_ranges(ThreadPool& pool, std::int64_t count, std::int64_t range, const F& f) {
  pool.run(ceil_div(count, range),
           [&](std::int64_t part) { f(part * range, std::min(count, (part + 1) * range)); });
}

bool all_exact_in_f16(const std::vector<float>& values, ThreadPool& pool) {
  std::atomic<bool> exact{true};
  for_ranges(pool, static_cast<std::int64_t>(values.size()), 1 << 16,
             [&](std::int64_t begin, std::int64_t end) {
               if (!exact.load(std::memory_order_relaxed)) return;
               for (std::int64_t i = begin; i < end; ++i) {
                 const float value = values[static_cast<std::size_t>(i)];
                 if (f16_to_f32(f32_to_f16(value)) != value) {  // also for a NaN
                   exact.store(false, std::memory_order_relaxed);
                   return;
                 }
               }
             });
  return exact.load();
}

// Whether scale = super_scale * code (and min likewise) holds for every group, bit for bit.
bool codes_are_exact(const GroupedRows& rows, ThreadPool& pool) {
  if (rows.super_size == 0) return false;
  const std::int64_t groups_per_row = rows.k / rows.group_size;
  const std::int64_t groups_per_super = rows.super_size / rows.group_size;
  std::atomic<bool> exact{true};
  for_ranges(pool, rows.n, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * groups_per_row; i < end * groups_per_row; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto super = static_cast<std::size_t>(i / groups_per_super);
      bool same =
          f16_to_f32(rows.super_scales[super]) * static_cast<float>(rows.scale_codes[at]) == rows.scales[at];
      if (!rows.mins.empty())
        same = same &&
               f16_to_f32(rows.super_mins[super]) * static_cast<float>(rows.min_codes[at]) == rows.mins[at];
      if (!same) exact.store(false, std::memory_order_relaxed);
    }
  });
  return exact.load();
}

// [n, per_row] -> [num_tiles, padded_per_row, tile_cols]
template <typename To, typename From, typename Convert>
Buffer transpose_tiles(ThreadPool& pool, const std::vector<From>& from, std::int64_t n,
                       std::int64_t tile_cols, std::int64_t padded_per_row, const Convert& convert) {
  Buffer to(static_cast<std::size_t>(ceil_div(n, tile_cols) * padded_per_row * tile_cols) * sizeof(To));
  To* out = to.as<To>();
  const std::int64_t per_row = static_cast<std::int64_t>(from.size()) / n;
  for_ranges(pool, n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      To* column = out + row / tile_cols * padded_per_row * tile_cols + row % tile_cols;
      for (std::int64_t i = 0; i < per_row; ++i)
        column[i * tile_cols] = convert(from[static_cast<std::size_t>(row * per_row + i)]);
    }
  });
  return to;
}

}  // namespace

PackedScales pack_scales(const GroupedRows& rows, std::int64_t tile_cols, std::int64_t num_groups,
                         ThreadPool& pool) {
  PackedScales packed;
  const bool has_mins = !rows.mins.empty();
  const auto same = [](auto value) { return value; };
  const auto to_half = [](float value) { return f32_to_f16(value); };
  if (codes_are_exact(rows, pool)) {
    packed.kind = kScaleCodes;
    packed.groups_per_super = rows.super_size / rows.group_size;
    packed.num_supers = ceil_div(num_groups, packed.groups_per_super);
    packed.scales = transpose_tiles<std::int8_t>(pool, rows.scale_codes, rows.n, tile_cols, num_groups, same);
    packed.super_scales =
        transpose_tiles<std::uint16_t>(pool, rows.super_scales, rows.n, tile_cols, packed.num_supers, same);
    if (!has_mins) return packed;
    packed.mins = transpose_tiles<std::uint8_t>(pool, rows.min_codes, rows.n, tile_cols, num_groups, same);
    packed.super_mins =
        transpose_tiles<std::uint16_t>(pool, rows.super_mins, rows.n, tile_cols, packed.num_supers, same);
  } else if (all_exact_in_f16(rows.scales, pool) && all_exact_in_f16(rows.mins, pool)) {
    packed.kind = kScaleF16;
    packed.scales = transpose_tiles<std::uint16_t>(pool, rows.scales, rows.n, tile_cols, num_groups, to_half);
    if (has_mins)
      packed.mins = transpose_tiles<std::uint16_t>(pool, rows.mins, rows.n, tile_cols, num_groups, to_half);
  } else {
    packed.kind = kScaleF32;
    packed.scales = transpose_tiles<float>(pool, rows.scales, rows.n, tile_cols, num_groups, same);
    if (has_mins) packed.mins = transpose_tiles<float>(pool, rows.mins, rows.n, tile_cols, num_groups, same);
  }
  return packed;
}

}  // namespace quire::cpu::gemm
