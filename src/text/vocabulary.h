// Purpose: the pieces of a vocabulary by id, and ids by piece.
// In: pieces from a file. Out: lookups. Thread: immutable once filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/string_list.h"
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

// Open addressing from a string to its number in a StringList. It keeps no strings, so that a slot has 8
// bytes and the table of a large vocabulary stays in the cache: each call names the list.
class PieceIndex {
 public:
  void reserve(std::size_t count);
  // Adds strings[number]; if an equal string is there already, keeps that and returns its number.
  std::optional<std::uint32_t> insert(const StringList& strings, std::uint32_t number);
  std::optional<std::uint32_t> find(const StringList& strings, std::string_view text) const;

 private:
  static constexpr std::uint32_t kFree = 0xffffffffu;
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t number = kFree;
  };
  // Of the slot that holds text, or the free one where the search for it ends.
  std::size_t probe(const StringList& strings, std::string_view text, std::uint32_t hash) const;

  std::vector<Slot> slots_;  // a power of two
  int shift_ = 0;            // the slot of a hash: hash >> shift_
  std::size_t count_ = 0;
};

struct Vocabulary {
  StringList pieces;             // by id; "" in holes
  std::vector<TokenKind> kinds;  // by id
  std::vector<float> scores;     // by id, or empty
  PieceIndex index;              // every piece that is not a hole; the first of equal pieces
  std::vector<TokenId> repeats;  // the ids of the others

  TokenId size() const { return static_cast<TokenId>(pieces.size()); }
  bool contains(TokenId id) const {
    return id >= 0 && id < size() && kinds[static_cast<std::size_t>(id)] != TokenKind::kAbsent;
  }
  TokenKind kind(TokenId id) const { return kinds[static_cast<std::size_t>(id)]; }
  std::string_view piece(TokenId id) const { return pieces[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> find(std::string_view piece) const;
  // True if ordinary text may become this token: no control, unknown or byte token.
  bool is_ordinary(std::size_t id) const {
    return kinds[id] == TokenKind::kNormal || kinds[id] == TokenKind::kUserDefined ||
           kinds[id] == TokenKind::kUnused;
  }
  void build_index();
  void add_to_index(TokenId id);
};

// The ordinary pieces of a vocabulary (which outlives this, and whose kinds are final); of equal ones the
// first.
class OrdinaryPieces {
 public:
  explicit OrdinaryPieces(const Vocabulary& vocabulary);
  std::optional<std::uint32_t> find(std::string_view piece) const {
    const auto id = vocabulary_->index.find(vocabulary_->pieces, piece);
    if (!id || vocabulary_->is_ordinary(*id)) return id;
    const auto behind = behind_.find(piece);
    return behind == behind_.end() ? std::nullopt : std::optional<std::uint32_t>(behind->second);
  }
  // True if find() of its piece gives this id.
  bool is_found(std::size_t id) const {
    return vocabulary_->is_ordinary(id) && find(vocabulary_->pieces[id]) == id;
  }
  // True if find() of this text gives this id, seen without a search; false may mean that it is not known.
  bool is_the_only(std::size_t id, std::string_view text) const {
    return id < vocabulary_->pieces.size() && vocabulary_->repeats.empty() && vocabulary_->is_ordinary(id) &&
           vocabulary_->pieces[id] == text;
  }

 private:
  const Vocabulary* vocabulary_;
  // Ordinary pieces behind an equal one that is not: none in real files.
  std::unordered_map<std::string_view, std::uint32_t> behind_;
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
