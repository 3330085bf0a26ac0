// Purpose: whether canonical rows hang together (sizes, ranges), asked once by every backend's pack().
// In: GroupedRows, FloatRows. Out: Status with what is wrong. Thread: any.
#pragma once

#include "backend/packed_weight.h"
#include "base/result.h"

namespace quire {

Status check_rows(const GroupedRows& rows);
Status check_rows(const FloatRows& rows);

}  // namespace quire
