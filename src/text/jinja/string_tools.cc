// Operations on trusted text that filters and string methods share.
#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {

TrustText strip_text(Runtime& runtime, const TrustText& text, const Value* chars, Strip where) {
  runtime.work(text.size());
  const std::string_view view = text.view();
  std::vector<CodePoint> set;
  if (chars != nullptr && !chars->is_none()) {
    if (!chars->is_string()) {
      require_defined(*chars);
      fail(fmt::format("TypeError: strip arg must be None or str, not {}", type_name(*chars)));
    }
    for (std::size_t at = 0; at < chars->bytes().size();) set.push_back(next_code_point(chars->bytes(), at));
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
  }
  const bool spaces = chars == nullptr || chars->is_none();
  const auto strips = [&](CodePoint c) {
    return spaces ? is_space(c) : std::binary_search(set.begin(), set.end(), c);
  };
  std::size_t begin = 0;
  std::size_t end = view.size();
  while (where != Strip::kRight && begin < end) {
    std::size_t next = begin;
    if (!strips(next_code_point(view, next))) break;
    begin = next;
  }
  while (where != Strip::kLeft && end > begin) {
    std::size_t previous = end;
    if (!strips(previous_code_point(view, previous))) break;
    end = previous;
  }
  return text.substr(begin, end);
}

TrustText replace_text(Runtime& runtime, const TrustText& text, const TrustText& from, const TrustText& to,
                       std::int64_t max_count) {
  runtime.work(text.size());
  if (max_count < 0) max_count = INT64_MAX;
  TrustText out;
  std::size_t at = 0;
  if (from.empty()) {  // between all characters, and at both ends
    while (max_count-- > 0) {
      out.append(to);
      runtime.work(to.size() + 1);
      runtime.check_text_bytes(out.size());
      if (at >= text.size()) return out;
      const std::size_t begin = at;
      next_code_point(text.view(), at);
      out.append(text, begin, at);
    }
    out.append(text, at, text.size());
    return out;
  }
  while (max_count-- > 0) {
    const std::size_t found = text.view().find(from.view(), at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(to);
    runtime.work(to.size() + 1);
    runtime.check_text_bytes(out.size());
    at = found + from.size();
  }
  out.append(text, at, text.size());
  return out;
}

namespace {

bool is_cased(CodePoint c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

// A capital sigma that ends a word becomes the final form.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  const auto is_ignorable = [](CodePoint c) {
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xAD || c == 0x2019;
  };
  bool before = false;
  while (begin > 0) {
    const CodePoint c = previous_code_point(text, begin);
    if (is_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  while (end < text.size()) {
    const CodePoint c = next_code_point(text, end);
    if (is_ignorable(c)) continue;
    return before && !is_cased(c);
  }
  return before;
}

}  // namespace

TrustText map_case(Runtime& runtime, const TrustText& text, CaseMap map) {
  runtime.work(4 * text.size());
  constexpr CodePoint kSigma = 0x3A3;
  TrustText out;
  bool in_word = false;
  bool first = true;
  const auto lower = [&](std::string& piece, CodePoint c, std::size_t begin, std::size_t end) {
    if (c == kSigma && is_final_sigma(text.view(), begin, end)) {
      piece += "\u03C2";
    } else {
      append_lower(piece, c);
    }
  };
  text.for_each_run([&](std::size_t run_begin, std::size_t run_end, bool trusted) {
    std::string piece;
    for (std::size_t at = run_begin; at < run_end;) {
      const std::size_t begin = at;
      const CodePoint c = next_code_point(text.view(), at);
      switch (map) {
        case CaseMap::kUpper:
          append_upper(piece, c);
          break;
        case CaseMap::kLower:
          lower(piece, c, begin, at);
          break;
        case CaseMap::kFold:
          append_casefold(piece, c);
          break;
        case CaseMap::kSwap:
          if (is_upper(c)) {
            lower(piece, c, begin, at);
          } else if (is_lower(c)) {
            append_upper(piece, c);
          } else {
            append_utf8(piece, c);
          }
          break;
        case CaseMap::kTitle:
        case CaseMap::kCapitalize:
          if (map == CaseMap::kTitle ? !in_word : first) {
            append_title(piece, c);
          } else {
            lower(piece, c, begin, at);
          }
          in_word = is_cased(c);
          first = false;
          break;
      }
    }
    out.append(piece, trusted);
  });
  return out;
}

TrustText join_texts(Runtime& runtime, const TrustText& separator, const std::vector<Value>& items,
                     bool only_strings) {
  TrustText out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    runtime.step();
    if (only_strings && !items[i].is_string()) {
      fail(fmt::format("TypeError: sequence item {}: expected str instance, {} found", i,
                       type_name(items[i])));
    }
    if (i > 0) out.append(separator);
    append_str(runtime, out, items[i]);
  }
  return out;
}

TrustText pad_text(Runtime& runtime, const TrustText& text, std::int64_t width, const TrustText& fill,
                   bool left, bool right) {
  const auto num_chars = static_cast<std::int64_t>(count_code_points(text.view()));
  if (width <= num_chars) return text;
  const std::int64_t total = width - num_chars;
  if (static_cast<std::uint64_t>(total) > runtime.limits().max_output_bytes) {
    runtime.check_text_bytes(runtime.limits().max_output_bytes + 1);
  }
  std::int64_t before = left && !right ? total : 0;
  if (left && right) before = total / 2 + (total & width & 1);  // where str.center() puts the odd one
  const auto append_fill = [&](TrustText& out, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out.append(fill);
  };
  TrustText out;
  runtime.work(static_cast<std::size_t>(total) + text.size());
  append_fill(out, before);
  out.append(text);
  append_fill(out, total - before);
  return out;
}

std::vector<TrustText> split_lines(Runtime& runtime, const TrustText& text, bool keep_ends) {
  runtime.work(text.size());
  std::vector<TrustText> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const CodePoint c = next_code_point(text.view(), at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text.view()[at] == '\n') ++at;
    lines.push_back(text.substr(begin, keep_ends ? at : end));
    runtime.check_memory(lines.size() * sizeof(TrustText));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin, text.size()));
  return lines;
}

TrustText escape_html(Runtime& runtime, const TrustText& text) {
  runtime.work(text.size());
  TrustText out;
  text.for_each_run([&](std::size_t begin, std::size_t end, bool trusted) {
    std::string piece;
    for (std::size_t i = begin; i < end; ++i) {
      switch (text.view()[i]) {
        case '&':
          piece += "&amp;";
          break;
        case '<':
          piece += "&lt;";
          break;
        case '>':
          piece += "&gt;";
          break;
        case '"':
          piece += "&#34;";
          break;
        case '\'':
          piece += "&#39;";
          break;
        default:
          piece += text.view()[i];
      }
    }
    out.append(piece, trusted);
  });
  return out;
}

}  // namespace quire::jinja
