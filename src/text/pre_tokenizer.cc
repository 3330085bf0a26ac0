#include "text/pre_tokenizer.h"

#include <functional>

#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace quire {

namespace {

struct Part {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

// Collects matches into parts that cover [0, size).
class Parts {
 public:
  explicit Parts(std::vector<Part>& parts) : parts_(parts) { parts_.clear(); }
  void match(std::size_t begin, std::size_t end) {
    if (begin > done_) parts_.push_back({done_, begin, false});
    parts_.push_back({begin, end, true});
    done_ = end;
  }
  void finish(std::size_t size) {
    if (done_ < size) parts_.push_back({done_, size, false});
  }

 private:
  std::vector<Part>& parts_;
  std::size_t done_ = 0;
};

void append_by_behavior(const std::vector<Part>& parts, SplitBehavior behavior, std::size_t base,
                        std::vector<Span>& out) {
  const std::size_t first = out.size();
  const auto push = [&](std::size_t begin, std::size_t end) { out.push_back({base + begin, base + end}); };
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) push(part.begin, part.end);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) push(part.begin, part.end);
      break;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        if (out.size() > first && part.is_match == previous_match) {
          out.back().end = base + part.end;
        } else {
          push(part.begin, part.end);
        }
        previous_match = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.is_match && !previous_match && out.size() > first) {
          out.back().end = base + part.end;
        } else {
          push(part.begin, part.end);
        }
        previous_match = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext: {
      // A match joins what follows it, unless that is a match too.
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].is_match && i + 1 < parts.size() && !parts[i + 1].is_match) {
          push(parts[i].begin, parts[i + 1].end);
          ++i;
        } else {
          push(parts[i].begin, parts[i].end);
        }
      }
      break;
    }
  }
  std::size_t kept = first;
  for (std::size_t i = first; i < out.size(); ++i) {
    if (out[i].begin < out[i].end) out[kept++] = out[i];
  }
  out.resize(kept);
}

// Splits every span by the matches that find() reports within it.
template <typename Find>
void split_spans(PreTokens& tokens, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Span> out;
  out.reserve(tokens.spans.size());
  std::vector<Part> parts;
  for (const Span& span : tokens.spans) {
    const std::string_view text = std::string_view(tokens.text).substr(span.begin, span.end - span.begin);
    Parts collected(parts);
    find(text, collected);
    collected.finish(text.size());
    if (invert) {
      for (Part& part : parts) part.is_match = !part.is_match;
    }
    append_by_behavior(parts, behavior, span.begin, out);
  }
  tokens.spans.swap(out);
}

class SequenceStep : public PreTokenStep {
 public:
  explicit SequenceStep(std::vector<PreTokenStepPtr> parts) : parts_(std::move(parts)) {}
  void apply(PreTokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<PreTokenStepPtr> parts_;
};

class RegexSplit : public PreTokenStep {
 public:
  RegexSplit(std::shared_ptr<const Regex> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PreTokens& tokens) const override {
    split_spans(tokens, behavior_, invert_, [this](std::string_view text, Parts& parts) {
      pattern_->find_all(text, [&](std::size_t begin, std::size_t end) { parts.match(begin, end); });
    });
  }

 private:
  std::shared_ptr<const Regex> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class LiteralSplit : public PreTokenStep {
 public:
  LiteralSplit(std::string pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PreTokens& tokens) const override {
    split_spans(tokens, behavior_, invert_, [this](std::string_view text, Parts& parts) {
      if (pattern_.empty()) return;
      for (std::size_t hit = text.find(pattern_); hit != std::string_view::npos;
           hit = text.find(pattern_, hit + pattern_.size())) {
        parts.match(hit, hit + pattern_.size());
      }
    });
  }

 private:
  std::string pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Every character for which the predicate holds is a match.
class CharSplit : public PreTokenStep {
 public:
  using Predicate = bool (*)(char32_t);
  CharSplit(Predicate predicate, SplitBehavior behavior) : predicate_(predicate), behavior_(behavior) {}
  void apply(PreTokens& tokens) const override {
    split_spans(tokens, behavior_, false, [this](std::string_view text, Parts& parts) {
      for (std::size_t pos = 0; pos < text.size();) {
        const Utf8Char c = decode_utf8(text, pos);
        if (predicate_(c.code)) parts.match(pos, pos + c.length);
        pos += c.length;
      }
    });
  }

 private:
  Predicate predicate_;
  SplitBehavior behavior_;
};

class KnownSplit : public PreTokenStep {
 public:
  explicit KnownSplit(SplitKind kind) : kind_(kind) {}
  void apply(PreTokens& tokens) const override {
    std::vector<Span> out;
    out.reserve(tokens.spans.size() + tokens.text.size() / 4);
    std::vector<std::size_t> ends;
    for (const Span& span : tokens.spans) {
      ends.clear();
      split_words(kind_, std::string_view(tokens.text).substr(span.begin, span.end - span.begin), ends);
      std::size_t begin = span.begin;
      for (std::size_t end : ends) {
        out.push_back({begin, span.begin + end});
        begin = span.begin + end;
      }
    }
    tokens.spans.swap(out);
  }

 private:
  SplitKind kind_;
};

class TrailingSpaceSplit : public PreTokenStep {
 public:
  void apply(PreTokens& tokens) const override {
    split_spans(tokens, SplitBehavior::kIsolated, false, [](std::string_view text, Parts& parts) {
      std::size_t begin = text.size();
      while (begin > 0) {
        std::size_t start = begin - 1;
        while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
        if (!is_white_space(decode_utf8(text, start).code)) break;
        begin = start;
      }
      if (begin < text.size()) parts.match(begin, text.size());
    });
  }
};

// Rebuilds the text span by span; edit(old, out, first) appends the new text of one span.
template <typename Edit>
void rewrite_spans(PreTokens& tokens, Edit edit) {
  std::string out;
  out.reserve(tokens.text.size() + tokens.text.size() / 4 + 8);
  bool first = tokens.at_text_start;
  for (Span& span : tokens.spans) {
    const std::size_t begin = out.size();
    edit(std::string_view(tokens.text).substr(span.begin, span.end - span.begin), out, first);
    span = {begin, out.size()};
    first = false;
  }
  tokens.text.swap(out);
}

class PrefixSpaceStep : public PreTokenStep {
 public:
  void apply(PreTokens& tokens) const override {
    rewrite_spans(tokens, [](std::string_view text, std::string& out, bool) {
      if (text.front() != ' ') out.push_back(' ');
      out += text;
    });
  }
};

class ByteCharsStep : public PreTokenStep {
 public:
  void apply(PreTokens& tokens) const override {
    rewrite_spans(tokens, [](std::string_view text, std::string& out, bool) { out += bytes_to_chars(text); });
  }
};

class MetaspaceStep : public PreTokenStep {
 public:
  MetaspaceStep(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void apply(PreTokens& tokens) const override {
    rewrite_spans(tokens, [this](std::string_view text, std::string& out, bool first) {
      const bool prepend = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
      const bool has = text.front() == ' ' || text.substr(0, replacement_.size()) == replacement_;
      if (prepend && !has) out += replacement_;
      for (char c : text) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out.push_back(c);
        }
      }
    });
    if (!split_) return;
    split_spans(tokens, SplitBehavior::kMergedWithNext, false, [this](std::string_view text, Parts& parts) {
      for (std::size_t hit = text.find(replacement_); hit != std::string_view::npos;
           hit = text.find(replacement_, hit + replacement_.size())) {
        parts.match(hit, hit + replacement_.size());
      }
    });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

PreTokenStepPtr make_sequence_step(std::vector<PreTokenStepPtr> parts) {
  return std::make_shared<SequenceStep>(std::move(parts));
}
PreTokenStepPtr make_regex_split(std::shared_ptr<const Regex> pattern, SplitBehavior behavior, bool invert) {
  return std::make_shared<RegexSplit>(std::move(pattern), behavior, invert);
}
PreTokenStepPtr make_literal_split(std::string pattern, SplitBehavior behavior, bool invert) {
  return std::make_shared<LiteralSplit>(std::move(pattern), behavior, invert);
}
PreTokenStepPtr make_known_split(SplitKind kind) {
  return std::make_shared<KnownSplit>(kind);
}
PreTokenStepPtr make_digits_split(bool individual) {
  return std::make_shared<CharSplit>([](char32_t c) { return (char_class(c) & kNumber) != 0; },
                                     individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}
PreTokenStepPtr make_punctuation_split(SplitBehavior behavior) {
  return std::make_shared<CharSplit>(is_punctuation, behavior);
}
PreTokenStepPtr make_whitespace_split() {
  return std::make_shared<CharSplit>(is_white_space, SplitBehavior::kRemoved);
}
PreTokenStepPtr make_word_split() {
  // The runs of word characters and of the others; white space is dropped.
  return make_sequence_step(
      {make_whitespace_split(), std::make_shared<CharSplit>(is_word_char, SplitBehavior::kContiguous)});
}
PreTokenStepPtr make_bert_split() {
  return make_sequence_step({make_whitespace_split(), make_punctuation_split(SplitBehavior::kIsolated)});
}
PreTokenStepPtr make_trailing_space_split() {
  return std::make_shared<TrailingSpaceSplit>();
}
PreTokenStepPtr make_prefix_space_step() {
  return std::make_shared<PrefixSpaceStep>();
}
PreTokenStepPtr make_byte_chars_step() {
  return std::make_shared<ByteCharsStep>();
}
PreTokenStepPtr make_metaspace_step(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_shared<MetaspaceStep>(std::move(replacement), scheme, split);
}

}  // namespace quire
