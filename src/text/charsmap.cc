// SentencePiece's precompiled character map (normalizer.h, make_charsmap_normalizer).
#include <cstdint>
#include <cstring>

#include <fmt/core.h>

#include "text/normalizer.h"
#include "text/utf8.h"

namespace quire {

namespace {

class CharsmapNormalizer : public Normalizer {
 public:
  CharsmapNormalizer(std::vector<std::uint32_t> trie, std::string replacements)
      : trie_(std::move(trie)), replacements_(std::move(replacements)) {}

  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t pos = 0; pos < text.size();) {
      std::size_t length = 0;
      std::uint32_t value = 0;
      longest_match(std::string_view(text).substr(pos), length, value);
      if (length > 0 && value < replacements_.size()) {
        out += replacements_.c_str() + value;  // NUL-ended; checked when loaded
      } else {
        length = decode_utf8(text, pos).length;
        out.append(text, pos, length);
      }
      pos += length;
    }
    // A damaged map can cut characters.
    return is_valid_utf8(out) ? out : replace_invalid_utf8(out);
  }

 private:
  // A unit of a darts-clone double array: bits 0-7 label (with bit 31), bit 8 has_leaf, bits 10-30 offset,
  // shifted by 8 more if bit 9 is set; a leaf holds the value in bits 0-30.
  static std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  void longest_match(std::string_view text, std::size_t& length, std::uint32_t& value) const {
    std::uint32_t node = offset(trie_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const unsigned char byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= trie_.size()) return;
      const std::uint32_t unit = trie_[node];
      if ((unit & 0x800000ffu) != byte) return;
      node ^= offset(unit);
      if (node >= trie_.size()) return;
      if (unit >> 8 & 1) {
        length = i + 1;
        value = trie_[node] & 0x7fffffffu;
      }
    }
  }

  std::vector<std::uint32_t> trie_;
  std::string replacements_;
};

}  // namespace

Result<NormalizerPtr> make_charsmap_normalizer(std::string_view charsmap, const std::string& where) {
  std::uint32_t trie_bytes = 0;
  if (charsmap.size() < 4) {
    return invalid(
        fmt::format("{}: the precompiled charsmap has {} bytes, which is too short", where, charsmap.size()));
  }
  std::memcpy(&trie_bytes, charsmap.data(), 4);
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) {
    return invalid(fmt::format("{}: the precompiled charsmap says that its trie has {} bytes of {}", where,
                               trie_bytes, charsmap.size() - 4));
  }
  std::vector<std::uint32_t> trie(trie_bytes / 4);
  std::memcpy(trie.data(), charsmap.data() + 4, trie_bytes);
  std::string replacements(charsmap.substr(4 + trie_bytes));
  if (!is_valid_utf8(replacements)) {
    return invalid(fmt::format("{}: the precompiled charsmap's replacements are not UTF-8", where));
  }
  NormalizerPtr map = std::make_shared<CharsmapNormalizer>(std::move(trie), std::move(replacements));
  return map;
}

}  // namespace quire
