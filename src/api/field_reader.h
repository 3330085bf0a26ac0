// Purpose: read the fields of one JSON object, each with its type and range, and give one uniform message for
// what is wrong. In: a Json object. Out: values; the first error. Thread: one.
// An absent field and null leave the value as it was. Numbers with a fraction are no integers; 5.0 is 5.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"
#include "base/result.h"

namespace quire {

struct NumberRange {
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
  bool exclusive_min = false;
};
struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

class FieldReader {
 public:
  // prefix: how this object is called in messages ("" = the body, else e.g. "stream_options").
  explicit FieldReader(const Json& object, std::string prefix = {});

  // The field's value if it is there and not null. Marks the name as known.
  const Json* find(std::string_view name);
  // Path of a field for messages: "stream_options.include_usage".
  std::string path(std::string_view name) const;

  void number(std::string_view name, double& out, NumberRange range = {});
  void integer(std::string_view name, std::int64_t& out, IntRange range = {});
  void integer(std::string_view name, std::optional<std::int64_t>& out, IntRange range = {});
  // Whole numbers beyond int64 become its largest or smallest value instead of an error.
  void saturating(std::string_view name, std::optional<std::int64_t>& out, IntRange range = {});
  void boolean(std::string_view name, bool& out);
  void string(std::string_view name, std::string& out);
  // Token ids: whole numbers in [0, limit).
  void ids(std::string_view name, std::vector<std::int32_t>& out, std::int64_t limit, std::size_t max_count);
  void strings(std::string_view name, std::vector<std::string>& out, std::size_t max_count);
  // Known, understood, and harmless to leave out.
  void accept(std::string_view name);
  // Known, and refused unless absent, null, or equal to `harmless`.
  void refuse(std::string_view name, std::string_view why, const Json& harmless = nullptr);

  void fail(std::string_view name, std::string_view what, ErrorCode code = ErrorCode::kInvalid);
  // An error of a nested object, whose message already names its field.
  void fail_with(const Error& error);
  // "'FIELD' must be WHAT, got THIS."
  void fail_type(std::string_view name, std::string_view what, const Json& got);
  bool ok() const { return !error_.has_value(); }
  Status status() const;
  // Names nobody asked for, in the order sent.
  std::vector<std::string> unknown() const;

 private:
  const Json& object_;
  const std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

// Names that a client sent, as one line that can do no harm in a header or a log: others are left out.
std::string show_field_names(const std::vector<std::string>& names);
// What a value is, for messages: "a string", "an array", "12", "1.5", "true".
std::string describe_json(const Json& value);
// The whole number of a JSON number; nullopt if it has a fraction, is no number, or does not fit.
std::optional<std::int64_t> whole_number(const Json& value);

}  // namespace quire
