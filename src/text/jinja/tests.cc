// Tests: what stands behind `is`.
#include <unordered_map>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

const Value& one_argument(const Arguments& args, const char* test) {
  return *args.bind<1>(test, {"other"}, 1)[0];
}

template <CompareOp op>
bool compare_test(Interpreter& in, const Value& v, const Arguments& args) {
  return in.compare(op, v, one_argument(args, "comparison test"));
}

template <bool (*check)(const Value&)>
bool simple_test(Interpreter&, const Value& v, const Arguments& args) {
  args.bind_none("test");
  return check(v);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_integer(const Value& v) {
  return v.is(Kind::kInt);
}
bool is_float(const Value& v) {
  return v.is(Kind::kFloat);
}
bool is_boolean(const Value& v) {
  return v.is(Kind::kBool);
}
bool is_true(const Value& v) {
  return v.is(Kind::kBool) && v.as_bool();
}
bool is_false(const Value& v) {
  return v.is(Kind::kBool) && !v.as_bool();
}
bool is_mapping(const Value& v) {
  return v.is(Kind::kDict);
}
bool is_iterable_test(const Value& v) {
  return is_iterable(v);
}
// Has a length and items by position or key.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is_undefined();
}
// An undefined value has a call method, one that fails.
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::kCallable) && v.callable().can_call());
}
bool is_escaped(const Value& v) {
  return v.is_string() && v.string().markup;
}

bool test_odd(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("odd");
  const Value rest = arithmetic(in, BinaryOp::kModulo, v, Value::integer(2));
  return rest.is_number() && rest.as_double() == 1;
}

bool test_even(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("even");
  const Value rest = arithmetic(in, BinaryOp::kModulo, v, Value::integer(2));
  return rest.is_number() && rest.as_double() == 0;
}

bool test_divisibleby(Interpreter& in, const Value& v, const Arguments& args) {
  const Value rest = arithmetic(in, BinaryOp::kModulo, v, one_argument(args, "divisibleby"));
  return rest.is_number() && rest.as_double() == 0;
}

template <bool upper>
bool test_case(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("case test");
  const TrustText text = to_text(in.runtime(), v);
  in.runtime().work(text.size());
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.view(), at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return any;
}

bool test_sameas(Interpreter& in, const Value& v, const Arguments& args) {
  const Value& other = one_argument(args, "sameas");
  if (v.kind() != other.kind()) return false;
  if (v.object() != nullptr && !v.is_string() && !v.is_undefined()) return v.object() == other.object();
  return equals(in.runtime(), v, other);
}

bool test_filter(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("filter");
  return find_filter(to_text(in.runtime(), v).view()) != nullptr;
}

bool test_test(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("test");
  return find_test(to_text(in.runtime(), v).view()) != nullptr;
}

}  // namespace

const Test* find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> tests = {
      {"defined", {simple_test<is_defined>}},
      {"undefined", {simple_test<is_undefined>}},
      {"none", {simple_test<is_none>}},
      {"string", {simple_test<is_string>}},
      {"number", {simple_test<is_number>}},
      {"integer", {simple_test<is_integer>}},
      {"float", {simple_test<is_float>}},
      {"boolean", {simple_test<is_boolean>}},
      {"true", {simple_test<is_true>}},
      {"false", {simple_test<is_false>}},
      {"mapping", {simple_test<is_mapping>}},
      {"iterable", {simple_test<is_iterable_test>}},
      {"sequence", {simple_test<is_sequence>}},
      {"callable", {simple_test<is_callable>}},
      {"escaped", {simple_test<is_escaped>}},
      {"odd", {test_odd}},
      {"even", {test_even}},
      {"divisibleby", {test_divisibleby}},
      {"upper", {test_case<true>}},
      {"lower", {test_case<false>}},
      {"sameas", {test_sameas}},
      {"filter", {test_filter}},
      {"test", {test_test}},
      {"eq", {compare_test<CompareOp::kEq>}},
      {"==", {compare_test<CompareOp::kEq>}},
      {"equalto", {compare_test<CompareOp::kEq>}},
      {"ne", {compare_test<CompareOp::kNe>}},
      {"!=", {compare_test<CompareOp::kNe>}},
      {"lt", {compare_test<CompareOp::kLt>}},
      {"<", {compare_test<CompareOp::kLt>}},
      {"lessthan", {compare_test<CompareOp::kLt>}},
      {"le", {compare_test<CompareOp::kLe>}},
      {"<=", {compare_test<CompareOp::kLe>}},
      {"gt", {compare_test<CompareOp::kGt>}},
      {">", {compare_test<CompareOp::kGt>}},
      {"greaterthan", {compare_test<CompareOp::kGt>}},
      {"ge", {compare_test<CompareOp::kGe>}},
      {">=", {compare_test<CompareOp::kGe>}},
      {"in", {compare_test<CompareOp::kIn>}},
  };
  const auto at = tests.find(name);
  return at == tests.end() ? nullptr : &at->second;
}

}  // namespace quire::jinja
