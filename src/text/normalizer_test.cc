#include "text/normalizer.h"

#include <chrono>
#include <cstring>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Normalizer, UnicodeForms) {
  const std::string composed = "\xc3\xa9", decomposed = "e\xcc\x81", ligature = "\xef\xac\x81";
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, decomposed), composed);
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, composed), decomposed);
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, ligature), ligature);
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfkc, ligature), "fi");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, "\xe2\x84\xab"), "\xc3\x85");  // angstrom sign
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"),
            "\xed\x95\x9c");  // Hangul
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, "\xed\x95\x9c"), "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab");
  // Marks are put in the order of their classes: dot below (220) before acute (230).
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, "a\xcc\x81\xcc\xa3"), "a\xcc\xa3\xcc\x81");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, "a\xcc\x81\xcc\xa3"), "\xe1\xba\xa1\xcc\x81");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, std::string("a\0\xc3\xa9", 4)), std::string("a\0\xc3\xa9", 4));
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfkd, "\xef\xb7\xba").size(), 33u);  // the longest decomposition
}

TEST(Normalizer, RunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += "\xcc\x81\xcc\xa3";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, text).size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(Normalizer, Replacements) {
  EXPECT_EQ(make_replace_normalizer(" ", "__")->apply("a b  "), "a__b____");
  EXPECT_EQ(make_regex_replace_normalizer(Regex::must_compile(" {2,}"), " ")->apply("a  b   c d"), "a b c d");
  EXPECT_EQ(make_prepend_normalizer("x")->apply("a"), "xa");
  EXPECT_EQ(make_prepend_normalizer("x")->apply(""), "");
  EXPECT_EQ(make_strip_normalizer(true, true)->apply(" \ta b\xe3\x80\x80"), "a b");
  EXPECT_EQ(make_strip_normalizer(true, false)->apply("  a "), "a ");
  EXPECT_EQ(make_strip_normalizer(false, true)->apply("   "), "");
  EXPECT_EQ(make_collapse_spaces_normalizer()->apply("  a   b "), "a b");
  EXPECT_EQ(make_lowercase_normalizer()->apply("\xc3\x89\xc4\xb0Z"), "\xc3\xa9i\xcc\x87z");
  EXPECT_EQ(make_strip_accents_normalizer()->apply("e\xcc\x81"), "e");
  EXPECT_EQ(make_nmt_normalizer()->apply("a\x01\xe2\x80\x8b"
                                         "b"),
            "a b");
}

TEST(Normalizer, Bert) {
  EXPECT_EQ(make_bert_normalizer({})->apply("C\xe1\xbb\xad"
                                            "a"),
            "cua");
  EXPECT_EQ(make_bert_normalizer({})->apply("a\xe6\x88\x91"
                                            "b"),
            "a \xe6\x88\x91 b");
  // A control character vanishes even if it is white space; tab and line breaks become a space.
  EXPECT_EQ(make_bert_normalizer({})->apply("a\xc2\x85"
                                            "b\tc\nd"),
            "ab c d");
  BertNormalizerOptions cased;
  cased.lowercase = false;
  EXPECT_EQ(make_bert_normalizer(cased)->apply("\xc3\x89"), "\xc3\x89");
}

// A trie with the keys "a" -> "xy" and "ab" -> "" written by hand, unit by unit (see charsmap.cc).
TEST(Normalizer, Charsmap) {
  std::vector<std::uint32_t> trie(512, 0);
  const auto unit = [](std::uint32_t offset, unsigned char label, bool leaf) {
    return offset << 10 | (leaf ? 1u << 8 : 0u) | label;
  };
  trie[0] = unit(1, 0, false);  // root: children at 1 ^ byte
  const std::uint32_t a = 1 ^ 'a';
  trie[a] = unit(a ^ 256, 'a', true);  // children of "a" at 256 ^ byte, its leaf at 256
  trie[256] = 0x80000000u | 0;         // "a" -> offset 0
  const std::uint32_t b = 256 ^ 'b';
  trie[b] = unit(b ^ 400, 'b', true);
  trie[400] = 0x80000000u | 3;  // "ab" -> offset 3
  const std::string replacements("xy\0\0", 4);
  std::string map(4, '\0');
  const std::uint32_t bytes = static_cast<std::uint32_t>(trie.size() * 4);
  std::memcpy(map.data(), &bytes, 4);
  map.append(reinterpret_cast<const char*>(trie.data()), bytes);
  map += replacements;
  const auto normalizer = make_charsmap_normalizer(map, "test");
  ASSERT_TRUE(normalizer.ok());
  EXPECT_EQ((*normalizer)
                ->apply("ca\xc3\xa9"
                        "ab"),
            "cxy\xc3\xa9");
  EXPECT_FALSE(make_charsmap_normalizer("abc", "test").ok());
  EXPECT_FALSE(make_charsmap_normalizer(map.substr(0, 100), "test").ok());
}

}  // namespace
}  // namespace quire
