// Purpose: the tables of built-in filters, tests, methods and functions. Thread: immutable.
// Out of scope: how they are called (interpreter.h).
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"

namespace quire::jinja {

class Interpreter;

struct Filter {
  Value (*apply)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};
struct Test {
  bool (*apply)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};
struct Method {
  const char* name;
  Value (*apply)(Interpreter& interpreter, const Value& self, const Arguments& arguments);  // null: refused
};
struct Function {
  const char* name;
  Value (*apply)(Interpreter& interpreter, const Arguments& arguments);
};

// Null if there is none of this name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
const Method* find_method(const Value& self, std::string_view name);
const Function* find_function(std::string_view name);

// The files that hold the filters; find_filter() joins their tables.
struct NamedFilter {
  const char* name;
  Filter filter;
};
const std::vector<NamedFilter>& text_filters();
const std::vector<NamedFilter>& number_filters();
const std::vector<NamedFilter>& sequence_filters();
const std::vector<Method>& string_methods();
const std::vector<Method>& string_search_methods();

// --- shared between filters and methods ---
enum class Strip { kBoth, kLeft, kRight };
// chars null: white space.
TrustText strip_text(Runtime& runtime, const TrustText& text, const Value* chars, Strip where);
TrustText replace_text(Runtime& runtime, const TrustText& text, const TrustText& from, const TrustText& to,
                       std::int64_t max_count);
enum class CaseMap { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };
TrustText map_case(Runtime& runtime, const TrustText& text, CaseMap map);
TrustText join_texts(Runtime& runtime, const TrustText& separator, const std::vector<Value>& items,
                     bool only_strings);
TrustText pad_text(Runtime& runtime, const TrustText& text, std::int64_t width, const TrustText& fill,
                   bool left, bool right);
std::vector<TrustText> split_lines(Runtime& runtime, const TrustText& text, bool keep_ends);
TrustText escape_html(Runtime& runtime, const TrustText& text);
// printf-style: "..." % value.
TrustText format_percent(Interpreter& interpreter, const Value& format, const Value& argument);
// str.format().
TrustText format_braces(Interpreter& interpreter, const TrustText& format, const Arguments& arguments);
// One value by a format specification such as ">8.2f".
TrustText format_value(Interpreter& interpreter, const Value& value, const TrustText& spec);
TrustText to_json(Runtime& runtime, const Value& value, const Arguments& arguments);
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, bool trusted);
std::int64_t parse_integer(std::string_view text, int base, bool* ok);
double parse_float(std::string_view text, bool* ok);

}  // namespace quire::jinja
