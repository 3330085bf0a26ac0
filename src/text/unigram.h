// Purpose: the Unigram model (SentencePiece): the segmentation with the greatest sum of scores.
// In: a vocabulary with scores. Out: a TokenModel. Thread: immutable after loading.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

struct UnigramOptions {
  std::optional<TokenId> unk;
  bool byte_fallback = false;
};

class UnigramModel : public TokenModel {
 public:
  UnigramModel(std::shared_ptr<const Vocabulary> vocabulary, UnigramOptions options);
  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  std::string name() const override { return "Unigram"; }

 private:
  struct Node {
    std::int32_t token = -1;
    std::uint32_t first_child = 0;  // into edges_, sorted by byte
    std::uint32_t num_children = 0;
  };
  struct Edge {
    unsigned char byte;
    std::uint32_t node;
  };
  const Node* child(const Node& node, unsigned char byte) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  UnigramOptions options_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<std::uint32_t, 256> root_{};  // children of the root, 0 if none
  std::array<TokenId, 256> byte_tokens_{};
  double unk_score_ = 0;
};

}  // namespace quire
