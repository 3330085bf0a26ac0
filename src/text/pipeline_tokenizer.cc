#include "text/pipeline_tokenizer.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/check.h"
#include "text/utf8.h"

namespace quire {

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  QUIRE_CHECK(parts_.vocabulary != nullptr && parts_.model != nullptr);
  const Vocabulary& vocabulary = *parts_.vocabulary;
  literal_.resize(vocabulary.pieces.size());
  for (std::size_t id = 0; id < literal_.size(); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    literal_[id] = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
  }
  for (const AddedToken& token : parts_.added_tokens) {
    literal_[static_cast<std::size_t>(token.id)] = true;
    if (!token.normalized) {
      raw_.add(token, token.content);
      raw_with_control_.add(token, token.content);
      continue;
    }
    const std::string spelling = parts_.normalizer ? parts_.normalizer->apply(token.content) : token.content;
    normalized_.add(token, spelling);
    // The normalized text has no borders of trust any more, so control tokens are found in the raw text then.
    if (token.special) {
      raw_with_control_.add(token, token.content);
      if (spelling != token.content) raw_with_control_.add(token, spelling);
    }
  }
  auto& ends = parts_.end_ids;
  if (parts_.eos) ends.push_back(*parts_.eos);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

void PipelineTokenizer::encode_words(std::string_view text, bool at_start, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (parts_.pre_tokenizer == nullptr) {
    parts_.model->encode_word(text, out);
    return;
  }
  PreTokens tokens;
  tokens.text.assign(text);
  tokens.spans.push_back({0, text.size()});
  tokens.at_text_start = at_start;
  parts_.pre_tokenizer->apply(tokens);
  for (const Span& span : tokens.spans) {
    parts_.model->encode_word(std::string_view(tokens.text).substr(span.begin, span.end - span.begin), out);
  }
}

void PipelineTokenizer::encode_segment(std::string_view segment, bool at_start, bool control_tokens,
                                       std::vector<TokenId>& out) const {
  if (segment.empty()) return;
  std::string storage;
  std::string_view text = segment;
  if (parts_.normalizer != nullptr) {
    storage = parts_.normalizer->apply(std::string(segment));
    text = storage;
  }
  static const TrustedRanges kNowhere;
  std::size_t done = 0;
  for (const auto& match : normalized_.find(text, control_tokens ? nullptr : &kNowhere)) {
    encode_words(text.substr(done, match.begin - done), at_start && done == 0, out);
    out.push_back(match.id);
    done = match.end;
  }
  encode_words(text.substr(done), at_start && done == 0, out);
}

void PipelineTokenizer::encode_text(std::string_view text, const TrustedRanges* trusted,
                                    std::vector<TokenId>& out) const {
  out.reserve(out.size() + text.size() / 3 + 8);
  const AddedTokenMatcher& matcher = trusted == nullptr ? raw_ : raw_with_control_;
  std::size_t done = 0;
  for (const auto& match : matcher.find(text, trusted)) {
    encode_segment(text.substr(done, match.begin - done), done == 0, trusted == nullptr, out);
    out.push_back(match.id);
    done = match.end;
  }
  encode_segment(text.substr(done), done == 0, trusted == nullptr, out);
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> out;
  if (options.add_special_tokens) out = parts_.prefix;
  static const TrustedRanges kNowhere;
  const TrustedRanges* trusted = options.parse_special ? nullptr : &kNowhere;
  if (is_valid_utf8(text)) {
    encode_text(text, trusted, out);
  } else {
    encode_text(replace_invalid_utf8(text), trusted, out);
  }
  if (options.add_special_tokens) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  return out;
}

std::vector<TokenId> PipelineTokenizer::encode_pieces(const std::vector<PromptPiece>& pieces,
                                                      bool add_special_tokens) const {
  std::string text;
  TrustedRanges trusted;
  const auto join = [&](bool repair) {
    text.clear();
    trusted.clear();
    for (const PromptPiece& piece : pieces) {
      const std::size_t begin = text.size();
      if (repair) {
        text += replace_invalid_utf8(piece.text);
      } else {
        text += piece.text;
      }
      if (!piece.trusted || begin == text.size()) continue;
      if (!trusted.empty() && trusted.back().second == begin) {
        trusted.back().second = text.size();
      } else {
        trusted.emplace_back(begin, text.size());
      }
    }
  };
  join(false);
  if (!is_valid_utf8(text)) join(true);
  const bool all = trusted.size() == 1 && trusted[0].first == 0 && trusted[0].second == text.size();
  std::vector<TokenId> out;
  encode_text(text, all ? nullptr : &trusted, out);
  if (!add_special_tokens) return out;
  // A template that writes the prefix (BOS) itself must not get it twice (TOK-12).
  const auto& prefix = parts_.prefix;
  if (!(out.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), out.begin()))) {
    out.insert(out.begin(), prefix.begin(), prefix.end());
  }
  out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  return out;
}

std::string PipelineTokenizer::bytes_of(TokenId id, bool at_start) const {
  const Vocabulary& vocabulary = *parts_.vocabulary;
  if (!vocabulary.contains(id)) return {};
  return parts_.decoder.bytes(vocabulary.piece(id), literal_[static_cast<std::size_t>(id)], at_start);
}

std::string PipelineTokenizer::token_bytes(TokenId id) const {
  return bytes_of(id, false);
}
std::string PipelineTokenizer::token_bytes_at_start(TokenId id) const {
  return bytes_of(id, true);
}

std::string_view PipelineTokenizer::token_piece(TokenId id) const {
  if (!parts_.vocabulary->contains(id)) return {};
  return parts_.vocabulary->piece(id);
}

bool PipelineTokenizer::is_special(TokenId id) const {
  if (!parts_.vocabulary->contains(id)) return false;
  const TokenKind kind = parts_.vocabulary->kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

std::string PipelineTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string out;
  bool at_start = true;
  for (TokenId id : ids) {
    if (!parts_.vocabulary->contains(id) || (skip_special && is_special(id))) continue;
    out += bytes_of(id, at_start);
    at_start = false;
  }
  return out;
}

std::optional<TokenId> PipelineTokenizer::token_to_id(std::string_view piece) const {
  return parts_.vocabulary->find(piece);
}

bool PipelineTokenizer::adds_bos() const {
  return parts_.bos &&
         std::find(parts_.prefix.begin(), parts_.prefix.end(), *parts_.bos) != parts_.prefix.end();
}

std::string PipelineTokenizer::description() const {
  std::string text = fmt::format("{}, {} tokens", parts_.model->name(), vocab_size());
  if (!parts_.description.empty()) text += ", " + parts_.description;
  return text;
}

}  // namespace quire
