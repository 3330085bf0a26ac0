// The models against plain definitions of what they compute, on small random vocabularies.
#include <chrono>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<Vocabulary> make_vocabulary(std::vector<std::string> pieces, std::vector<float> scores = {}) {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->kinds.assign(pieces.size(), TokenKind::kNormal);
  vocabulary->pieces = std::move(pieces);
  vocabulary->scores = std::move(scores);
  vocabulary->build_index();
  return vocabulary;
}

std::vector<TokenId> encode(const TokenModel& model, std::string_view word) {
  std::vector<TokenId> ids;
  model.encode_word(word, ids);
  return ids;
}

std::string random_word(std::mt19937& random, std::size_t longest, int letters) {
  std::string out;
  for (std::size_t n = random() % (longest + 1); n > 0; --n) {
    out.push_back(static_cast<char>('a' + random() % static_cast<unsigned>(letters)));
  }
  return out;
}

TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> pieces = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = pieces[random() % pieces.size()], right = pieces[random() % pieces.size()];
      if ((left + right).size() > 40) continue;
      merges.emplace_back(left, right);
      if (std::find(pieces.begin(), pieces.end(), left + right) == pieces.end()) {
        pieces.push_back(left + right);
      }
    }
    const auto vocabulary = make_vocabulary(pieces);
    const std::vector<BpeModel::Merge> views(merges.begin(), merges.end());
    const auto model = BpeModel::from_merges(vocabulary, views, {}, "test");
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (int i = 0; i < 40; ++i) {
      // Short words take the scanning way, long ones the heap.
      const std::string word = random_word(random, i % 2 == 0 ? 20 : 300, 3);
      std::vector<std::string> symbols;
      for (char c : word) symbols.emplace_back(1, c);
      for (;;) {
        std::size_t best_rank = merges.size(), best = 0;
        for (std::size_t k = 0; k + 1 < symbols.size(); ++k) {
          for (std::size_t rank = 0; rank < best_rank; ++rank) {
            if (merges[rank].first == symbols[k] && merges[rank].second == symbols[k + 1]) {
              best_rank = rank;
              best = k;
            }
          }
        }
        if (best_rank == merges.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      }
      std::vector<TokenId> expected;
      for (const std::string& symbol : symbols) expected.push_back(*vocabulary->find(symbol));
      ASSERT_EQ(encode(**model, word), expected) << word;
    }
  }
}

TEST(Bpe, ScoresEqualTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> pieces = {"a", "b"};
    for (int i = 0; i < 30; ++i) {
      const std::string piece = random_word(random, 6, 2);
      if (!piece.empty() && std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) {
        pieces.push_back(piece);
      }
    }
    std::vector<float> scores;
    for (std::size_t i = 0; i < pieces.size(); ++i) scores.push_back(-static_cast<float>(random() % 12));
    const auto vocabulary = make_vocabulary(pieces, scores);
    const auto model = BpeModel::from_scores(vocabulary, {});
    for (int i = 0; i < 40; ++i) {
      const std::string word = random_word(random, i % 2 == 0 ? 20 : 200, 2);
      std::vector<std::string> symbols;
      for (char c : word) symbols.emplace_back(1, c);
      for (;;) {
        std::optional<std::size_t> best;
        float best_score = 0;
        for (std::size_t k = 0; k + 1 < symbols.size(); ++k) {
          const auto id = vocabulary->find(symbols[k] + symbols[k + 1]);
          if (!id) continue;
          const float score = scores[static_cast<std::size_t>(*id)];
          if (!best || score > best_score) {
            best = k;
            best_score = score;
          }
        }
        if (!best) break;
        symbols[*best] += symbols[*best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
      }
      std::vector<TokenId> expected;
      for (const std::string& symbol : symbols) expected.push_back(*vocabulary->find(symbol));
      ASSERT_EQ(encode(*model, word), expected) << word;
    }
  }
}

TEST(Bpe, UnknownCharacters) {
  auto pieces = std::vector<std::string>{"<unk>", "a", "\xc3\xa9"};
  BpeOptions options;
  options.unk = 0;
  auto model = BpeModel::from_merges(make_vocabulary(pieces), {}, options, "test");
  EXPECT_THAT(encode(**model, "axy\xc3\xa9z"), ElementsAre(1, 0, 0, 2, 0));
  options.fuse_unk = true;
  model = BpeModel::from_merges(make_vocabulary(pieces), {}, options, "test");
  EXPECT_THAT(encode(**model, "axy\xc3\xa9z"), ElementsAre(1, 0, 2, 0));
  // Byte fallback needs every byte of the character.
  auto vocabulary = make_vocabulary({"<unk>", "a", "<0xC3>", "<0xA9>"});
  vocabulary->kinds[2] = vocabulary->kinds[3] = TokenKind::kByte;
  options.byte_fallback = true;
  model = BpeModel::from_merges(vocabulary, {}, options, "test");
  EXPECT_THAT(encode(**model, "a\xc3\xa9\xc3\xa8"), ElementsAre(1, 2, 3, 0));
}

TEST(Bpe, TextNeverBecomesAControlToken) {
  auto vocabulary = make_vocabulary({"<", "s", ">", "<s", "<s>"});
  vocabulary->kinds[4] = TokenKind::kControl;
  BpeOptions options;
  options.ignore_merges = true;
  options.strict_merges = false;
  options.byte_level = true;
  const auto model = BpeModel::from_merges(vocabulary, {{"<", "s"}, {"<s", ">"}}, options, "test");
  for (TokenId id : encode(**model, "<s>")) EXPECT_NE(id, 4);
}

TEST(Bpe, MergesOutsideTheVocabularyAreNamed) {
  const auto model = BpeModel::from_merges(make_vocabulary({"a", "b"}), {{"a", "b"}}, {}, "m.json");
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, ::testing::HasSubstr("\"ab\""));
}

TEST(Unigram, EqualsExhaustiveSearch) {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> pieces = {"<unk>", "a"};
    for (int i = 0; i < 12; ++i) {
      const std::string piece = random_word(random, 4, 2);
      if (!piece.empty() && std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) {
        pieces.push_back(piece);
      }
    }
    std::vector<float> scores(pieces.size());
    float worst = 0;
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      scores[i] = -static_cast<float>(random() % 100'000) / 7919.0f;  // no ties in sums
      worst = std::min(worst, scores[i]);
    }
    auto vocabulary = make_vocabulary(pieces, scores);
    vocabulary->kinds[0] = TokenKind::kUnknown;
    UnigramOptions options;
    options.unk = 0;
    const UnigramModel model(vocabulary, options);
    for (int i = 0; i < 30; ++i) {
      const std::string word = random_word(random, 10, 3);  // "c" is unknown
      double best = -1e30;
      std::vector<TokenId> expected;
      // Every set of cuts.
      for (unsigned cuts = 0; cuts < 1u << (word.empty() ? 0 : word.size() - 1); ++cuts) {
        double score = 0;
        std::vector<TokenId> ids;
        std::size_t begin = 0;
        bool possible = true;
        for (std::size_t k = 1; k <= word.size() && possible; ++k) {
          if (k < word.size() && !(cuts >> (k - 1) & 1)) continue;
          const auto id = vocabulary->find(word.substr(begin, k - begin));
          if (id && *id != 0) {
            score += static_cast<double>(scores[static_cast<std::size_t>(*id)]);
            ids.push_back(*id);
          } else if (k - begin == 1) {
            score += static_cast<double>(worst) - 10;
            if (ids.empty() || ids.back() != 0) ids.push_back(0);
          } else {
            possible = false;
          }
          begin = k;
        }
        if (possible && score > best + 1e-9) {
          best = score;
          expected = ids;
        }
      }
      ASSERT_EQ(encode(model, word), expected) << word;
    }
  }
}

TEST(WordPiece, TakesTheLongestPieceOrNothing) {
  const auto vocabulary = make_vocabulary({"[UNK]", "un", "##aff", "##able", "##a", "unaf"});
  WordPieceOptions options;
  options.unk = 0;
  const WordPieceModel model(vocabulary, options);
  EXPECT_THAT(encode(model, "unaffable"), ElementsAre(0));  // "unaf" leaves "fable": no way back
  EXPECT_THAT(encode(model, "unaable"), ElementsAre(1, 4, 3));
  EXPECT_THAT(encode(model, std::string(101, 'a')), ElementsAre(0));  // TOK-17
  const WordLevelModel words(vocabulary, 0);
  EXPECT_THAT(encode(words, "un"), ElementsAre(1));
  EXPECT_THAT(encode(words, "xx"), ElementsAre(0));
}

}  // namespace
}  // namespace quire
