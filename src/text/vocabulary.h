// Purpose: the pieces of a vocabulary by id, and ids by piece.
// In: pieces from a file. Out: lookups. Thread: immutable once filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire {

// What a token is for; numbers as in GGUF's tokenizer.ggml.token_type.
enum class TokenKind : std::uint8_t {
  kAbsent = 0,  // a hole in the ids
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Open addressing from a string to a number, without a copy of the strings: `pieces` outlives it and keeps
// its strings where they are.
class PieceIndex {
 public:
  void build(const std::vector<std::string>& pieces, const std::vector<bool>& include);
  // Keeps the entry that is there already; false then.
  bool insert(std::string_view piece, std::uint32_t value);
  void reserve(std::size_t count);
  std::optional<std::uint32_t> find(std::string_view piece) const;
  std::size_t max_piece_bytes() const { return max_piece_bytes_; }

 private:
  struct Slot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    std::uint32_t value = 0;
    std::uint64_t hash = 0;
  };
  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::size_t max_piece_bytes_ = 0;
};

struct Vocabulary {
  std::vector<std::string> pieces;  // by id; "" in holes
  std::vector<TokenKind> kinds;     // by id
  std::vector<float> scores;        // by id, or empty
  PieceIndex index;                 // every piece that is not a hole; the first of equal pieces

  TokenId size() const { return static_cast<TokenId>(pieces.size()); }
  bool contains(TokenId id) const {
    return id >= 0 && id < size() && kinds[static_cast<std::size_t>(id)] != TokenKind::kAbsent;
  }
  TokenKind kind(TokenId id) const { return kinds[static_cast<std::size_t>(id)]; }
  const std::string& piece(TokenId id) const { return pieces[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> find(std::string_view piece) const;
  void build_index();
};

// "<0x0A>" gives 10.
std::optional<unsigned char> byte_of_piece(std::string_view piece);
std::string piece_of_byte(unsigned char byte);

// The printable characters that stand for bytes in byte-level vocabularies (GPT-2's encoder.py): bytes 33 to
// 126, 161 to 172 and 174 to 255 stand for themselves, the rest for U+0100 and up.
char32_t byte_to_char(unsigned char byte);
std::optional<unsigned char> char_to_byte(char32_t code);
std::string bytes_to_chars(std::string_view bytes);
// Characters outside the byte alphabet stand for their own UTF-8.
std::string chars_to_bytes(std::string_view piece);

}  // namespace quire
