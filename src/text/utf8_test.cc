#include "text/utf8.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Utf8, DecodesTheBordersOfEachLength) {
  struct Case {
    std::string_view text;
    char32_t code;
  };
  for (const Case& c : {Case{"\x7f", 0x7f}, Case{"\xc2\x80", 0x80}, Case{"\xdf\xbf", 0x7ff},
                        Case{"\xe0\xa0\x80", 0x800}, Case{"\xef\xbf\xbf", 0xffff},
                        Case{"\xf0\x90\x80\x80", 0x10000}, Case{"\xf4\x8f\xbf\xbf", 0x10ffff}}) {
    const Utf8Char decoded = decode_utf8(c.text, 0);
    EXPECT_TRUE(decoded.valid);
    EXPECT_EQ(decoded.code, c.code);
    EXPECT_EQ(decoded.length, c.text.size());
    std::string written;
    append_utf8(written, c.code);
    EXPECT_EQ(written, c.text);
  }
}

// Expected replacements are those of Python's bytes.decode("utf-8", "replace").
TEST(Utf8, ReplacesEachMaximalMalformedPart) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xc0\x80"), r + r);                  // overlong
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\xa6"), r);                  // cut
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\xa6x"), r + "x");
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82"), r);
  EXPECT_EQ(replace_invalid_utf8(std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

TEST(Utf8, KnowsWhatMayStillBecomeACharacter) {
  EXPECT_EQ(partial_utf8_suffix("abc"), 0u);
  EXPECT_EQ(partial_utf8_suffix("a\xc3"), 1u);
  EXPECT_EQ(partial_utf8_suffix("a\xf0\x9f\xa6"), 3u);
  EXPECT_EQ(partial_utf8_suffix("a\xf0\x9f\xa6\x99"), 0u);
  EXPECT_EQ(partial_utf8_suffix("a\xe0\x80"), 0u);  // can become nothing
  EXPECT_EQ(partial_utf8_suffix("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(partial_utf8_suffix(""), 0u);
}

}  // namespace
}  // namespace quire
