#include "text/vocabulary.h"

#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PieceIndex, EqualsAMapOnRandomStrings) {
  // Lengths around the borders of the hash's words, few different bytes: many strings differ in one place
  // only.
  std::mt19937 random(5);
  StringList strings;
  PieceIndex index;
  std::unordered_map<std::string, std::uint32_t> map;
  for (std::uint32_t number = 0; number < 20'000; ++number) {
    std::string text;
    for (std::size_t left = random() % 26; left > 0; --left) text.push_back(static_cast<char>(random() % 3));
    if (random() % 2 == 0 && text.size() > 1) text.replace(text.size() / 2, 1, "\xff");
    strings.push_back(text);
    const auto [there, added] = map.emplace(text, number);
    const auto first = index.insert(strings, number);
    ASSERT_EQ(first.has_value(), !added);
    if (first) {
      ASSERT_EQ(*first, there->second);
    }
  }
  for (std::uint32_t number = 0; number < strings.size(); ++number) {
    const std::string text(strings[number]);
    ASSERT_EQ(index.find(strings, text), map[text]);
    const std::string longer = text + "z";
    ASSERT_EQ(index.find(strings, longer).has_value(), map.count(longer) != 0);
  }
  EXPECT_FALSE(PieceIndex().find(strings, "a").has_value());
}

TEST(OrdinaryPieces, TheFirstOrdinaryOneOfEqualPieces) {
  Vocabulary vocabulary;
  vocabulary.pieces = StringList({"<s>", "a", "<s>", "<s>", "", "a", "<0x41>", "<0x41>"});
  vocabulary.kinds = {TokenKind::kControl, TokenKind::kNormal, TokenKind::kNormal, TokenKind::kUserDefined,
                      TokenKind::kAbsent,  TokenKind::kNormal, TokenKind::kByte,   TokenKind::kUnknown};
  vocabulary.build_index();
  EXPECT_EQ(vocabulary.find("<s>"), 0);
  EXPECT_EQ(vocabulary.find("a"), 1);
  EXPECT_EQ(vocabulary.find("<0x41>"), 6);
  EXPECT_FALSE(vocabulary.find("").has_value());
  const OrdinaryPieces ordinary(vocabulary);
  EXPECT_EQ(ordinary.find("<s>"), 2u);
  EXPECT_EQ(ordinary.find("a"), 1u);
  EXPECT_FALSE(ordinary.find("<0x41>").has_value());
  EXPECT_FALSE(ordinary.find("b").has_value());
  EXPECT_TRUE(ordinary.is_found(2));
  for (std::size_t id : {0, 3, 4, 5, 6, 7}) EXPECT_FALSE(ordinary.is_found(id)) << id;
}

TEST(OrdinaryPieces, TheOnlyOne) {
  Vocabulary vocabulary;
  vocabulary.pieces = StringList({"<s>", "a", "b"});
  vocabulary.kinds = {TokenKind::kControl, TokenKind::kNormal, TokenKind::kNormal};
  vocabulary.build_index();
  EXPECT_TRUE(OrdinaryPieces(vocabulary).is_the_only(1, "a"));
  EXPECT_FALSE(OrdinaryPieces(vocabulary).is_the_only(2, "a"));
  EXPECT_FALSE(OrdinaryPieces(vocabulary).is_the_only(0, "<s>"));
  EXPECT_FALSE(OrdinaryPieces(vocabulary).is_the_only(3, ""));
  vocabulary.pieces.push_back("a");
  vocabulary.kinds.push_back(TokenKind::kNormal);
  vocabulary.build_index();
  EXPECT_FALSE(OrdinaryPieces(vocabulary).is_the_only(3, "a"));
}

}  // namespace
}  // namespace quire
