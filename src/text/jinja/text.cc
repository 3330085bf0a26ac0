// str() and repr() of values, as Python prints them.
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace quire::jinja {
namespace {

void append_string_repr(Runtime& runtime, TrustText& out, const TrustText& text) {
  runtime.work(text.size());
  const bool double_quotes =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.append(std::string_view(&quote, 1), true);
  text.for_each_run([&](std::size_t begin, std::size_t end, bool trusted) {
    std::string piece;
    for (std::size_t at = begin; at < end;) {
      const std::size_t start = at;
      const CodePoint c = next_code_point(text.view(), at);
      if (c == quote || c == '\\') {
        piece += '\\';
        piece += static_cast<char>(c);
      } else if (c == '\n') {
        piece += "\\n";
      } else if (c == '\r') {
        piece += "\\r";
      } else if (c == '\t') {
        piece += "\\t";
      } else if (is_printable(c)) {
        piece.append(text.view().substr(start, at - start));
      } else if (c < 0x100) {
        piece += fmt::format("\\x{:02x}", c);
      } else if (c < 0x10000) {
        piece += fmt::format("\\u{:04x}", c);
      } else {
        piece += fmt::format("\\U{:08x}", c);
      }
    }
    out.append(piece, trusted);
  });
  out.append(std::string_view(&quote, 1), true);
}

void append_joined(Runtime& runtime, TrustText& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", true);
    append_repr(runtime, out, items[i]);
  }
}

void append_dict_repr(Runtime& runtime, TrustText& out, const DictObject& dict) {
  out.append("{", true);
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", true);
    append_repr(runtime, out, dict.entries[i].first);
    out.append(": ", true);
    append_repr(runtime, out, dict.entries[i].second);
  }
  out.append("}", true);
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = shortest.find('e');
  std::string digits;
  bool negative = false;
  for (const char c : shortest.substr(0, e)) {
    if (c == '-') {
      negative = true;
    } else if (c != '.') {
      digits += c;
    }
  }
  int exponent = 0;
  std::string_view exponent_text = shortest.substr(e + 1);
  if (exponent_text[0] == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string out = negative ? "-" : "";
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {  // where Python's repr changes to an exponent
    out += digits[0];
    if (num_digits > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else if (exponent >= num_digits - 1) {
    out += digits + std::string(static_cast<std::size_t>(exponent - num_digits + 1), '0') + ".0";
  } else {
    out += digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
           digits.substr(static_cast<std::size_t>(exponent) + 1);
  }
  return out;
}

void append_repr(Runtime& runtime, TrustText& out, const Value& value) {
  runtime.step();
  runtime.check_stack();
  runtime.check_text_bytes(out.size());
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append("Undefined", true);
      return;
    case Kind::kNone:
      out.append("None", true);
      return;
    case Kind::kBool:
      out.append(value.as_bool() ? "True" : "False", true);
      return;
    case Kind::kInt:
      out.append(std::to_string(value.as_int()), true);
      return;
    case Kind::kFloat:
      out.append(float_repr(value.as_double()), true);
      return;
    case Kind::kString:
      if (value.string().markup) out.append("Markup(", true);
      append_string_repr(runtime, out, value.text());
      if (value.string().markup) out.append(")", true);
      return;
    case Kind::kList:
      out.append("[", true);
      append_joined(runtime, out, value.items());
      out.append("]", true);
      return;
    case Kind::kTuple:
      out.append("(", true);
      append_joined(runtime, out, value.items());
      out.append(value.items().size() == 1 ? ",)" : ")", true);
      return;
    case Kind::kDict:
      append_dict_repr(runtime, out, value.dict());
      return;
    case Kind::kView:
      out.append(fmt::format("{}([", type_name(value)), true);
      append_joined(runtime, out, iterate(runtime, value));
      out.append("])", true);
      return;
    case Kind::kRange: {
      const RangeObject& range = value.range();
      out.append(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                                 : fmt::format("range({}, {}, {})", range.start, range.stop, range.step),
                 true);
      return;
    }
    case Kind::kIterator:
      out.append("<generator object>", true);
      return;
    case Kind::kNamespace:
      out.append("<Namespace ", true);
      append_dict_repr(runtime, out, *value.ns().attributes);
      out.append(">", true);
      return;
    case Kind::kCallable:
      out.append(value.callable().describe(), true);
      return;
  }
}

void append_str(Runtime& runtime, TrustText& out, const Value& value) {
  if (value.is_string()) {
    runtime.work(value.text().size());
    out.append(value.text());
  } else if (!value.is_undefined()) {
    append_repr(runtime, out, value);
  }
  runtime.check_text_bytes(out.size());
}

TrustText to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  TrustText out;
  append_str(runtime, out, value);
  return out;
}

}  // namespace quire::jinja
