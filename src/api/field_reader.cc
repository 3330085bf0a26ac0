#include "api/field_reader.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace quire {
namespace {

// 2^53: up to here every whole double is exactly one integer.
constexpr double kExactLimit = 9007199254740992.0;

constexpr std::size_t kMaxNamesShown = 16;

std::string describe_range(const IntRange& range) {
  const bool low = range.min != std::numeric_limits<std::int64_t>::min();
  const bool high = range.max != std::numeric_limits<std::int64_t>::max();
  if (low && high) return fmt::format("a whole number from {} to {}", range.min, range.max);
  if (low) return fmt::format("a whole number of at least {}", range.min);
  if (high) return fmt::format("a whole number of at most {}", range.max);
  return "a whole number";
}

std::string describe_range(const NumberRange& range) {
  const bool low = range.min != -std::numeric_limits<double>::max();
  const bool high = range.max != std::numeric_limits<double>::max();
  if (low && high && range.exclusive_min) {
    return fmt::format("a number above {} and at most {}", range.min, range.max);
  }
  if (low && high) return fmt::format("a number from {} to {}", range.min, range.max);
  if (low) return fmt::format("a number {} {}", range.exclusive_min ? "above" : "of at least", range.min);
  return "a number";
}

}  // namespace

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return value.dump();
  }
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) <= kExactLimit && number == std::floor(number)) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

FieldReader::FieldReader(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  if (!object_.is_object()) {
    error_ =
        invalid(prefix_.empty()
                    ? fmt::format("The request body must be a JSON object, got {}.", describe_json(object_))
                    : fmt::format("'{}' must be an object, got {}.", prefix_, describe_json(object_)),
                prefix_);
  }
}

std::string FieldReader::path(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : fmt::format("{}.{}", prefix_, name);
}

const Json* FieldReader::find(std::string_view name) {
  known_.emplace(name);
  if (!object_.is_object()) return nullptr;
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

void FieldReader::fail(std::string_view name, std::string_view what, ErrorCode code) {
  if (!error_) error_ = make_error(code, fmt::format("'{}' {}", path(name), what), path(name));
}

void FieldReader::fail_with(const Error& error) {
  if (!error_) error_ = error;
}

void FieldReader::fail_type(std::string_view name, std::string_view what, const Json& got) {
  fail(name, fmt::format("must be {}, got {}.", what, describe_json(got)));
}

Status FieldReader::status() const {
  if (error_) return *error_;
  return {};
}

void FieldReader::number(std::string_view name, double& out, NumberRange range) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return fail_type(name, describe_range(range), *value);
  const double number = value->get<double>();
  if (!(number >= range.min && number <= range.max) || (range.exclusive_min && number == range.min)) {
    return fail_type(name, describe_range(range), *value);
  }
  out = number;
}

void FieldReader::integer(std::string_view name, std::optional<std::int64_t>& out, IntRange range) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const auto number = whole_number(*value);
  if (!number || *number < range.min || *number > range.max) {
    return fail_type(name, describe_range(range), *value);
  }
  out = *number;
}

void FieldReader::integer(std::string_view name, std::int64_t& out, IntRange range) {
  std::optional<std::int64_t> value;
  integer(name, value, range);
  if (value) out = *value;
}

void FieldReader::saturating(std::string_view name, std::optional<std::int64_t>& out, IntRange range) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const bool beyond =
      value->is_number() && !whole_number(*value) && std::abs(value->get<double>()) > kExactLimit;
  if (!beyond) return integer(name, out, range);
  const std::int64_t saturated =
      value->get<double>() > 0 ? range.max : std::numeric_limits<std::int64_t>::min();
  if (saturated < range.min) return fail_type(name, describe_range(range), *value);
  out = saturated;
}

void FieldReader::boolean(std::string_view name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return fail_type(name, "true or false", *value);
  out = value->get<bool>();
}

void FieldReader::string(std::string_view name, std::string& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return fail_type(name, "a string", *value);
  out = value->get<std::string>();
}

void FieldReader::ids(std::string_view name, std::vector<std::int32_t>& out, std::int64_t limit,
                      std::size_t max_count) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return fail_type(name, "an array of token ids", *value);
  if (value->size() > max_count) {
    return fail(name, fmt::format("has {} entries; at most {} are allowed.", value->size(), max_count));
  }
  for (const Json& entry : *value) {
    const auto id = whole_number(entry);
    if (!id || *id < 0 || *id >= limit) {
      return fail(name, fmt::format("must hold token ids, whole numbers from 0 to {}; got {}.", limit - 1,
                                    describe_json(entry)));
    }
    out.push_back(static_cast<std::int32_t>(*id));
  }
}

void FieldReader::strings(std::string_view name, std::vector<std::string>& out, std::size_t max_count) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return fail_type(name, "an array of strings", *value);
  if (value->size() > max_count) {
    return fail(name, fmt::format("has {} entries; at most {} are allowed.", value->size(), max_count));
  }
  for (const Json& entry : *value) {
    if (!entry.is_string()) return fail_type(name, "an array of strings", entry);
    out.push_back(entry.get<std::string>());
  }
}

void FieldReader::accept(std::string_view name) {
  known_.emplace(name);
}

void FieldReader::refuse(std::string_view name, std::string_view why, const Json& harmless) {
  const Json* value = find(name);
  if (value == nullptr || (!harmless.is_null() && *value == harmless)) return;
  fail(name, fmt::format("is not supported: {}", why), ErrorCode::kUnsupported);
}

std::vector<std::string> FieldReader::unknown() const {
  std::vector<std::string> names;
  if (!object_.is_object()) return names;
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (known_.find(key) == known_.end()) names.push_back(key);
  }
  return names;
}

std::string show_field_names(const std::vector<std::string>& names) {
  std::string out;
  std::size_t shown = 0;
  for (const std::string& name : names) {
    // A client's bytes go into a header only if they can do no harm there.
    const bool safe =
        !name.empty() && name.size() <= 64 &&
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
            std::string::npos;
    if (!safe) continue;
    if (++shown > kMaxNamesShown) break;
    out += out.empty() ? "" : ", ";
    out += name;
  }
  return out;
}

}  // namespace quire
