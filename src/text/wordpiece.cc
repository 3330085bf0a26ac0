#include "text/wordpiece.h"

#include <algorithm>

#include "text/utf8.h"

namespace quire {

WordPieceModel::WordPieceModel(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), pieces_(*vocabulary_) {
  for (std::string_view piece : vocabulary_->pieces) longest_piece_ = std::max(longest_piece_, piece.size());
}

void WordPieceModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  const std::size_t first = out.size();
  const auto unknown = [&] {
    out.resize(first);
    if (options_.unk) out.push_back(*options_.unk);
  };
  std::vector<std::size_t> borders;  // starts of characters, and the end
  for (std::size_t pos = 0; pos < word.size(); pos += decode_utf8(word, pos).length) {
    if (borders.size() == options_.max_input_chars_per_word) return unknown();
    borders.push_back(pos);
  }
  borders.push_back(word.size());
  std::string candidate;
  for (std::size_t start = 0; start + 1 < borders.size();) {
    const std::string& prefix = start == 0 ? options_.word_start : options_.continuing_prefix;
    const std::size_t begin = borders[start];
    std::size_t end = borders.size() - 1;
    std::optional<std::uint32_t> id;
    for (; end > start; --end) {
      if (prefix.size() + borders[end] - begin > longest_piece_) continue;
      candidate = prefix;
      candidate += word.substr(begin, borders[end] - begin);
      id = pieces_.find(candidate);
      if (id) break;
    }
    if (!id) return unknown();
    out.push_back(static_cast<TokenId>(*id));
    start = end;
  }
}

WordLevelModel::WordLevelModel(std::shared_ptr<const Vocabulary> vocabulary, std::optional<TokenId> unk)
    : vocabulary_(std::move(vocabulary)), unk_(unk), pieces_(*vocabulary_) {}

void WordLevelModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (const auto id = pieces_.find(word)) {
    out.push_back(static_cast<TokenId>(*id));
  } else if (unk_) {
    out.push_back(*unk_);
  }
}

}  // namespace quire
