// Methods of str: splitting, searching, replacing, joining, formatting.
#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

Value like(Interpreter& in, const Value& self, TrustText text) {
  return make_string(in.runtime(), std::move(text), self.string().markup);
}

Value like_list(Interpreter& in, const Value& self, std::vector<TrustText> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (TrustText& text : texts) items.push_back(like(in, self, std::move(text)));
  return make_list(in.runtime(), std::move(items));
}

const TrustText& string_argument(const Value& value, const char* what) {
  if (!value.is_string()) {
    require_defined(value);
    fail(fmt::format("TypeError: {} must be str, not {}", what, type_name(value)));
  }
  return value.text();
}

const TrustText& separator_argument(const Value& value) {
  const TrustText& separator = string_argument(value, "separator");
  if (separator.empty()) fail("ValueError: empty separator");
  return separator;
}

std::vector<TrustText> split_at_spaces(Runtime& runtime, const TrustText& text, std::int64_t max_splits) {
  std::vector<TrustText> parts;
  std::size_t at = 0;
  const auto skip_spaces = [&] {
    while (at < text.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(text.view(), next))) break;
      at = next;
    }
  };
  skip_spaces();
  while (at < text.size()) {
    if (max_splits-- == 0) {
      parts.push_back(text.substr(at, text.size()));
      break;
    }
    const std::size_t begin = at;
    std::size_t end = at;
    while (at < text.size()) {
      end = at;
      if (is_space(next_code_point(text.view(), at))) break;
      end = at;
    }
    parts.push_back(text.substr(begin, end));
    runtime.check_memory(parts.size() * sizeof(TrustText));
    skip_spaces();
  }
  return parts;
}

std::vector<TrustText> split_at_spaces_from_right(const TrustText& text, std::int64_t max_splits) {
  std::vector<TrustText> parts;
  std::size_t end = text.size();
  const auto skip_spaces = [&] {
    while (end > 0) {
      std::size_t previous = end;
      if (!is_space(previous_code_point(text.view(), previous))) break;
      end = previous;
    }
  };
  skip_spaces();
  while (end > 0) {
    std::size_t begin = end;
    if (max_splits-- == 0) {
      parts.push_back(text.substr(0, end));
      break;
    }
    while (begin > 0) {
      std::size_t previous = begin;
      if (is_space(previous_code_point(text.view(), previous))) break;
      begin = previous;
    }
    parts.push_back(text.substr(begin, end));
    end = begin;
    skip_spaces();
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<TrustText> split_at(Runtime& runtime, const TrustText& text, std::string_view separator,
                                std::int64_t max_splits) {
  std::vector<TrustText> parts;
  std::size_t begin = 0;
  while (max_splits-- != 0) {
    const std::size_t found = text.view().find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(begin, found));
    runtime.check_memory(parts.size() * sizeof(TrustText));
    begin = found + separator.size();
  }
  parts.push_back(text.substr(begin, text.size()));
  return parts;
}

std::vector<TrustText> split_at_from_right(Runtime& runtime, const TrustText& text,
                                           std::string_view separator, std::int64_t max_splits) {
  std::vector<TrustText> parts;
  std::size_t end = text.size();
  while (max_splits-- != 0) {
    const std::size_t found = text.view().substr(0, end).rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size(), end));
    runtime.check_memory(parts.size() * sizeof(TrustText));
    end = found;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value split(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind<2>("split", {"sep", "maxsplit"});
  Runtime& runtime = in.runtime();
  runtime.work(self.text().size());
  const std::int64_t max_splits = bound[1] == nullptr ? -1 : index_value(*bound[1], "maxsplit");
  std::vector<TrustText> parts;
  if (bound[0] == nullptr || bound[0]->is_none()) {
    parts = from_right ? split_at_spaces_from_right(self.text(), max_splits)
                       : split_at_spaces(runtime, self.text(), max_splits);
  } else {
    const std::string_view separator = separator_argument(*bound[0]).view();
    parts = from_right ? split_at_from_right(runtime, self.text(), separator, max_splits)
                       : split_at(runtime, self.text(), separator, max_splits);
  }
  return like_list(in, self, std::move(parts));
}

Value splitlines(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind<1>("splitlines", {"keepends"});
  return like_list(in, self,
                   split_lines(in.runtime(), self.text(), bound[0] != nullptr && truthy(*bound[0])));
}

template <bool from_right>
Value partition(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("partition", {"sep"}, 1);
  const TrustText& separator = separator_argument(*bound[0]);
  const TrustText& text = self.text();
  in.runtime().work(text.size());
  const std::size_t found =
      from_right ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  std::vector<Value> parts;
  if (found == std::string_view::npos) {
    parts = {like(in, self, from_right ? TrustText() : text), like(in, self, TrustText()),
             like(in, self, from_right ? text : TrustText())};
  } else {
    const std::size_t after = found + separator.size();
    parts = {like(in, self, text.substr(0, found)), like(in, self, text.substr(found, after)),
             like(in, self, text.substr(after, text.size()))};
  }
  return make_tuple(in.runtime(), std::move(parts));
}

// Character positions start and end as str methods take them -> byte range; false if start is behind the end.
bool byte_range(const Value& self, const Value* start, const Value* end, std::size_t* begin_byte,
                std::size_t* end_byte) {
  const auto length = static_cast<std::int64_t>(self.string().num_chars);
  const auto resolve = [&](const Value* value, std::int64_t otherwise) {
    if (value == nullptr || value->is_none()) return otherwise;
    std::int64_t index = index_value(*value, "slice indices");
    if (index < 0) index = index < -length ? 0 : index + length;
    return index;
  };
  const std::int64_t from = resolve(start, 0);
  const std::int64_t to = std::min(resolve(end, length), length);
  if (from > to) return false;
  *begin_byte = code_point_offset(self.bytes(), static_cast<std::size_t>(from));
  *end_byte = code_point_offset(self.bytes(), static_cast<std::size_t>(to));
  return true;
}

enum class Search { kFind, kRfind, kIndex, kRindex };

template <Search how>
Value find(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<3>("find", {"sub", "start", "end"}, 1);
  const std::string_view needle = string_argument(*bound[0], "the substring").view();
  in.runtime().work(self.text().size());
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t found = std::string_view::npos;
  if (byte_range(self, bound[1], bound[2], &begin, &end)) {
    const std::string_view part = std::string_view(self.bytes()).substr(begin, end - begin);
    found = how == Search::kFind || how == Search::kIndex ? part.find(needle) : part.rfind(needle);
  }
  if (found == std::string_view::npos) {
    if (how == Search::kIndex || how == Search::kRindex) fail("ValueError: substring not found");
    return Value::integer(-1);
  }
  const std::string_view before = std::string_view(self.bytes()).substr(0, begin + found);
  return Value::integer(static_cast<std::int64_t>(count_code_points(before)));
}

Value count(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<3>("count", {"sub", "start", "end"}, 1);
  const std::string_view needle = string_argument(*bound[0], "the substring").view();
  in.runtime().work(self.text().size());
  std::size_t begin = 0;
  std::size_t end = 0;
  if (!byte_range(self, bound[1], bound[2], &begin, &end)) return Value::integer(0);
  const std::string_view part = std::string_view(self.bytes()).substr(begin, end - begin);
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(count_code_points(part)) + 1);
  std::int64_t total = 0;
  for (std::size_t at = part.find(needle); at != std::string_view::npos;
       at = part.find(needle, at + needle.size())) {
    ++total;
  }
  return Value::integer(total);
}

template <bool at_start>
Value has_affix(Interpreter&, const Value& self, const Arguments& args) {
  const auto bound =
      args.bind_positional<3>(at_start ? "startswith" : "endswith", {"prefix", "start", "end"}, 1);
  std::vector<Value> affixes;
  if (bound[0]->is(Kind::kTuple)) {
    affixes = bound[0]->items();
  } else {
    affixes.push_back(*bound[0]);
  }
  std::size_t begin = 0;
  std::size_t end = 0;
  const bool in_range = byte_range(self, bound[1], bound[2], &begin, &end);
  for (const Value& affix : affixes) {
    const std::string_view text = string_argument(affix, "the first argument").view();
    if (!in_range) continue;
    const std::string_view part = std::string_view(self.bytes()).substr(begin, end - begin);
    if (at_start ? part.substr(0, text.size()) == text
                 : part.size() >= text.size() && part.substr(part.size() - text.size()) == text) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

template <bool prefix>
Value remove_affix(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("removeaffix", {"affix"}, 1);
  const std::string_view affix = string_argument(*bound[0], "the affix").view();
  const TrustText& text = self.text();
  if (prefix && text.view().substr(0, affix.size()) == affix) {
    return like(in, self, text.substr(affix.size(), text.size()));
  }
  if (!prefix && !affix.empty() && text.size() >= affix.size() &&
      text.view().substr(text.size() - affix.size()) == affix) {
    return like(in, self, text.substr(0, text.size() - affix.size()));
  }
  return self;
}

Value replace(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<3>("replace", {"old", "new", "count"}, 2);
  const std::int64_t max_count = bound[2] == nullptr ? -1 : index_value(*bound[2], "count");
  return like(in, self,
              replace_text(in.runtime(), self.text(), string_argument(*bound[0], "replace() argument 1"),
                           string_argument(*bound[1], "replace() argument 2"), max_count));
}

Value join(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("join", {"iterable"}, 1);
  if (!is_iterable(*bound[0])) {
    fail(fmt::format("TypeError: can only join an iterable, not {}", type_name(*bound[0])));
  }
  std::vector<Value> items = iterate(in.runtime(), *bound[0]);
  if (self.string().markup) {
    for (Value& item : items) {
      if (item.is_string() && item.string().markup) continue;
      item = make_string(in.runtime(), escape_html(in.runtime(), to_text(in.runtime(), item)), true);
    }
  }
  return like(in, self, join_texts(in.runtime(), self.text(), items, true));
}

Value format(Interpreter& in, const Value& self, const Arguments& args) {
  return like(in, self, format_braces(in, self.text(), args));
}

Value format_map(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("format_map", {"mapping"}, 1);
  if (!bound[0]->is(Kind::kDict)) fail("TypeError: format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : bound[0]->dict().entries) {
    if (key.is_string()) named.named.emplace_back(key, value);
  }
  return like(in, self, format_braces(in, self.text(), named));
}

}  // namespace

const std::vector<Method>& string_search_methods() {
  static const std::vector<Method> methods = {
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", splitlines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"find", find<Search::kFind>},
      {"rfind", find<Search::kRfind>},
      {"index", find<Search::kIndex>},
      {"rindex", find<Search::kRindex>},
      {"count", count},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace},
      {"join", join},
      {"format", format},
      {"format_map", format_map},
  };
  return methods;
}

}  // namespace quire::jinja
