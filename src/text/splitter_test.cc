#include "text/splitter.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "text/regex.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace quire {
namespace {

std::vector<std::string> by_hand(SplitKind kind, std::string_view text) {
  std::vector<std::size_t> ends;
  split_words(kind, text, ends);
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (std::size_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

std::vector<std::string> by_regex(SplitKind kind, std::string_view text) {
  const auto regex = Regex::must_compile(split_pattern(kind));
  std::vector<std::string> words;
  std::size_t done = 0;
  EXPECT_TRUE(regex->find_all(text, [&](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin, done);  // the patterns cover any text
    words.emplace_back(text.substr(begin, end - begin));
    done = end;
  }));
  EXPECT_EQ(done, text.size());
  return words;
}

TEST(Splitter, EqualsItsRegularExpressionOnRandomText) {
  const std::vector<std::string> atoms = {" ",
                                          "  ",
                                          "\t",
                                          "\n",
                                          "\r\n",
                                          "\r",
                                          "\xc2\xa0",
                                          "\xe3\x80\x80",
                                          "\xe1\xa0\x8e",
                                          "\xe2\x80\x8d",
                                          "'",
                                          "'s",
                                          "'S",
                                          "'re",
                                          "'LL",
                                          "'ve",
                                          "'\xc5\xbf",
                                          "'m",
                                          "a",
                                          "Zz",
                                          "\xc3\xa9",
                                          "e\xcc\x81",
                                          "\xcc\x81",
                                          "\xe4\xbd\xa0",
                                          "1",
                                          "23",
                                          "\xc2\xbd",
                                          "\xd9\xa3",
                                          "!",
                                          "...",
                                          "$",
                                          "\xf0\x9f\xa6\x99",
                                          "\xe0\xa4\xbe",
                                          std::string("\0", 1),
                                          "\xf4\x8f\xbf\xbf",
                                          "\xef\xbb\xbf",
                                          "\xc2\x85",
                                          "\x1c"};
  std::mt19937 random(7);
  for (SplitKind kind : {SplitKind::kGpt2, SplitKind::kLlama3, SplitKind::kQwen2, SplitKind::kQwen35}) {
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (std::size_t n = random() % 12; n > 0; --n) text += atoms[random() % atoms.size()];
      ASSERT_EQ(by_hand(kind, text), by_regex(kind, text)) << static_cast<int>(kind) << ": " << text;
    }
  }
}

TEST(Splitter, EqualsItsRegularExpressionOnEveryCharacter) {
  std::vector<bool> unassigned(0x20000);
  const auto unknown = Regex::must_compile("\\p{Cn}");
  for (char32_t code = 0; code < 0x20000; ++code) {
    std::string text;
    append_utf8(text, code);
    unknown->find_all(text, [&](std::size_t, std::size_t) { unassigned[code] = true; });
  }
  for (SplitKind kind : {SplitKind::kGpt2, SplitKind::kLlama3, SplitKind::kQwen2, SplitKind::kQwen35}) {
    std::string text;
    for (char32_t code = 0; code < 0x20000; ++code) {
      if (code >= 0xd800 && code <= 0xdfff) continue;
      // The two libraries may know different versions of Unicode.
      if (unassigned[code] || char_class(code) == 0) continue;
      append_utf8(text, code);
      if (code % 3 == 0) text += "a";
    }
    const auto hand = by_hand(kind, text), regex = by_regex(kind, text);
    const auto difference = std::mismatch(hand.begin(), hand.end(), regex.begin(), regex.end());
    ASSERT_TRUE(difference.first == hand.end() && difference.second == regex.end())
        << static_cast<int>(kind) << ": \"" << *difference.first << "\" and \"" << *difference.second << "\"";
  }
}

TEST(Splitter, RecognisesThePatternsOfTokenizerFiles) {
  for (SplitKind kind : {SplitKind::kGpt2, SplitKind::kLlama3, SplitKind::kQwen2, SplitKind::kQwen35}) {
    EXPECT_EQ(known_split(split_pattern(kind)), kind);
  }
  EXPECT_FALSE(known_split(R"(\p{N}+)"));
}

TEST(Regex, TranslatesOnigurumasSyntax) {
  EXPECT_EQ(*Regex::translate("a\\u00e9[\\h]"), "a\\x{00e9}[0-9a-fA-F]");
  EXPECT_EQ(*Regex::translate(" ?[^(x|[.,])]+"), " ?[^(x|.,)]+");  // BLOOM's nested class
  EXPECT_EQ(*Regex::translate("[]a]"), "[]a]");
  EXPECT_EQ(*Regex::translate("[^]a]"), "[^]a]");
  EXPECT_FALSE(Regex::translate("[a&&[^b]]").ok());
  EXPECT_FALSE(Regex::translate("a\\").ok());
}

TEST(Regex, SpaceIsWhiteSpaceWithoutTheMongolianVowelSeparator) {
  const auto regex = Regex::must_compile("\\s");
  int hits = 0;
  regex->find_all("\xe1\xa0\x8e \xc2\x85\xe3\x80\x80", [&](std::size_t, std::size_t) { ++hits; });
  EXPECT_EQ(hits, 3);
}

TEST(Regex, ReportsEmptyMatchesOnce) {
  const auto regex = Regex::must_compile("(?=(\\d{3})+(?!\\d))");
  std::vector<std::size_t> cuts;
  regex->find_all("1234567", [&](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin, end);
    cuts.push_back(begin);
  });
  EXPECT_EQ(cuts, (std::vector<std::size_t>{1, 4}));
}

TEST(Regex, NamesFileAndPatternOfAnError) {
  const auto bad = Regex::compile("(unclosed", "x.json: pre_tokenizer");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("x.json: pre_tokenizer"), std::string::npos);
  EXPECT_NE(bad.error().message.find("(unclosed"), std::string::npos);
  EXPECT_FALSE(Regex::compile(std::string(60000, '('), "x").ok());
}

TEST(Regex, GivesUpOnExponentialPatterns) {
  const auto regex = Regex::must_compile("(a+)+$");
  EXPECT_FALSE(regex->find_all(std::string(64, 'a') + "b", [](std::size_t, std::size_t) {}));
}

}  // namespace
}  // namespace quire
