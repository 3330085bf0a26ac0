// Purpose: the fields that chat and plain completions share: sampling, lengths, stops, output form. Also the
// ones that are known and refused. In: FieldReader. Out: GenerateRequest. Thread: any.
#pragma once

#include "api/field_reader.h"
#include "api/generate_request.h"
#include "api/served_model.h"

namespace quire {

void read_common_fields(FieldReader& fields, const ServedModel& model, const ApiOptions& options,
                        GenerateRequest& request);

}  // namespace quire
