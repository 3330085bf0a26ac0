#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "text/utf8.h"

namespace quire {

// An unknown character costs this much more than the worst piece (sentencepiece, unigram_model.cc).
constexpr double kUnkPenalty = 10.0;

UnigramModel::UnigramModel(std::shared_ptr<const Vocabulary> vocabulary, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  const Vocabulary& vocab = *vocabulary_;
  std::vector<std::uint32_t> sorted;
  double worst = std::numeric_limits<double>::infinity();
  const OrdinaryPieces ordinary(vocab);
  for (std::uint32_t id = 0; id < vocab.pieces.size(); ++id) {
    const TokenKind kind = vocab.kinds[id];
    if (kind == TokenKind::kNormal) worst = std::min<double>(worst, vocab.scores[id]);
    if (!vocab.pieces[id].empty() && ordinary.is_found(id)) sorted.push_back(id);
  }
  unk_score_ = (worst == std::numeric_limits<double>::infinity() ? 0.0 : worst) - kUnkPenalty;
  std::sort(sorted.begin(), sorted.end(),
            [&](std::uint32_t a, std::uint32_t b) { return vocab.pieces[a] < vocab.pieces[b]; });
  // Breadth first, so that a node's children lie together.
  struct Range {
    std::uint32_t node;
    std::size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Range> queue = {{0, 0, sorted.size(), 0}};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const Range range = queue[head];
    std::size_t i = range.begin;
    if (i < range.end && vocab.pieces[sorted[i]].size() == range.depth) {
      nodes_[range.node].token = static_cast<std::int32_t>(sorted[i]);
      ++i;
    }
    nodes_[range.node].first_child = static_cast<std::uint32_t>(edges_.size());
    while (i < range.end) {
      const unsigned char byte = static_cast<unsigned char>(vocab.pieces[sorted[i]][range.depth]);
      std::size_t end = i;
      while (end < range.end && static_cast<unsigned char>(vocab.pieces[sorted[end]][range.depth]) == byte) {
        ++end;
      }
      const auto node = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({byte, node});
      queue.push_back({node, i, end, range.depth + 1});
      i = end;
    }
    nodes_[range.node].num_children =
        static_cast<std::uint32_t>(edges_.size()) - nodes_[range.node].first_child;
  }
  for (std::uint32_t i = 0; i < nodes_[0].num_children; ++i) root_[edges_[i].byte] = edges_[i].node;
  byte_tokens_.fill(-1);
  if (options_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto id = vocab.find(piece_of_byte(static_cast<unsigned char>(byte)));
      if (id) byte_tokens_[static_cast<std::size_t>(byte)] = *id;
    }
  }
}

const UnigramModel::Node* UnigramModel::child(const Node& node, unsigned char byte) const {
  const Edge* begin = edges_.data() + node.first_child;
  const Edge* end = begin + node.num_children;
  const Edge* it =
      std::lower_bound(begin, end, byte, [](const Edge& edge, unsigned char b) { return edge.byte < b; });
  return it != end && it->byte == byte ? &nodes_[it->node] : nullptr;
}

void UnigramModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
    TokenId token = -1;  // -1: unknown character
  };
  std::vector<Best> best(word.size() + 1);
  best[0].score = 0;
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t length = decode_utf8(word, begin).length;
    const double here = best[begin].score;
    const auto offer = [&](std::size_t end, double score, TokenId token) {
      if (score > best[end].score) best[end] = {score, begin, token};
    };
    bool single = false;
    const std::uint32_t first = root_[static_cast<unsigned char>(word[begin])];
    const Node* node = first == 0 ? nullptr : &nodes_[first];
    for (std::size_t end = begin + 1; node != nullptr; ++end) {
      if (node->token >= 0) {
        const auto id = static_cast<std::size_t>(node->token);
        // A user-defined piece is taken whenever it occurs: slightly better than any sum of its parts.
        const double score = vocabulary_->kinds[id] == TokenKind::kUserDefined
                                 ? 0.0
                                 : static_cast<double>(vocabulary_->scores[id]);
        offer(end, here + score, node->token);
        if (end == begin + length) single = true;
      }
      if (end == word.size()) break;
      node = child(*node, static_cast<unsigned char>(word[end]));
    }
    if (!single) offer(begin + length, here + unk_score_, -1);
    begin += length;
  }
  std::vector<std::pair<std::size_t, std::size_t>> spans;  // reversed
  for (std::size_t end = word.size(); end > 0; end = best[end].begin)
    spans.emplace_back(best[end].begin, end);
  bool after_unk = false;
  for (auto it = spans.rbegin(); it != spans.rend(); ++it) {
    const TokenId token = best[it->second].token;
    if (token >= 0) {
      out.push_back(token);
      after_unk = false;
      continue;
    }
    const std::string_view text = word.substr(it->first, it->second - it->first);
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) {
          return byte_tokens_[static_cast<unsigned char>(b)] >= 0;
        })) {
      for (char b : text) out.push_back(byte_tokens_[static_cast<unsigned char>(b)]);
      after_unk = false;
    } else if (options_.unk && !after_unk) {  // a run of unknown characters is one token
      out.push_back(*options_.unk);
      after_unk = true;
    }
  }
}

}  // namespace quire
