// Filters that make and change numbers, and Python's reading of numbers in text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

bool try_int(const Value& v, std::int64_t base, std::int64_t* out) {
  if (v.is_integral()) {
    *out = v.as_int();
    return true;
  }
  bool ok = false;
  double d = 0;
  if (v.is(Kind::kFloat)) {
    d = v.as_double();
  } else if (v.is_string()) {
    *out = parse_integer(v.bytes(), static_cast<int>(base), &ok);
    if (ok) return true;
    d = parse_float(v.bytes(), &ok);
    if (!ok) return false;
  } else {
    return false;
  }
  if (!std::isfinite(d)) return false;
  if (std::fabs(d) >= 9223372036854775808.0) fail("OverflowError: an integer does not fit 64 bits");
  *out = static_cast<std::int64_t>(d);
  return true;
}

Value to_int(Interpreter&, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("int", {"default", "base"});
  require_defined(v);
  const std::int64_t base = bound[1] == nullptr ? 10 : index_value(*bound[1], "base");
  if (base != 0 && (base < 2 || base > 36)) return bound[0] == nullptr ? Value::integer(0) : *bound[0];
  std::int64_t i = 0;
  if (try_int(v, base, &i)) return Value::integer(i);
  return bound[0] == nullptr ? Value::integer(0) : *bound[0];
}

Value to_float(Interpreter&, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("float", {"default"});
  require_defined(v);
  if (v.is_number()) return Value::real(v.as_double());
  bool ok = false;
  const double d = v.is_string() ? parse_float(v.bytes(), &ok) : 0.0;
  if (ok) return Value::real(d);
  return bound[0] == nullptr ? Value::real(0) : *bound[0];
}

Value abs(Interpreter&, const Value& v, const Arguments& args) {
  args.bind_none("abs");
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.as_double()));
  if (!v.is_integral()) {
    require_defined(v);
    fail(fmt::format("TypeError: bad operand type for abs(): '{}'", type_name(v)));
  }
  return v.as_int() < 0 ? negate(v) : Value::integer(v.as_int());
}

double round_half_even(double d, std::int64_t digits) {
  if (!std::isfinite(d)) return d;
  if (digits > 22 + 308) return d;
  if (digits < -308) return 0.0 * d;
  if (digits >= 0) {  // correctly rounded decimal text, as Python does it
    const std::string text = fmt::format("{:.{}f}", d, static_cast<int>(digits));
    bool ok = false;
    return parse_float(text, &ok);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / scale) * scale;
}

Value round(Interpreter&, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("round", {"precision", "method"});
  const std::int64_t precision = bound[0] == nullptr ? 0 : index_value(*bound[0], "precision");
  std::string method = "common";
  if (bound[1] != nullptr) method = bound[1]->is_string() ? bound[1]->bytes() : "";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("round() method must be common, ceil or floor");
  if (!v.is_number()) {
    require_defined(v);
    fail(fmt::format("TypeError: type {} doesn't define __round__ method", type_name(v)));
  }
  if (method == "common") {
    if (v.is_integral()) {
      if (precision >= 0) return Value::integer(v.as_int());
      if (precision < -18) return Value::integer(0);
      std::int64_t scale = 1;
      for (std::int64_t i = precision; i < 0; ++i) scale *= 10;
      std::int64_t quotient = v.as_int() / scale;
      const std::int64_t rest = std::abs(v.as_int() % scale);
      if (rest * 2 > scale || (rest * 2 == scale && quotient % 2 != 0)) quotient += v.as_int() < 0 ? -1 : 1;
      std::int64_t rounded = 0;
      if (__builtin_mul_overflow(quotient, scale, &rounded))
        fail("OverflowError: an integer does not fit 64 bits");
      return Value::integer(rounded);
    }
    return Value::real(round_half_even(v.as_double(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_double() * scale;
  const double result = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(result)) fail("OverflowError: cannot round an infinite value");
  return Value::real(result / scale);
}

Value filesizeformat(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("filesizeformat", {"binary"});
  const bool binary = bound[0] != nullptr && truthy(*bound[0]);
  require_defined(v);
  bool ok = v.is_number();
  const double bytes = ok ? v.as_double() : (v.is_string() ? parse_float(v.bytes(), &ok) : 0);
  if (!ok) fail("filesizeformat() takes a number");
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return make_string(in.runtime(), "1 Byte");
  if (bytes < base)
    return make_string(in.runtime(), fmt::format("{} Bytes", static_cast<std::int64_t>(bytes)));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes >= unit && i + 1 < kPrefixes.size()) continue;
    const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
    return make_string(in.runtime(),
                       fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"));
  }
  return Value();
}

std::string_view strip_spaces(std::string_view text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (begin < end) {
    std::size_t next = begin;
    if (!is_space(next_code_point(text, next))) break;
    begin = next;
  }
  while (end > begin) {
    std::size_t previous = end;
    if (!is_space(previous_code_point(text, previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::int64_t parse_integer(std::string_view text, int base, bool* ok) {
  *ok = false;
  std::string digits(strip_spaces(text));
  bool negative = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  bool prefixed = false;
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int marked = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 0));
    if (marked != 0 && (base == 0 || base == marked)) {
      digits.erase(0, 2);
      if (digits[0] == '_') digits.erase(0, 1);
      base = marked;
      prefixed = true;
    }
  }
  if (base == 0) {
    base = 10;
    if (!prefixed && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of("0_") != std::string::npos)
      return 0;
  }
  std::string plain = negative ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] == '_') {
      if (i == 0 || i + 1 == digits.size() || digits[i - 1] == '_') return 0;
      continue;
    }
    plain += digits[i];
  }
  std::int64_t value = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  if (read.ptr != plain.data() + plain.size() || plain.size() == (negative ? 1u : 0u)) return 0;
  if (read.ec == std::errc::result_out_of_range) fail("OverflowError: an integer does not fit 64 bits");
  *ok = read.ec == std::errc();
  return value;
}

double parse_float(std::string_view text, bool* ok) {
  *ok = false;
  std::string plain;
  text = strip_spaces(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return 0;
      continue;
    }
    plain += static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
  }
  if (plain.empty() || plain[0] == '+' || plain[0] == '-') return 0;
  if (plain == "inf" || plain == "infinity" || plain == "nan") {
    *ok = true;
    const double d = plain == "nan" ? std::nan("") : INFINITY;
    return negative ? -d : d;
  }
  if (plain.find_first_not_of("0123456789.e+-") != std::string::npos) return 0;
  double d = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), d);
  if (read.ptr != plain.data() + plain.size()) return 0;
  if (read.ec == std::errc::result_out_of_range) d = std::strtod(plain.c_str(), nullptr);
  *ok = true;
  return negative ? -d : d;
}

const std::vector<NamedFilter>& number_filters() {
  static const std::vector<NamedFilter> filters = {
      {"int", {to_int}},
      {"float", {to_float}},
      {"abs", {abs}},
      {"round", {round}},
      {"filesizeformat", {filesizeformat}},
  };
  return filters;
}

}  // namespace quire::jinja
