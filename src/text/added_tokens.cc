#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace quire {

namespace {

// From the public chat templates of these families: ChatML (Qwen, SmolLM2, Yi), Llama 3 and 4, Gemma, Phi,
// DeepSeek, GLM, Command, Granite, Falcon 3, EXAONE, gpt-oss, Kimi, Mistral.
constexpr std::string_view kEndOfTurn[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|endofturn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<EOT>",
    "<|return|>",
    "<|call|>",
    "<|user_end|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};
constexpr std::string_view kOtherMarkers[] = {
    "<|im_start|>",
    "<|im_sep|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|header_start|>",
    "<|header_end|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<|turn>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|USER_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|start_of_role|>",
    "<|end_of_role|>",
    "<|start|>",
    "<|message|>",
    "<|channel|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[|system|]",
    "[|user|]",
    "[|assistant|]",
    "[|endofturn|]",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜begin▁of▁sentence｜>",
    "[gMASK]",
    "<sop>",
};

// The character that ends at end (> 0).
char32_t char_before(std::string_view text, std::size_t end) {
  std::size_t pos = end - 1;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xc0) == 0x80) --pos;
  return decode_utf8(text, pos).code;
}

bool inside(const TrustedRanges& ranges, std::size_t begin, std::size_t end) {
  auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                [](std::size_t pos, const auto& range) { return pos < range.first; });
  if (after == ranges.begin()) return false;
  return end <= std::prev(after)->second;
}

}  // namespace

bool is_end_of_turn(std::string_view content) {
  return std::find(std::begin(kEndOfTurn), std::end(kEndOfTurn), content) != std::end(kEndOfTurn);
}

bool is_turn_marker(std::string_view content) {
  return is_end_of_turn(content) ||
         std::find(std::begin(kOtherMarkers), std::end(kOtherMarkers), content) != std::end(kOtherMarkers);
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, unsigned char byte) const {
  const auto& children = nodes_[node].children;
  const auto it = std::lower_bound(children.begin(), children.end(), byte,
                                   [](const auto& entry, unsigned char b) { return entry.first < b; });
  return it != children.end() && it->first == byte ? it->second : 0;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view spelling) {
  if (spelling.empty()) return;
  std::uint32_t node = 0;
  for (char c : spelling) {
    const unsigned char byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[node].children;
      const auto it = std::lower_bound(children.begin(), children.end(), byte,
                                       [](const auto& entry, unsigned char b) { return entry.first < b; });
      children.insert(it, {byte, next});
    }
    node = next;
  }
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(spelling[0])] = true;
}

std::vector<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                              const TrustedRanges* trusted) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  std::size_t floor = 0;  // what is before it belongs to an earlier match
  for (std::size_t pos = 0; pos < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[pos])]) {
      ++pos;
      continue;
    }
    const AddedToken* best = nullptr;
    std::size_t best_end = pos;
    std::uint32_t node = 0;
    for (std::size_t i = pos; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (nodes_[node].token < 0) continue;
      const AddedToken& token = tokens_[static_cast<std::size_t>(nodes_[node].token)];
      if (token.special && trusted != nullptr && !inside(*trusted, pos, i + 1)) continue;
      best = &token;
      best_end = i + 1;
    }
    if (best == nullptr) {
      ++pos;
      continue;
    }
    if (best->single_word && ((pos > 0 && is_word_char(char_before(text, pos))) ||
                              (best_end < text.size() && is_word_char(decode_utf8(text, best_end).code)))) {
      pos = best_end;
      continue;
    }
    std::size_t begin = pos, end = best_end;
    if (best->lstrip) {
      while (begin > floor && is_white_space(char_before(text, begin))) {
        do {
          --begin;
        } while (begin > floor && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80);
      }
    }
    if (best->rstrip) {
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if (!is_white_space(c.code)) break;
        end += c.length;
      }
    }
    matches.push_back({begin, end, best->id});
    floor = end;
    pos = end;
  }
  return matches;
}

}  // namespace quire
