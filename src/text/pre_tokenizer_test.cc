// Expected splits are those of tokenizers 0.23 for the same component and text.
#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> split(const PreTokenStepPtr& step, std::string text, bool at_text_start = true) {
  PreTokens tokens;
  tokens.spans.push_back({0, text.size()});
  tokens.text = std::move(text);
  tokens.at_text_start = at_text_start;
  step->apply(tokens);
  std::vector<std::string> words;
  for (const Span& span : tokens.spans)
    words.push_back(tokens.text.substr(span.begin, span.end - span.begin));
  return words;
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string text = "the-final--countdown";
  const auto with = [&](SplitBehavior behavior) {
    return split(make_literal_split("-", behavior, false), text);
  };
  EXPECT_THAT(with(SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(with(SplitBehavior::kIsolated), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(with(SplitBehavior::kMergedWithPrevious), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(with(SplitBehavior::kMergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(with(SplitBehavior::kContiguous), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split(make_literal_split("-", SplitBehavior::kRemoved, true), text),
              ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, LiteralPatternsAreNotRegularExpressions) {  // TOK-16
  EXPECT_THAT(split(make_literal_split("\\p{N}{1,3}", SplitBehavior::kIsolated, false), "a1234"),
              ElementsAre("a1234"));
  EXPECT_THAT(split(make_literal_split("\\p{N}{1,3}", SplitBehavior::kIsolated, false), "x\\p{N}{1,3}y"),
              ElementsAre("x", "\\p{N}{1,3}", "y"));
  EXPECT_THAT(
      split(make_regex_split(Regex::must_compile("\\p{N}{1,3}"), SplitBehavior::kIsolated, false), "a1234"),
      ElementsAre("a", "123", "4"));
}

TEST(PreTokenizer, Classes) {
  EXPECT_THAT(split(make_digits_split(true), "a 12\xc2\xbd"), ElementsAre("a ", "1", "2", "\xc2\xbd"));
  EXPECT_THAT(split(make_digits_split(false),
                    "a 12\xc2\xbd"
                    "b"),
              ElementsAre("a ", "12\xc2\xbd", "b"));
  EXPECT_THAT(split(make_punctuation_split(SplitBehavior::kIsolated), "a$b+\xc2\xab!"),
              ElementsAre("a", "$", "b", "+", "\xc2\xab", "!"));
  EXPECT_THAT(split(make_word_split(),
                    "a\xc2\xbd"
                    "b_c d!?"),
              ElementsAre("a", "\xc2\xbd", "b_c", "d", "!?"));
  EXPECT_THAT(split(make_whitespace_split(),
                    " a\t\xe3\x80\x80"
                    "b "),
              ElementsAre("a", "b"));
  EXPECT_THAT(split(make_bert_split(), " don't "), ElementsAre("don", "'", "t"));
  EXPECT_THAT(split(make_whitespace_split(), "  "), IsEmpty());
}

TEST(PreTokenizer, MetaspaceSchemes) {
  const std::string m = "\xe2\x96\x81";
  const auto always = make_metaspace_step(m, PrependScheme::kAlways, true);
  const auto first = make_metaspace_step(m, PrependScheme::kFirst, true);
  const auto never = make_metaspace_step(m, PrependScheme::kNever, false);
  EXPECT_THAT(split(always, "Hey  you", false), ElementsAre(m + "Hey", m, m + "you"));
  EXPECT_THAT(split(always, " Hey"), ElementsAre(m + "Hey"));
  EXPECT_THAT(split(first, "Hey", true), ElementsAre(m + "Hey"));
  EXPECT_THAT(split(first, "Hey", false), ElementsAre("Hey"));
  EXPECT_THAT(split(never, "Hey you"), ElementsAre("Hey" + m + "you"));
}

TEST(PreTokenizer, TrailingSpaceEqualsItsPattern) {
  const auto regex = make_regex_split(Regex::must_compile("\\s+$"), SplitBehavior::kIsolated, false);
  for (const char* text : {"a  ", "a \xe3\x80\x80", "  ", "a", " a", "a \t b  "}) {
    EXPECT_EQ(split(make_trailing_space_split(), text), split(regex, text)) << text;
  }
}

TEST(PreTokenizer, PrefixSpaceAndByteCharacters) {
  EXPECT_THAT(split(make_prefix_space_step(), "a"), ElementsAre(" a"));
  EXPECT_THAT(split(make_prefix_space_step(), " a"), ElementsAre(" a"));
  EXPECT_THAT(split(make_byte_chars_step(), " \xc3\xa9"), ElementsAre("\xc4\xa0\xc3\x83\xc2\xa9"));
}

}  // namespace
}  // namespace quire
