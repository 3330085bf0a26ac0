// Filters on text.
#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

bool is_markup(const Value& v) {
  return v.is_string() && v.string().markup;
}

Value text_value(Interpreter& in, const Value& like, TrustText text) {
  return make_string(in.runtime(), std::move(text), is_markup(like));
}

template <CaseMap map>
Value case_filter(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("case filter");
  return text_value(in, v, map_case(in.runtime(), to_text(in.runtime(), v), map));
}

// Unlike str.title(): a word begins behind spaces, hyphens and opening brackets only.
Value title(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("title");
  const TrustText text = to_text(in.runtime(), v);
  in.runtime().work(8 * text.size());
  const auto is_separator = [](CodePoint c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  TrustText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (is_separator(next_code_point(text.view(), at))) {
      out.append(text, begin, at);
      continue;
    }
    const std::size_t after_first = at;
    while (at < text.size()) {
      std::size_t next = at;
      if (is_separator(next_code_point(text.view(), next))) break;
      at = next;
    }
    out.append(map_case(in.runtime(), text.substr(begin, after_first), CaseMap::kUpper));
    out.append(map_case(in.runtime(), text.substr(after_first, at), CaseMap::kLower));
  }
  return make_string(in.runtime(), std::move(out));
}

Value trim(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("trim", {"chars"});
  return text_value(in, v, strip_text(in.runtime(), to_text(in.runtime(), v), bound[0], Strip::kBoth));
}

Value replace(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<3>("replace", {"old", "new", "count"}, 2);
  const std::int64_t count =
      bound[2] == nullptr || bound[2]->is_none() ? -1 : index_value(*bound[2], "count");
  return make_string(in.runtime(),
                     replace_text(in.runtime(), to_text(in.runtime(), v), to_text(in.runtime(), *bound[0]),
                                  to_text(in.runtime(), *bound[1]), count));
}

Value string(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("string");
  return v.is_string() ? v : make_string(in.runtime(), to_text(in.runtime(), v));
}

Value escape(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("escape");
  if (is_markup(v)) return v;
  return make_string(in.runtime(), escape_html(in.runtime(), to_text(in.runtime(), v)), true);
}

Value forceescape(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("forceescape");
  return make_string(in.runtime(), escape_html(in.runtime(), to_text(in.runtime(), v)), true);
}

Value safe(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("safe");
  return make_string(in.runtime(), to_text(in.runtime(), v), true);
}

Value center(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("center", {"width"});
  const std::int64_t width = bound[0] == nullptr ? 80 : index_value(*bound[0], "width");
  return text_value(
      in, v, pad_text(in.runtime(), to_text(in.runtime(), v), width, TrustText(" ", true), true, true));
}

Value indent(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<3>("indent", {"width", "first", "blank"});
  Runtime& runtime = in.runtime();
  TrustText prefix(std::string(4, ' '), true);
  if (bound[0] != nullptr && bound[0]->is_string()) {
    prefix = bound[0]->text();
  } else if (bound[0] != nullptr) {
    const std::int64_t width = std::max<std::int64_t>(0, index_value(*bound[0], "width"));
    prefix = pad_text(runtime, TrustText(), width, TrustText(" ", true), true, false);
  }
  const bool first = bound[1] != nullptr && truthy(*bound[1]);
  const bool blank = bound[2] != nullptr && truthy(*bound[2]);
  if (!v.is_string() && !v.is_undefined()) {
    fail(fmt::format("TypeError: indent() takes a string, not {}", type_name(v)));
  }
  TrustText text = to_text(runtime, v);
  text.append("\n", true);  // jinja2 adds one, so that a last empty line counts
  const std::vector<TrustText> lines = split_lines(runtime, text, false);
  TrustText out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", true);
    if (i == 0 ? first : (blank || !lines[i].empty())) out.append(prefix);
    out.append(lines[i]);
    runtime.work(prefix.size());
    runtime.check_text_bytes(out.size());
  }
  return text_value(in, v, std::move(out));
}

Value truncate(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<4>("truncate", {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound[0] == nullptr ? 255 : index_value(*bound[0], "length");
  const bool kill_words = bound[1] != nullptr && truthy(*bound[1]);
  const TrustText end = bound[2] == nullptr ? TrustText("...", true) : to_text(in.runtime(), *bound[2]);
  const std::int64_t leeway =
      bound[3] == nullptr || bound[3]->is_none() ? 5 : index_value(*bound[3], "leeway");
  const auto end_chars = static_cast<std::int64_t>(count_code_points(end.view()));
  if (length < end_chars)
    fail(fmt::format("truncate() expects a length of at least {}, got {}", end_chars, length));
  if (leeway < 0) fail(fmt::format("truncate() expects a leeway of at least 0, got {}", leeway));
  if (!has_length(v)) fail(fmt::format("TypeError: object of type '{}' has no len()", type_name(v)));
  if (!v.is_string()) {
    if (length_of(in.runtime(), v) <= length + std::min<std::int64_t>(leeway, 1 << 30)) return v;
    fail(fmt::format("TypeError: truncate() takes a string, not {}", type_name(v)));
  }
  const TrustText& text = v.text();
  if (static_cast<std::int64_t>(v.string().num_chars) - leeway <= length) return v;
  TrustText out =
      text.substr(0, code_point_offset(text.view(), static_cast<std::size_t>(length - end_chars)));
  if (!kill_words) {
    const std::size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.substr(0, space);
  }
  out.append(end);
  return text_value(in, v, std::move(out));
}

bool is_word(CodePoint c) {
  return c == '_' || is_alpha(c) || is_numeric(c);
}

Value wordcount(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("wordcount");
  const TrustText text = to_text(in.runtime(), v);
  in.runtime().work(text.size());
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool word = is_word(next_code_point(text.view(), at));
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

// One line without a break, at white space, into pieces of at most `width` characters; words longer than that
// are cut if break_long, and hyphens are break points if break_hyphens.
class Wrapper {
 public:
  Wrapper(Runtime& runtime, std::size_t width, bool break_long, bool break_hyphens)
      : runtime_(runtime), width_(width), break_long_(break_long), break_hyphens_(break_hyphens) {}

  std::vector<TrustText> wrap(const TrustText& line) {
    split_chunks(line);
    std::vector<TrustText> out;
    std::size_t i = 0;
    while (i < chunks_.size()) {
      runtime_.step();
      if (chunks_[i].space && !out.empty()) ++i;
      TrustText current;
      std::size_t used = 0;
      std::size_t last_space_begin = 0;
      bool ends_in_space = false;
      while (i < chunks_.size() && used + chunks_[i].num_chars <= width_) {
        last_space_begin = current.size();
        ends_in_space = chunks_[i].space;
        used += chunks_[i].num_chars;
        current.append(chunks_[i++].text);
      }
      if (i < chunks_.size() && chunks_[i].num_chars > width_) {
        if (break_long_) {
          Chunk& chunk = chunks_[i];
          const std::size_t room = width_ - used;
          const std::size_t cut = code_point_offset(chunk.text.view(), room);
          current.append(chunk.text, 0, cut);
          ends_in_space = ends_in_space && cut == 0;
          chunk.text = chunk.text.substr(cut, chunk.text.size());
          chunk.num_chars -= room;
        } else if (current.empty()) {
          current.append(chunks_[i++].text);
          ends_in_space = false;
        }
      }
      if (ends_in_space) current = current.substr(0, last_space_begin);
      if (!current.empty()) out.push_back(std::move(current));
    }
    return out;
  }

 private:
  struct Chunk {
    TrustText text;
    std::size_t num_chars;
    bool space;
  };

  void split_chunks(const TrustText& line) {
    const std::string_view view = line.view();
    std::size_t begin = 0;
    const auto add = [&](std::size_t end, bool space) {
      if (end == begin) return;
      TrustText text = line.substr(begin, end);
      const std::size_t num_chars = count_code_points(text.view());
      chunks_.push_back({std::move(text), num_chars, space});
      begin = end;
    };
    const auto ascii_space = [](CodePoint c) { return (c >= 9 && c <= 13) || c == ' '; };
    CodePoint two_before = 0, before = 0;
    for (std::size_t at = 0; at < view.size();) {
      const std::size_t start = at;
      const CodePoint c = next_code_point(view, at);
      const bool space = ascii_space(c);
      if (start > begin && space != ascii_space(before)) add(start, !space);
      // "well-known": a break point between letters, behind the hyphen
      if (break_hyphens_ && c == '-' && is_alpha(before) && (is_alpha(two_before) || two_before == '-') &&
          at < view.size()) {
        std::size_t next = at;
        const CodePoint first = next_code_point(view, next);
        if (is_alpha(first) && next < view.size()) {
          const CodePoint second = next_code_point(view, next);
          if (is_alpha(second) || second == '-') add(at, false);
        }
      }
      two_before = before;
      before = c;
    }
    add(view.size(), ascii_space(before));
  }

  Runtime& runtime_;
  const std::size_t width_;
  const bool break_long_, break_hyphens_;
  std::vector<Chunk> chunks_;
};

Value wordwrap(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound =
      args.bind<4>("wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const std::int64_t width = bound[0] == nullptr ? 79 : index_value(*bound[0], "width");
  if (width <= 0) fail(fmt::format("ValueError: invalid width {} (must be > 0)", width));
  const bool break_long = bound[1] == nullptr || truthy(*bound[1]);
  const TrustText separator =
      bound[2] == nullptr || bound[2]->is_none() ? TrustText("\n", true) : to_text(in.runtime(), *bound[2]);
  const bool break_hyphens = bound[3] == nullptr || truthy(*bound[3]);
  if (!v.is_string()) {
    require_defined(v);
    fail(fmt::format("TypeError: wordwrap() takes a string, not {}", type_name(v)));
  }
  TrustText out;
  bool first_line = true;
  for (const TrustText& line : split_lines(in.runtime(), v.text(), false)) {
    if (!first_line) out.append(separator);
    first_line = false;
    bool first = true;
    Wrapper wrapper(in.runtime(), static_cast<std::size_t>(width), break_long, break_hyphens);
    for (const TrustText& piece : wrapper.wrap(line)) {
      if (!first) out.append(separator);
      first = false;
      out.append(piece);
      in.runtime().check_text_bytes(out.size());
    }
  }
  return make_string(in.runtime(), std::move(out));
}

Value striptags(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("striptags");
  const TrustText text = to_text(in.runtime(), v);
  in.runtime().work(2 * text.size());
  TrustText plain;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t open = std::min(text.view().find('<', at), text.size());
    plain.append(text, at, open);
    if (open == text.size()) break;
    const bool comment = text.view().substr(open, 4) == "<!--";
    const std::size_t close = comment ? text.view().find("-->", open) : text.view().find('>', open);
    if (close == std::string_view::npos) {
      plain.append(text, open, text.size());
      break;
    }
    at = close + (comment ? 3 : 1);
  }
  // White space collapses; the five entities that escape() makes are undone.
  TrustText out;
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&#39;", "'"}, {"&quot;", "\""}};
  bool pending_space = false;
  for (at = 0; at < plain.size();) {
    const std::size_t begin = at;
    const CodePoint c = next_code_point(plain.view(), at);
    if (is_space(c)) {
      pending_space = !out.empty();
      continue;
    }
    if (pending_space) out.append(" ", true);
    pending_space = false;
    const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& e) {
      return plain.view().substr(begin, e.first.size()) == e.first;
    });
    if (c == '&' && entity != std::end(kEntities)) {
      out.append(entity->second, plain.trusted_at(begin));
      at = begin + entity->first.size();
    } else {
      out.append(plain, begin, at);
    }
  }
  return make_string(in.runtime(), std::move(out));
}

TrustText url_quote(Runtime& runtime, const TrustText& text, bool for_query) {
  runtime.work(3 * text.size());
  TrustText out;
  text.for_each_run([&](std::size_t begin, std::size_t end, bool trusted) {
    std::string piece;
    for (std::size_t i = begin; i < end; ++i) {
      const char c = text.view()[i];
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
      if (plain) {
        piece += c;
      } else if (c == ' ' && for_query) {
        piece += '+';
      } else {
        piece += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    out.append(piece, trusted);
  });
  return out;
}

Value urlencode(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("urlencode");
  Runtime& runtime = in.runtime();
  if (v.is_string() || !is_iterable(v)) {
    return make_string(runtime, url_quote(runtime, to_text(runtime, v), false));
  }
  TrustText out;
  const auto append_pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out.append("&", true);
    out.append(url_quote(runtime, to_text(runtime, key), true));
    out.append("=", true);
    out.append(url_quote(runtime, to_text(runtime, value), true));
  };
  if (v.is(Kind::kDict)) {
    for (const auto& [key, value] : v.dict().entries) append_pair(key, value);
  } else {
    for (const Value& pair : iterate(runtime, v)) {
      if (!is_iterable(pair)) fail("TypeError: urlencode() takes pairs");
      const std::vector<Value> items = iterate(runtime, pair);
      if (items.size() != 2) fail("ValueError: urlencode() takes pairs");
      append_pair(items[0], items[1]);
    }
  }
  return make_string(runtime, std::move(out));
}

Value xmlattr(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("xmlattr", {"autospace"});
  Runtime& runtime = in.runtime();
  require_defined(v);
  if (!v.is(Kind::kDict)) fail("TypeError: xmlattr() takes a mapping");
  TrustText out;
  const bool autospace = bound[0] == nullptr || truthy(*bound[0]);
  for (const auto& [key, value] : v.dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    const TrustText name = to_text(runtime, key);
    if (name.bytes().find_first_of(" \t\n\f\r/>=") != std::string::npos) {
      fail(fmt::format("ValueError: invalid character in attribute name '{}'", name.bytes()));
    }
    if (!out.empty() || autospace) out.append(" ", true);
    out.append(escape_html(runtime, name));
    out.append("=\"", true);
    out.append(is_markup(value) ? value.text() : escape_html(runtime, to_text(runtime, value)));
    out.append("\"", true);
  }
  return make_string(runtime, std::move(out));
}

Value format(Interpreter& in, const Value& v, const Arguments& args) {
  Runtime& runtime = in.runtime();
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value argument;
  if (!args.named.empty()) {
    const Ref<DictObject> dict = new_dict(runtime);
    for (const auto& [key, value] : args.named) dict->set(runtime, key, value);
    argument = Value(dict.get());
  } else {
    argument = make_tuple(runtime, args.positional);
  }
  const Value text = v.is_string() ? v : make_string(runtime, to_text(runtime, v));
  return make_string(runtime, format_percent(in, text, argument), is_markup(text));
}

Value tojson(Interpreter& in, const Value& v, const Arguments& args) {
  return make_string(in.runtime(), to_json(in.runtime(), v, args));
}

Value pprint(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("pprint");
  TrustText out;
  append_repr(in.runtime(), out, v);
  return make_string(in.runtime(), std::move(out));
}

}  // namespace

const std::vector<NamedFilter>& text_filters() {
  static const std::vector<NamedFilter> filters = {
      {"upper", {case_filter<CaseMap::kUpper>}},
      {"lower", {case_filter<CaseMap::kLower>}},
      {"capitalize", {case_filter<CaseMap::kCapitalize>}},
      {"title", {title}},
      {"trim", {trim}},
      {"replace", {replace}},
      {"string", {string}},
      {"escape", {escape}},
      {"e", {escape}},
      {"forceescape", {forceescape}},
      {"safe", {safe}},
      {"center", {center}},
      {"indent", {indent}},
      {"truncate", {truncate}},
      {"wordcount", {wordcount}},
      {"wordwrap", {wordwrap}},
      {"striptags", {striptags}},
      {"urlencode", {urlencode}},
      {"xmlattr", {xmlattr}},
      {"format", {format}},
      {"tojson", {tojson}},
      {"pprint", {pprint}},
  };
  return filters;
}

}  // namespace quire::jinja
