#include "text/unicode.h"

#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "base/check.h"

namespace quire {

namespace {

constexpr char32_t kCodeSpace = 0x110000;
constexpr char32_t kEmptyBegin = 0x40000, kEmptyEnd = 0xe0000;

struct Free {
  void operator()(std::uint16_t* table) const { std::free(table); }
};
using Table = std::unique_ptr<std::uint16_t[], Free>;

std::uint16_t classify(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpperLike;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLowerLike;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kUpperLike | kLowerLike;
    case UTF8PROC_CATEGORY_MN:
      return kMark | kNonspacing | kUpperLike | kLowerLike;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kUpperLike | kLowerLike;
    case UTF8PROC_CATEGORY_ND:
      return kNumber | kDecimal;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    case UTF8PROC_CATEGORY_CN:
      return 0;
    default:
      return kOther;
  }
}

Table build_table() {
  // calloc: zeros that take no memory until they are written.
  Table table(static_cast<std::uint16_t*>(std::calloc(kCodeSpace, sizeof(std::uint16_t))));
  QUIRE_CHECK(table != nullptr);
  // Planes 4 to 13 have no characters (unicode_test.cc asks for each), and their pages stay untouched.
  for (char32_t code = 0; code < kEmptyBegin; ++code) table[code] = classify(code);
  for (char32_t code = kEmptyEnd; code < kCodeSpace; ++code) table[code] = classify(code);
  // White_Space outside \p{Z} (Unicode, PropList.txt).
  for (char32_t code : {0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x85}) table[code] |= kSpace;
  return table;
}

}  // namespace

const std::uint16_t* char_classes() {
  static const Table table = build_table();
  return table.get();
}

bool is_word_char(char32_t code) {
  if (char_class(code) & (kLetter | kMark | kDecimal)) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_PC || category == UTF8PROC_CATEGORY_NL || code == 0x200c ||
         code == 0x200d || (code >= 0x24b6 && code <= 0x24e9);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  }
  return (char_class(code) & kPunctuation) != 0;
}

bool is_cjk_ideograph(char32_t code) {
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
         (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
         (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b820 && code <= 0x2ceaf) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

}  // namespace quire
