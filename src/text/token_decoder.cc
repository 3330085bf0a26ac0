#include "text/token_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/vocabulary.h"

namespace quire {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t hit = text.find(from); hit != std::string::npos; hit = text.find(from, hit + to.size())) {
    text.replace(hit, from.size(), to);
  }
}

// tokenizers, decoders/wordpiece.rs: applied to each token.
void clean_up(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

}  // namespace

std::string TokenDecoder::bytes(std::string_view piece, bool literal, bool at_start) const {
  std::string text(piece);
  bool is_byte = false;  // a byte of <0xHH>: no later step looks into it
  for (const DecoderStep& step : steps_) {
    switch (step.kind) {
      case DecoderStep::Kind::kByteLevel:
        if (!literal) text = chars_to_bytes(text);
        break;
      case DecoderStep::Kind::kByteFallback:
        if (const auto byte = literal ? std::nullopt : byte_of_piece(text)) {
          text.assign(1, static_cast<char>(*byte));
          is_byte = true;
        }
        break;
      case DecoderStep::Kind::kReplace:
        if (literal || is_byte) break;
        if (step.pattern != nullptr) {
          std::string out;
          std::size_t done = 0;
          step.pattern->find_all(text, [&](std::size_t begin, std::size_t end) {
            out.append(text, done, begin - done);
            out += step.to;
            done = end;
          });
          out.append(text, done);
          text = std::move(out);
        } else {
          replace_all(text, step.from, step.to);
        }
        break;
      case DecoderStep::Kind::kMetaspace:
        if (literal || is_byte) break;
        if (at_start && step.strip) {
          for (int i = 0; i < step.count; ++i) {
            const std::size_t hit = text.find(step.from);
            if (hit == std::string::npos || (step.count == 1 && hit != 0)) break;
            text.erase(hit, step.from.size());
          }
        }
        replace_all(text, step.from, " ");
        break;
      case DecoderStep::Kind::kStrip:
        if (literal || !(at_start || step.strip) || step.from.empty()) break;
        for (int i = 0; i < step.count && text.compare(0, step.from.size(), step.from) == 0; ++i) {
          text.erase(0, step.from.size());
        }
        break;
      case DecoderStep::Kind::kWordPiece:
        if (!literal && !step.from.empty() && text.compare(0, step.from.size(), step.from) == 0) {
          if (!at_start) text.erase(0, step.from.size());
        } else if (!at_start) {
          text.insert(text.begin(), ' ');
        }
        break;
      case DecoderStep::Kind::kBpeSuffix:
        // The space after the last word is not known to be the last here; decode() would have to look ahead.
        if (!literal) replace_all(text, step.from, " ");
        break;
      case DecoderStep::Kind::kCleanUp:
        clean_up(text);
        break;
    }
  }
  return text;
}

bool TokenDecoder::strips_leading_space() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const DecoderStep& step) {
    return (step.kind == DecoderStep::Kind::kMetaspace && step.strip) ||
           step.kind == DecoderStep::Kind::kWordPiece ||
           (step.kind == DecoderStep::Kind::kStrip && !step.strip && step.from == " " && step.count > 0);
  });
}

}  // namespace quire
