// Purpose: what the filters on sequences share. Thread: see interpreter.h.
#pragma once

#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

// item.a.b for the path "a.b"; parts of digits are indices.
// otherwise: what stands for an undefined part, if given.
Value attribute_of(Interpreter& interpreter, const Value& item, const Value& path,
                   const Value* otherwise = nullptr);
// Strings in lower case, other values as they are: jinja2 sorts and compares without case by default.
Value fold_case(Interpreter& interpreter, const Value& value);
std::vector<Value> iterate_or_fail(Interpreter& interpreter, const Value& value);

}  // namespace quire::jinja
