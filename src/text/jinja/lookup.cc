// object.name, object[key], object[a:b:c] with jinja2's fallbacks and its sandbox's refusals.
#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

Value refused(Runtime& runtime, const Value& object, std::string_view name) {
  return make_undefined(
      runtime, fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

// What Python's getattr() finds; false if there is no such attribute.
bool find_attribute(Interpreter& interpreter, const Value& object, std::string_view name, Value* out) {
  Runtime& runtime = interpreter.runtime();
  if (object.is(Kind::kCallable) && object.callable().attribute(interpreter, name, out)) return true;
  if (object.is(Kind::kNamespace)) {
    if (const Value* value = object.ns().attributes->find(name)) {
      *out = *value;
      return true;
    }
  }
  if (const Method* method = find_method(object, name)) {
    *out = method->apply == nullptr ? refused(runtime, object, name)
                                    : make_bound_method(runtime, *method, object);
    return true;
  }
  if (object.is_integral() || object.is(Kind::kFloat)) {
    if (name == "real") {
      *out = object.is_integral() ? Value::integer(object.as_int()) : object;
      return true;
    }
    if (name == "imag") {
      *out = object.is_integral() ? Value::integer(0) : Value::real(0);
      return true;
    }
    if (object.is_integral() && (name == "numerator" || name == "denominator")) {
      *out = Value::integer(name == "numerator" ? object.as_int() : 1);
      return true;
    }
  }
  if (object.is(Kind::kTuple) && static_cast<SequenceObject*>(object.object())->is_group &&
      (name == "grouper" || name == "list")) {
    *out = object.items()[name == "grouper" ? 0 : 1];
    return true;
  }
  if (object.is(Kind::kRange) && (name == "start" || name == "stop" || name == "step")) {
    const RangeObject& range = object.range();
    *out = Value::integer(name == "start" ? range.start : (name == "stop" ? range.stop : range.step));
    return true;
  }
  return false;
}

// What object[key] gives in Python; false where it raises LookupError or TypeError.
bool find_item(Interpreter& interpreter, const Value& object, const Value& key, Value* out) {
  Runtime& runtime = interpreter.runtime();
  if (object.is(Kind::kDict)) {
    if (!is_hashable(key)) return false;
    const Value* value = object.dict().find(runtime, key);
    if (value == nullptr) return false;
    *out = *value;
    return true;
  }
  if (!key.is_integral()) return false;
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) return false;
  const std::int64_t length = length_of(runtime, object);
  std::int64_t index = key.as_int();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return false;
  const auto at = static_cast<std::size_t>(index);
  if (object.is_sequence()) {
    *out = object.items()[at];
  } else if (object.is(Kind::kRange)) {
    *out = object.range().at(index);
  } else {
    const TrustText& text = object.text();
    runtime.work(object.string().ascii() ? 1 : text.size());
    std::size_t begin = object.string().ascii() ? at : code_point_offset(text.view(), at);
    std::size_t end = begin;
    next_code_point(text.view(), end);
    *out = make_string(runtime, text.substr(begin, end), object.string().markup);
  }
  return true;
}

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__";
}

Value missing(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) {
    return make_undefined(
        runtime, fmt::format("{} has no attribute '{}'", describe_for_attribute(object), key.bytes()));
  }
  TrustText repr;
  append_repr(runtime, repr, key);
  return make_undefined(runtime,
                        fmt::format("{} has no element {}", describe_for_attribute(object), repr.bytes()));
}

}  // namespace

Value get_attribute(Interpreter& interpreter, const Value& object, const Value& name) {
  require_defined(object);
  Value out;
  if (find_attribute(interpreter, object, name.bytes(), &out)) return out;
  if (find_item(interpreter, object, name, &out)) return out;
  if (is_dunder(name.bytes())) return refused(interpreter.runtime(), object, name.bytes());
  return missing(interpreter.runtime(), object, name);
}

Value get_plain_attribute(Interpreter& interpreter, const Value& object, const Value& name) {
  require_defined(object);
  Value out;
  if (find_attribute(interpreter, object, name.bytes(), &out)) return out;
  if (is_dunder(name.bytes())) return refused(interpreter.runtime(), object, name.bytes());
  return missing(interpreter.runtime(), object, name);
}

Value get_item(Interpreter& interpreter, const Value& object, const Value& key) {
  require_defined(object);
  Value out;
  if (find_item(interpreter, object, key, &out)) return out;
  if (key.is_string()) {
    if (find_attribute(interpreter, object, key.bytes(), &out)) return out;
    if (is_dunder(key.bytes())) return refused(interpreter.runtime(), object, key.bytes());
  }
  return missing(interpreter.runtime(), object, key);
}

Value get_slice(Interpreter& interpreter, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  Runtime& runtime = interpreter.runtime();
  require_defined(object);
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    fail(fmt::format("TypeError: '{}' object is not subscriptable with a slice", type_name(object)));
  }
  const auto bound = [](const Value& value) { return index_value(value, "slice indices"); };
  const std::int64_t by = step.is_none() ? 1 : bound(step);
  if (by == 0) fail("ValueError: slice step cannot be zero");
  const std::int64_t length = length_of(runtime, object);
  const auto clamp = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t index = bound(value);
    if (index < 0) index = index < -length ? -1 : index + length;
    if (by > 0) return std::clamp<std::int64_t>(index, 0, length);
    return std::clamp<std::int64_t>(index, -1, length - 1);
  };
  const std::int64_t from = clamp(start, by > 0 ? 0 : length - 1);
  const std::int64_t to = clamp(stop, by > 0 ? length : -1);
  std::int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) {
    count = static_cast<std::int64_t>(static_cast<std::uint64_t>(from - to - 1) /
                                      (0 - static_cast<std::uint64_t>(by))) +
            1;
  }
  runtime.work(static_cast<std::size_t>(count) * sizeof(Value));
  if (object.is(Kind::kRange)) {
    const RangeObject& range = object.range();
    const auto scaled = [&range](std::int64_t i) {  // the end may lie beyond 64 bits
      std::int64_t offset = 0;
      std::int64_t exact = 0;
      if (!__builtin_mul_overflow(i, range.step, &offset) &&
          !__builtin_add_overflow(range.start, offset, &exact)) {
        return exact;
      }
      return (range.step < 0) == (i < 0) ? INT64_MAX : INT64_MIN;
    };
    std::int64_t new_step = 0;
    if (__builtin_mul_overflow(range.step, by, &new_step))
      fail("OverflowError: range step does not fit 64 bits");
    return Value(new_object<RangeObject>(runtime, scaled(from), scaled(to), new_step, count).get());
  }
  if (object.is_sequence()) {
    std::vector<Value> items;
    items.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      items.push_back(object.items()[static_cast<std::size_t>(from + i * by)]);
    return object.is(Kind::kTuple) ? make_tuple(runtime, std::move(items))
                                   : make_list(runtime, std::move(items));
  }
  const TrustText& text = object.text();
  const bool markup = object.string().markup;
  runtime.work(text.size());
  if (count == 0) return make_string(runtime, TrustText(), markup);
  const bool ascii = object.string().ascii();
  if (by == 1) {
    const auto offset = [&](std::int64_t i) {
      return ascii ? static_cast<std::size_t>(i)
                   : code_point_offset(text.view(), static_cast<std::size_t>(i));
    };
    return make_string(runtime, text.substr(offset(from), offset(from + count)), markup);
  }
  std::vector<std::size_t> offsets;  // of every character, and the end
  for (std::size_t at = 0; at < text.size(); next_code_point(text.view(), at)) offsets.push_back(at);
  offsets.push_back(text.size());
  TrustText out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(from + i * by);
    out.append(text, offsets[at], offsets[at + 1]);
  }
  return make_string(runtime, std::move(out), markup);
}

}  // namespace quire::jinja
