// "..." % values and str.format(), as in Python.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 400;  // more decimals than any double has

std::int64_t read_number(std::string_view text, std::size_t& at, std::int64_t limit) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > limit) fail("the format asks for too large a width or precision (limit)");
  }
  return value;
}

// The C library's %e, %f, %g, whose text is that of Python but for the exponent of inf and nan.
std::string c_format(double d, char type, int precision, bool alternate) {
  if (std::isnan(d)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(d)) {
    const bool upper = type == 'F' || type == 'E' || type == 'G';
    return std::string(d < 0 ? "-" : "") + (upper ? "INF" : "inf");
  }
  const std::array<char, 6> format = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0',
      '\0'};
  std::array<char, 800> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format.data(), precision, d);
  return std::string(buffer.data(), static_cast<std::size_t>(std::clamp(length, 0, 799)));
}

std::string integer_digits(std::uint64_t value, unsigned base, bool upper) {
  const std::string_view symbols = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += symbols[value % base];
    value /= base;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::uint64_t magnitude_of(std::int64_t i) {
  return i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
}

std::int64_t float_to_int(double d) {
  if (!std::isfinite(d)) fail("OverflowError: cannot convert float infinity or NaN to integer");
  d = std::trunc(d);
  if (d < -9223372036854775808.0 || d >= 9223372036854775808.0)
    fail("OverflowError: the float does not fit 64 bits");
  return static_cast<std::int64_t>(d);
}

std::string thousands(const std::string& digits, char separator, std::size_t group) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// --- printf style ---

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& format, const Value& argument)
      : runtime_(interpreter.runtime()),
        markup_(format.string().markup),
        argument_(argument),
        text_(format.text()) {
    if (argument.is(Kind::kTuple))
      positional_ = argument.items();
    else
      positional_ = {argument};
  }

  TrustText run() {
    const std::string_view view = text_.view();
    std::size_t at = 0;
    while (at < view.size()) {
      const std::size_t percent = std::min(view.find('%', at), view.size());
      out_.append(text_, at, percent);
      if (percent == view.size()) break;
      at = percent + 1;
      directive(view, at);
      runtime_.step();
      runtime_.check_text_bytes(out_.size());
    }
    // A mapping may stand unused; other values left over are an error.
    const bool mapping = argument_.is(Kind::kDict) || argument_.is(Kind::kList) || argument_.is_undefined();
    if (!used_mapping_ && next_ < positional_.size() && !mapping) {
      fail("TypeError: not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  Value next_value() {
    if (next_ >= positional_.size()) fail("TypeError: not enough arguments for format string");
    return positional_[next_++];
  }

  void directive(std::string_view view, std::size_t& at) {
    Value named;
    bool has_named = false;
    if (at < view.size() && view[at] == '(') {
      int depth = 1;
      const std::size_t begin = ++at;
      while (at < view.size() && depth > 0) depth += view[at] == '(' ? 1 : (view[at] == ')' ? -1 : 0), ++at;
      if (depth > 0) fail("ValueError: incomplete format key");
      if (!argument_.is(Kind::kDict)) fail("TypeError: format requires a mapping");
      const Value* found = argument_.dict().find(view.substr(begin, at - 1 - begin));
      if (found == nullptr) fail(fmt::format("KeyError: '{}'", view.substr(begin, at - 1 - begin)));
      named = *found;
      has_named = used_mapping_ = true;
    }
    bool left = false, zero = false, plus = false, space = false, alternate = false;
    for (; at < view.size() && std::string_view("-0+ #").find(view[at]) != std::string_view::npos; ++at) {
      left |= view[at] == '-';
      zero |= view[at] == '0';
      plus |= view[at] == '+';
      space |= view[at] == ' ';
      alternate |= view[at] == '#';
    }
    const auto limit = static_cast<std::int64_t>(runtime_.limits().max_output_bytes);
    std::int64_t width = 0;
    if (at < view.size() && view[at] == '*') {
      ++at;
      width = index_value(next_value(), "* in a format");
      if (width < 0) left = true;
      if (width < -limit || width > limit) fail("the format asks for too large a width (limit)");
      width = std::abs(width);
    } else {
      width = read_number(view, at, limit);
    }
    std::int64_t precision = -1;
    if (at < view.size() && view[at] == '.') {
      ++at;
      if (at < view.size() && view[at] == '*') {
        ++at;
        precision = std::max<std::int64_t>(index_value(next_value(), "* in a format"), 0);
        if (precision > limit) fail("the format asks for too large a precision (limit)");
      } else {
        precision = read_number(view, at, limit);
      }
    }
    while (at < view.size() && (view[at] == 'l' || view[at] == 'h' || view[at] == 'L')) ++at;
    if (at >= view.size()) fail("ValueError: incomplete format");
    const char type = view[at++];
    if (type == '%') {
      out_.append("%", text_.trusted_at(at - 1));
      return;
    }
    const Value value = has_named ? named : next_value();
    TrustText body;
    std::string sign;
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        body = text_of(value, type, precision);
        zero = false;
        break;
      case 'c':
        body = character(value);
        zero = false;
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        body = TrustText(integer(value, type, precision, alternate, &sign), true);
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const double d = real(value);
        const auto digits = static_cast<int>(precision < 0 ? 6 : std::min(precision, kMaxPrecision));
        std::string text = c_format(d, type, digits, alternate);
        if (text[0] == '-') {
          sign = "-";
          text.erase(0, 1);
        }
        if (!std::isfinite(d)) zero = false;
        body = TrustText(std::move(text), true);
        break;
      }
      default: {
        std::size_t end = at - 1;
        next_code_point(view, end);
        fail(fmt::format("ValueError: unsupported format character '{}'", view.substr(at - 1, end - at + 1)));
      }
    }
    const bool numeric = std::string_view("srac").find(type) == std::string_view::npos;
    if (numeric && sign.empty()) sign = plus ? "+" : (space ? " " : "");
    if (numeric && zero && !left) {
      body = pad_text(runtime_, body, width - static_cast<std::int64_t>(sign.size()), TrustText("0", true),
                      true, false);
    }
    TrustText whole(sign, true);
    whole.append(body);
    out_.append(pad_text(runtime_, whole, width, TrustText(" ", true), !left, left));
  }

  TrustText text_of(const Value& value, char type, std::int64_t precision) {
    TrustText text;
    if (type == 's') {
      text = to_text(runtime_, value);
      if (markup_ && !(value.is_string() && value.string().markup)) text = escape_html(runtime_, text);
    } else {
      append_repr(runtime_, text, value);
    }
    if (precision >= 0 && precision < static_cast<std::int64_t>(text.size())) {
      text = text.substr(0, code_point_offset(text.view(), static_cast<std::size_t>(precision)));
    }
    return text;
  }

  TrustText character(const Value& value) {
    if (value.is_string() && value.string().num_chars == 1) return value.text();
    if (value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
      std::string bytes;
      append_utf8(bytes, static_cast<CodePoint>(value.as_int()));
      return TrustText(std::move(bytes), true);
    }
    require_defined(value);
    fail("TypeError: %c requires int or char");
  }

  std::string integer(const Value& value, char type, std::int64_t precision, bool alternate,
                      std::string* sign) {
    require_defined(value);
    std::int64_t i = 0;
    if (value.is_integral()) {
      i = value.as_int();
    } else if (value.is(Kind::kFloat) && (type == 'd' || type == 'i' || type == 'u')) {
      i = float_to_int(value.as_double());
    } else {
      fail(fmt::format("TypeError: %{} format: a number is required, not {}", type, type_name(value)));
    }
    if (i < 0) *sign = "-";
    const unsigned base = type == 'x' || type == 'X' ? 16 : (type == 'o' ? 8 : 10);
    std::string digits = integer_digits(magnitude_of(i), base, type == 'X');
    if (precision > static_cast<std::int64_t>(digits.size())) {
      digits.insert(0, static_cast<std::size_t>(precision) - digits.size(), '0');
    }
    if (alternate && base != 10) *sign += std::string("0") + type;
    return digits;
  }

  double real(const Value& value) {
    require_defined(value);
    if (value.is_number()) return value.as_double();
    fail(fmt::format("TypeError: must be real number, not {}", type_name(value)));
  }

  Runtime& runtime_;
  const bool markup_;
  const Value& argument_;
  const TrustText& text_;
  std::vector<Value> positional_;
  std::size_t next_ = 0;
  bool used_mapping_ = false;
  TrustText out_;
};

}  // namespace

TrustText format_percent(Interpreter& interpreter, const Value& format, const Value& argument) {
  return PercentFormatter(interpreter, format, argument).run();
}

namespace {

struct Spec {
  TrustText fill{" ", true};
  char align = 0;
  char sign = '-';
  bool alternate = false, zero = false;
  std::int64_t width = 0, precision = -1;
  char grouping = 0;
  char type = 0;
};

Spec parse_spec(Runtime& runtime, const TrustText& text) {
  Spec spec;
  const std::string_view view = text.view();
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const auto limit = static_cast<std::int64_t>(runtime.limits().max_output_bytes);
  std::size_t at = 0;
  bool has_fill = false;
  if (!view.empty()) {
    std::size_t after_first = 0;
    next_code_point(view, after_first);
    if (after_first < view.size() && is_align(view[after_first])) {
      spec.fill = text.substr(0, after_first);
      has_fill = true;
      spec.align = view[after_first];
      at = after_first + 1;
    } else if (is_align(view[0])) {
      spec.align = view[0];
      at = 1;
    }
  }
  const auto accept = [&](std::string_view set) {
    return at < view.size() && set.find(view[at]) != std::string_view::npos;
  };
  if (accept("+- ")) spec.sign = view[at++];
  if (accept("#")) spec.alternate = ++at > 0;
  if (accept("0")) {
    ++at;
    spec.zero = true;
    if (!has_fill) spec.fill = TrustText("0", true);
  }
  spec.width = read_number(view, at, limit);
  if (accept(",_")) spec.grouping = view[at++];
  if (accept(".")) {
    ++at;
    if (!accept("0123456789")) fail("ValueError: format specifier missing precision");
    spec.precision = read_number(view, at, limit);
  }
  if (accept("bcdeEfFgGnosxX%")) spec.type = view[at++];
  if (at != view.size()) fail(fmt::format("ValueError: invalid format specifier '{}'", view));
  return spec;
}

TrustText pad_number(Runtime& runtime, const Spec& spec, const std::string& sign, const std::string& digits) {
  if (spec.align == '=' || (spec.align == 0 && spec.zero)) {
    TrustText out(sign, true);
    out.append(pad_text(runtime, TrustText(digits, true), spec.width - static_cast<std::int64_t>(sign.size()),
                        spec.fill, true, false));
    return out;
  }
  const char align = spec.align == 0 ? '>' : spec.align;
  if (align == '^') {  // the odd one goes to the right, unlike in str.center()
    const TrustText whole(sign + digits, true);
    const std::int64_t total =
        std::max<std::int64_t>(0, spec.width - static_cast<std::int64_t>(whole.size()));
    const TrustText half =
        pad_text(runtime, whole, static_cast<std::int64_t>(whole.size()) + total / 2, spec.fill, true, false);
    return pad_text(runtime, half, spec.width, spec.fill, false, true);
  }
  return pad_text(runtime, TrustText(sign + digits, true), spec.width, spec.fill, align == '>', align == '<');
}

// Without a type: as many digits as the precision says, an exponent where fewer than one digit would be left
// behind the point.
std::string general_float(double d, std::int64_t precision) {
  if (precision < 0 || !std::isfinite(d)) return float_repr(d);
  const int digits = static_cast<int>(std::clamp<std::int64_t>(precision, 1, kMaxPrecision));
  std::string text = c_format(d, 'e', digits - 1, false);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  const auto drop_zeros = [](std::string number) {
    if (number.find('.') == std::string::npos) return number;
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    return number;
  };
  if (exponent < -4 || exponent >= digits - 1) return drop_zeros(text.substr(0, e)) + text.substr(e);
  text = drop_zeros(c_format(d, 'f', digits - 1 - exponent, false));
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

TrustText format_number(Runtime& runtime, const Value& value, Spec spec) {
  std::string sign;
  std::string digits;
  const bool as_float =
      value.is(Kind::kFloat) || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (spec.type == 's') fail(fmt::format("ValueError: unknown format code 's' for '{}'", type_name(value)));
  if (as_float && spec.type != 0 && std::string_view("bcdosxX").find(spec.type) != std::string_view::npos) {
    fail(fmt::format("ValueError: unknown format code '{}' for 'float'", spec.type));
  }
  bool negative = false;
  std::string prefix;
  if (as_float && !(value.is_integral() && spec.type == 0)) {
    double d = value.as_double();
    negative = std::signbit(d) && !std::isnan(d);
    d = std::fabs(d);
    const auto precision = static_cast<int>(spec.precision < 0 ? 6 : std::min(spec.precision, kMaxPrecision));
    if (spec.type == 0) {
      digits = general_float(d, spec.precision);
    } else if (spec.type == '%') {
      digits = c_format(d * 100, 'f', precision, spec.alternate) + "%";
    } else {
      digits = c_format(d, spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate);
    }
  } else {
    const std::int64_t i = value.as_int();
    negative = i < 0;
    if (spec.precision >= 0) fail("ValueError: precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      if (i < 0 || i > 0x10FFFF) fail("OverflowError: %c arg not in range(0x110000)");
      append_utf8(digits, static_cast<CodePoint>(i));
      negative = false;
    } else {
      const unsigned base =
          spec.type == 'b' ? 2 : (spec.type == 'o' ? 8 : (spec.type == 'x' || spec.type == 'X' ? 16 : 10));
      digits = integer_digits(magnitude_of(i), base, spec.type == 'X');
      if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
    }
  }
  if (spec.grouping != 0) {
    const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    const bool hex =
        !as_float && std::string_view("boxX").find(spec.type) != std::string_view::npos && spec.type != 0;
    digits = thousands(digits.substr(0, whole), spec.grouping, hex ? 4 : 3) + digits.substr(whole);
  }
  sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  return pad_number(runtime, spec, sign + prefix, digits);
}

// One replacement field's name, such as "0", "user.name" or "items[0]".
Value field_value(Interpreter& interpreter, std::string_view name, const Arguments& arguments,
                  std::size_t& next_auto) {
  const std::size_t end = std::min(name.find_first_of(".["), name.size());
  const std::string_view first = name.substr(0, end);
  Value value;
  const bool is_index = first.find_first_not_of("0123456789") == std::string_view::npos;
  if (is_index) {
    std::size_t at = 0;
    const std::size_t index =
        first.empty() ? next_auto++ : static_cast<std::size_t>(read_number(first, at, 1 << 20));
    if (index >= arguments.positional.size())
      fail("IndexError: replacement index out of range for positional args");
    value = arguments.positional[index];
  } else {
    bool found = false;
    for (const auto& [key, named] : arguments.named) {
      if (key.bytes() != first) continue;
      value = named;
      found = true;
    }
    if (!found) fail(fmt::format("KeyError: '{}'", first));
  }
  Runtime& runtime = interpreter.runtime();
  for (std::size_t at = end; at < name.size();) {
    if (name[at] == '.') {
      const std::size_t stop = std::min(name.find_first_of(".[", at + 1), name.size());
      value = get_attribute(interpreter, value, make_string(runtime, name.substr(at + 1, stop - at - 1)));
      at = stop;
    } else if (name[at] == '[') {
      const std::size_t stop = name.find(']', at);
      if (stop == std::string_view::npos) fail("ValueError: missing ']' in format string");
      const std::string_view key = name.substr(at + 1, stop - at - 1);
      std::size_t digit = 0;
      const bool number = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
      value =
          get_item(interpreter, value,
                   number ? Value::integer(read_number(key, digit, INT32_MAX)) : make_string(runtime, key));
      at = stop + 1;
    } else {
      fail("ValueError: only '.' or '[' may follow ']' in a format field");
    }
  }
  return value;
}

void format_into(Interpreter& interpreter, const TrustText& format, const Arguments& arguments,
                 std::size_t& next_auto, int depth, TrustText& out) {
  if (depth > 2) fail("ValueError: max string recursion exceeded");
  const std::string_view view = format.view();
  Runtime& runtime = interpreter.runtime();
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t brace = std::min(view.find_first_of("{}", at), view.size());
    out.append(format, at, brace);
    if (brace == view.size()) return;
    runtime.step();
    if (brace + 1 < view.size() && view[brace + 1] == view[brace]) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    if (view[brace] == '}') fail("ValueError: single '}' encountered in format string");
    std::size_t end = brace + 1;
    int open = 1;
    while (end < view.size() && open > 0) {
      open += view[end] == '{' ? 1 : (view[end] == '}' ? -1 : 0);
      ++end;
    }
    if (open > 0) fail("ValueError: expected '}' before end of string");
    const std::size_t body_end = end - 1;
    std::size_t name_end = brace + 1;
    bool in_brackets = false;
    while (name_end < body_end && (in_brackets || (view[name_end] != '!' && view[name_end] != ':'))) {
      in_brackets = view[name_end] == '[' || (in_brackets && view[name_end] != ']');
      ++name_end;
    }
    Value value =
        field_value(interpreter, view.substr(brace + 1, name_end - brace - 1), arguments, next_auto);
    std::size_t spec_begin = name_end;
    if (name_end < body_end && view[name_end] == '!') {
      const char conversion = name_end + 1 < body_end ? view[name_end + 1] : ' ';
      if (conversion != 's' && conversion != 'r' && conversion != 'a') {
        fail(fmt::format("ValueError: unknown conversion specifier '{}'", conversion));
      }
      TrustText text;
      if (conversion == 's') {
        text = to_text(runtime, value);
      } else {
        append_repr(runtime, text, value);
      }
      value = make_string(runtime, std::move(text));
      spec_begin = name_end + 2;
      if (spec_begin < body_end && view[spec_begin] != ':')
        fail("ValueError: expected ':' after conversion specifier");
    }
    TrustText spec;
    if (spec_begin < body_end) {
      format_into(interpreter, format.substr(spec_begin + 1, body_end), arguments, next_auto, depth + 1,
                  spec);
    }
    out.append(format_value(interpreter, value, spec));
    runtime.check_text_bytes(out.size());
    at = end;
  }
}

}  // namespace

TrustText format_value(Interpreter& interpreter, const Value& value, const TrustText& spec_text) {
  Runtime& runtime = interpreter.runtime();
  if (spec_text.empty()) return to_text(runtime, value);
  Spec spec = parse_spec(runtime, spec_text);
  if (value.is(Kind::kBool) && spec.type == 0) {
    // bool with a width but no type prints as an int does
    return format_number(runtime, Value::integer(value.as_int()), std::move(spec));
  }
  if (value.is_number()) return format_number(runtime, value, std::move(spec));
  require_defined(value);
  if (!value.is_string()) {
    fail(fmt::format("TypeError: unsupported format string passed to {}.__format__", type_name(value)));
  }
  if (spec.type != 0 && spec.type != 's')
    fail(fmt::format("ValueError: unknown format code '{}' for 'str'", spec.type));
  if (spec.align == '=') fail("ValueError: '=' alignment not allowed in string format specifier");
  TrustText text = value.text();
  if (spec.precision >= 0 && spec.precision < static_cast<std::int64_t>(text.size())) {
    text = text.substr(0, code_point_offset(text.view(), static_cast<std::size_t>(spec.precision)));
  }
  if (spec.align != '^')
    return pad_text(runtime, text, spec.width, spec.fill, spec.align == '>', spec.align != '>');
  const auto num_chars = static_cast<std::int64_t>(count_code_points(text.view()));
  const std::int64_t total = std::max<std::int64_t>(0, spec.width - num_chars);
  const TrustText half = pad_text(runtime, text, num_chars + total / 2, spec.fill, true, false);
  return pad_text(runtime, half, spec.width, spec.fill, false, true);
}

TrustText format_braces(Interpreter& interpreter, const TrustText& format, const Arguments& arguments) {
  TrustText out;
  std::size_t next_auto = 0;
  format_into(interpreter, format, arguments, next_auto, 1, out);
  return out;
}

}  // namespace quire::jinja
