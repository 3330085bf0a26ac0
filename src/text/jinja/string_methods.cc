// Methods of str: case, stripping, padding, predicates.
#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

Value like(Interpreter& in, const Value& self, TrustText text) {
  return make_string(in.runtime(), std::move(text), self.string().markup);
}

template <CaseMap map>
Value case_method(Interpreter& in, const Value& self, const Arguments& args) {
  args.bind_none("str method");
  return like(in, self, map_case(in.runtime(), self.text(), map));
}

template <Strip where>
Value strip_method(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("strip", {"chars"});
  return like(in, self, strip_text(in.runtime(), self.text(), bound[0], where));
}

template <bool left, bool right>
Value pad_method(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<2>("just", {"width", "fillchar"}, 1);
  TrustText fill(" ", true);
  if (bound[1] != nullptr) {
    if (!bound[1]->is_string() || bound[1]->string().num_chars != 1) {
      fail("TypeError: the fill character must be exactly one character long");
    }
    fill = bound[1]->text();
  }
  return like(in, self,
              pad_text(in.runtime(), self.text(), index_value(*bound[0], "width"), fill, left, right));
}

Value zfill(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("zfill", {"width"}, 1);
  const TrustText& text = self.text();
  const bool sign = !text.empty() && (text.view()[0] == '+' || text.view()[0] == '-');
  const std::int64_t width = index_value(*bound[0], "width");
  TrustText out = text.substr(0, sign ? 1 : 0);
  out.append(pad_text(in.runtime(), text.substr(sign ? 1 : 0, text.size()),
                      width > INT64_MIN ? width - (sign ? 1 : 0) : 0, TrustText("0", true), true, false));
  return like(in, self, std::move(out));
}

// All characters pass, and there is one.
template <bool (*accepts)(CodePoint)>
Value all_method(Interpreter& in, const Value& self, const Arguments& args) {
  args.bind_none("str method");
  in.runtime().work(self.text().size());
  const std::string_view view = self.bytes();
  for (std::size_t at = 0; at < view.size();) {
    if (!accepts(next_code_point(view, at))) return Value::boolean(false);
  }
  return Value::boolean(!view.empty());
}

bool is_alnum(CodePoint c) {
  return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
}

// Some character has the case and none has another one.
template <bool upper>
Value cased_method(Interpreter& in, const Value& self, const Arguments& args) {
  args.bind_none("str method");
  in.runtime().work(self.text().size());
  bool any = false;
  const std::string_view view = self.bytes();
  for (std::size_t at = 0; at < view.size();) {
    const CodePoint c = next_code_point(view, at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return Value::boolean(false);
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return Value::boolean(any);
}

Value istitle(Interpreter& in, const Value& self, const Arguments& args) {
  args.bind_none("istitle");
  in.runtime().work(self.text().size());
  bool any = false;
  bool after_cased = false;
  const std::string_view view = self.bytes();
  for (std::size_t at = 0; at < view.size();) {
    const CodePoint c = next_code_point(view, at);
    if (is_upper(c) || is_title(c)) {
      if (after_cased) return Value::boolean(false);
      any = after_cased = true;
    } else if (is_lower(c)) {
      if (!after_cased) return Value::boolean(false);
      any = true;
    } else {
      after_cased = false;
    }
  }
  return Value::boolean(any);
}

Value isascii(Interpreter&, const Value& self, const Arguments& args) {
  args.bind_none("isascii");
  return Value::boolean(self.string().ascii());
}

Value isprintable(Interpreter& in, const Value& self, const Arguments& args) {
  if (self.text().empty()) return Value::boolean(true);
  return all_method<is_printable>(in, self, args);
}

Value isidentifier(Interpreter& in, const Value& self, const Arguments& args) {
  std::size_t at = 0;
  if (self.text().empty() || !is_identifier_start(next_code_point(self.bytes(), at)))
    return Value::boolean(false);
  return all_method<is_identifier_part>(in, self, args);
}

Value expandtabs(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind<1>("expandtabs", {"tabsize"});
  const std::int64_t size = bound[0] == nullptr ? 8 : index_value(*bound[0], "tabsize");
  const TrustText& text = self.text();
  TrustText out;
  std::int64_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const CodePoint c = next_code_point(text.view(), at);
    in.runtime().step();
    if (c == '\t') {
      if (size <= 0) continue;
      const std::int64_t spaces = size - column % size;
      if (static_cast<std::uint64_t>(spaces) > in.runtime().limits().max_output_bytes) {
        in.runtime().check_text_bytes(in.runtime().limits().max_output_bytes + 1);
      }
      out.append(std::string(static_cast<std::size_t>(spaces), ' '), text.trusted_at(begin));
      in.runtime().check_text_bytes(out.size());
      column += spaces;
    } else {
      out.append(text, begin, at);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(in, self, std::move(out));
}

}  // namespace

const std::vector<Method>& string_methods() {
  static const std::vector<Method> methods = {
      {"upper", case_method<CaseMap::kUpper>},
      {"lower", case_method<CaseMap::kLower>},
      {"title", case_method<CaseMap::kTitle>},
      {"capitalize", case_method<CaseMap::kCapitalize>},
      {"swapcase", case_method<CaseMap::kSwap>},
      {"casefold", case_method<CaseMap::kFold>},
      {"strip", strip_method<Strip::kBoth>},
      {"lstrip", strip_method<Strip::kLeft>},
      {"rstrip", strip_method<Strip::kRight>},
      {"center", pad_method<true, true>},
      {"ljust", pad_method<false, true>},
      {"rjust", pad_method<true, false>},
      {"zfill", zfill},
      {"isalpha", all_method<is_alpha>},
      {"isdigit", all_method<is_digit>},
      {"isdecimal", all_method<is_decimal>},
      {"isnumeric", all_method<is_numeric>},
      {"isalnum", all_method<is_alnum>},
      {"isspace", all_method<is_space>},
      {"isupper", cased_method<true>},
      {"islower", cased_method<false>},
      {"istitle", istitle},
      {"isascii", isascii},
      {"isprintable", isprintable},
      {"isidentifier", isidentifier},
      {"expandtabs", expandtabs},
  };
  return methods;
}

}  // namespace quire::jinja
