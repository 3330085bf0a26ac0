// Purpose: whether canonical rows hang together (sizes, ranges), asked once by every backend's pack().
// In: GroupedRows, FloatRows. Out: Status with what is wrong. Thread: any. Out of scope: reading every value,
// which a backend does while it packs (check_value_bits then tells what it saw).
#pragma once

#include <cstdint>

#include "backend/packed_weight.h"
#include "base/result.h"

namespace quire {

Status check_rows(const GroupedRows& rows);
Status check_rows(const FloatRows& rows);
// all_values: the bitwise or of every q.
Status check_value_bits(std::uint8_t all_values, int bits);

}  // namespace quire
