#include "backend/weight_check.h"

#include <fmt/core.h>

namespace quire {
namespace {

Status check_count(const char* what, std::size_t have, std::int64_t want) {
  if (have == static_cast<std::size_t>(want)) return {};
  return invalid(fmt::format("weight has {} {}, expected {}", have, what, want));
}

}  // namespace

Status check_rows(const GroupedRows& rows) {
  if (rows.n <= 0 || rows.k <= 0) return invalid(fmt::format("weight is empty: [{}, {}]", rows.n, rows.k));
  if (rows.bits < 2 || rows.bits > 8) return invalid(fmt::format("weight has {} bits, want 2..8", rows.bits));
  if (rows.group_size <= 0 || rows.k % rows.group_size != 0)
    return invalid(
        fmt::format("group size {} does not divide the {} input features", rows.group_size, rows.k));
  const std::int64_t num_groups = rows.n * (rows.k / rows.group_size);
  QUIRE_RETURN_IF_ERROR(check_count("values", rows.q.size(), rows.n * rows.k));
  QUIRE_RETURN_IF_ERROR(check_count("scales", rows.scales.size(), num_groups));
  if (!rows.mins.empty()) {
    QUIRE_RETURN_IF_ERROR(check_count("minimums", rows.mins.size(), num_groups));
    if (rows.constant_zero != 0) return invalid("weight has both minimums and a constant zero point");
  }
  if (rows.constant_zero < 0 || rows.constant_zero > 255)
    return invalid(fmt::format("zero point {} is not in 0..255", rows.constant_zero));
  if (rows.super_size != 0) {
    if (rows.super_size % rows.group_size != 0 || rows.k % rows.super_size != 0)
      return invalid(fmt::format("super-block of {} values does not fit groups of {} in {} input features",
                                 rows.super_size, rows.group_size, rows.k));
    const std::int64_t num_supers = rows.n * (rows.k / rows.super_size);
    QUIRE_RETURN_IF_ERROR(check_count("scale codes", rows.scale_codes.size(), num_groups));
    QUIRE_RETURN_IF_ERROR(check_count("super-scales", rows.super_scales.size(), num_supers));
    QUIRE_RETURN_IF_ERROR(
        check_count("min codes", rows.min_codes.size(), rows.mins.empty() ? 0 : num_groups));
    QUIRE_RETURN_IF_ERROR(
        check_count("super-minimums", rows.super_mins.size(), rows.mins.empty() ? 0 : num_supers));
  }
  return {};
}

Status check_value_bits(std::uint8_t all_values, int bits) {
  if (all_values >> bits == 0) return {};
  return invalid(fmt::format("a weight value does not fit in {} bits (bits seen: {:#x})", bits, all_values));
}

Status check_rows(const FloatRows& rows) {
  if (rows.n <= 0 || rows.k <= 0) return invalid(fmt::format("weight is empty: [{}, {}]", rows.n, rows.k));
  if (rows.data == nullptr) return invalid("weight has no data");
  return {};
}

}  // namespace quire
