#include "text/normalizer.h"

#include <algorithm>

#include <utf8proc.h>

#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace quire {

namespace {

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Replaces each character by what `map` appends for it.
template <typename Map>
std::string map_chars(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    map(c.code, out);
    pos += c.length;
  }
  return out;
}

void append_lower(char32_t code, std::string& out) {
  if (code == 0x130) {  // the one character whose full lower case has two (SpecialCasing.txt)
    out += "i\xcc\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

}  // namespace

std::string to_unicode_form(UnicodeForm form, std::string text) {
  if (is_ascii(text)) return text;
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  // utf8proc's own driver sorts combining marks by insertion, quadratic in a run of them, and the run's
  // length is the sender's choice. So: decompose by character, sort each run here, compose with utf8proc.
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    pos += c.length;
    if (c.code < 0x80) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
      continue;
    }
    utf8proc_int32_t buffer[32];  // no character decomposes into more than 18
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), buffer, 32,
                                static_cast<utf8proc_option_t>(options), &boundary);
    if (count < 0 || count > 32) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
    } else {
      codes.insert(codes.end(), buffer, buffer + count);
    }
  }
  for (std::size_t i = 0; i < codes.size();) {
    if (codes[i] < 0x300 || combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count >= 0) codes.resize(static_cast<std::size_t>(count));
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_int32_t code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

namespace {

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form) : form_(form) {}
  std::string apply(std::string text) const override { return to_unicode_form(form_, std::move(text)); }

 private:
  UnicodeForm form_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    for (const auto& part : parts_) text = part->apply(std::move(text));
    return text;
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

// A stateless transformation.
class FunctionNormalizer : public Normalizer {
 public:
  using Function = std::string (*)(std::string);
  explicit FunctionNormalizer(Function function) : function_(function) {}
  std::string apply(std::string text) const override { return function_(std::move(text)); }

 private:
  Function function_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text) const override {
    std::size_t begin = text.size(), end = 0;
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Char c = decode_utf8(text, pos);
      if (!is_white_space(c.code)) {
        begin = std::min(begin, pos);
        end = pos + c.length;
      }
      pos += c.length;
    }
    if (begin >= end) return left_ || right_ ? std::string() : text;
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    return text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return text;
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  std::string apply(std::string text) const override {
    if (from_.empty() || text.find(from_) == std::string::npos) return text;
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    std::size_t pos = 0;
    for (std::size_t hit = text.find(from_); hit != std::string::npos; hit = text.find(from_, pos)) {
      out.append(text, pos, hit - pos);
      out += to_;
      pos = hit + from_.size();
    }
    out.append(text, pos);
    return out;
  }

 private:
  std::string from_, to_;
};

class RegexReplaceNormalizer : public Normalizer {
 public:
  RegexReplaceNormalizer(std::shared_ptr<const Regex> pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}
  std::string apply(std::string text) const override {
    std::string out;
    std::size_t done = 0;
    pattern_->find_all(text, [&](std::size_t begin, std::size_t end) {
      out.append(text, done, begin - done);
      out += to_;
      done = end;
    });
    out.append(text, done);
    return out;
  }

 private:
  std::shared_ptr<const Regex> pattern_;
  std::string to_;
};

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}
  std::string apply(std::string text) const override {
    if (options_.clean_text || options_.handle_chinese_chars) {
      text = map_chars(text, [this](char32_t code, std::string& out) { clean(code, out); });
    }
    if (options_.strip_accents.value_or(options_.lowercase)) {
      text = to_unicode_form(UnicodeForm::kNfd, std::move(text));
      text = map_chars(text, [](char32_t code, std::string& out) {
        if (!(char_class(code) & kNonspacing)) append_utf8(out, code);
      });
    }
    if (options_.lowercase) text = map_chars(text, append_lower);
    return text;
  }

 private:
  void clean(char32_t code, std::string& out) const {
    if (options_.clean_text) {
      const bool blank = code == '\t' || code == '\n' || code == '\r';
      if (!blank && (code == kReplacementChar || (char_class(code) & kOther))) return;
      if (blank || is_white_space(code)) {
        out.push_back(' ');
        return;
      }
    }
    const bool apart = options_.handle_chinese_chars && is_cjk_ideograph(code);
    if (apart) out.push_back(' ');
    append_utf8(out, code);
    if (apart) out.push_back(' ');
  }

  BertNormalizerOptions options_;
};

std::string lowercase(std::string text) {
  return map_chars(text, append_lower);
}

std::string strip_accents(std::string text) {
  return map_chars(text, [](char32_t code, std::string& out) {
    if (!(char_class(code) & kMark)) append_utf8(out, code);
  });
}

// The rules of SentencePiece's nmt_nfkc map on top of NFKC: some controls vanish, some blanks become a space.
std::string nmt(std::string text) {
  return map_chars(text, [](char32_t code, std::string& out) {
    if ((code >= 0x1 && code <= 0x8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f ||
        code == 0x8f || code == 0x9f) {
      return;
    }
    const bool blank = code == 0x9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                       (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                       code == 0x2581 || code == 0xfeff || code == kReplacementChar;
    if (blank) {
      out.push_back(' ');
    } else {
      append_utf8(out, code);
    }
  });
}

std::string collapse_spaces(std::string text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
    out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

NormalizerPtr make_unicode_normalizer(UnicodeForm form) {
  return std::make_shared<UnicodeNormalizer>(form);
}
NormalizerPtr make_sequence_normalizer(std::vector<NormalizerPtr> parts) {
  return std::make_shared<SequenceNormalizer>(std::move(parts));
}
NormalizerPtr make_lowercase_normalizer() {
  return std::make_shared<FunctionNormalizer>(lowercase);
}
NormalizerPtr make_strip_normalizer(bool left, bool right) {
  return std::make_shared<StripNormalizer>(left, right);
}
NormalizerPtr make_strip_accents_normalizer() {
  return std::make_shared<FunctionNormalizer>(strip_accents);
}
NormalizerPtr make_prepend_normalizer(std::string prefix) {
  return std::make_shared<PrependNormalizer>(std::move(prefix));
}
NormalizerPtr make_replace_normalizer(std::string from, std::string to) {
  return std::make_shared<ReplaceNormalizer>(std::move(from), std::move(to));
}
NormalizerPtr make_regex_replace_normalizer(std::shared_ptr<const Regex> pattern, std::string to) {
  return std::make_shared<RegexReplaceNormalizer>(std::move(pattern), std::move(to));
}
NormalizerPtr make_nmt_normalizer() {
  return std::make_shared<FunctionNormalizer>(nmt);
}
NormalizerPtr make_byte_level_normalizer() {
  return std::make_shared<FunctionNormalizer>([](std::string text) { return bytes_to_chars(text); });
}
NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_shared<BertNormalizer>(options);
}
NormalizerPtr make_collapse_spaces_normalizer() {
  return std::make_shared<FunctionNormalizer>(collapse_spaces);
}

}  // namespace quire
