#include "text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

namespace quire {
namespace {

TEST(Unicode, ClassesAreThoseOfTheCategories) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    const std::uint16_t classes = char_class(code);
    ASSERT_EQ((classes & kLetter) != 0, letter) << std::hex << static_cast<std::uint32_t>(code);
    ASSERT_EQ((classes & kMark) != 0, mark) << std::hex << static_cast<std::uint32_t>(code);
    ASSERT_EQ((classes & kNumber) != 0, number) << std::hex << static_cast<std::uint32_t>(code);
    ASSERT_TRUE(category != UTF8PROC_CATEGORY_CN || classes == 0)
        << std::hex << static_cast<std::uint32_t>(code);
    ASSERT_TRUE(category == UTF8PROC_CATEGORY_CN || classes != 0)
        << std::hex << static_cast<std::uint32_t>(code);
  }
}

TEST(Unicode, WhiteSpaceIsTheProperty) {
  // PropList.txt, White_Space.
  for (char32_t code = 0; code < 0x110000; ++code) {
    const bool expected = (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
                          code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
                          code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
    ASSERT_EQ(is_white_space(code), expected) << std::hex << static_cast<std::uint32_t>(code);
  }
}

}  // namespace
}  // namespace quire
