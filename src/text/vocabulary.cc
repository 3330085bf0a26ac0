#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "text/utf8.h"

namespace quire {

namespace {

std::uint64_t hash_bytes(std::string_view text) {
  // Multiply-xorshift over 8-byte words; the constants are splitmix64's. It need not resist collisions made
  // on purpose: who supplies the vocabulary supplies the model.
  std::uint64_t h = 0x9e3779b97f4a7c15ull ^ text.size();
  const char* data = text.data();
  std::size_t left = text.size();
  while (left >= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    h = (h ^ word) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 31;
    data += 8;
    left -= 8;
  }
  std::uint64_t tail = 0;
  std::memcpy(&tail, data, left);
  h = (h ^ tail) * 0x94d049bb133111ebull;
  return h ^ h >> 29;
}

}  // namespace

void PieceIndex::reserve(std::size_t count) {
  std::size_t wanted = 16;
  while (wanted < count * 2) wanted *= 2;
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    std::size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].data != nullptr) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

bool PieceIndex::insert(std::string_view piece, std::uint32_t value) {
  if (slots_.size() < (count_ + 1) * 2) reserve((count_ + 1) * 2);
  const std::uint64_t hash = hash_bytes(piece);
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].data != nullptr) {
    if (slots_[i].hash == hash && std::string_view(slots_[i].data, slots_[i].size) == piece) return false;
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = {piece.data(), static_cast<std::uint32_t>(piece.size()), value, hash};
  ++count_;
  max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
  return true;
}

void PieceIndex::build(const std::vector<std::string>& pieces, const std::vector<bool>& include) {
  slots_.clear();
  count_ = 0;
  max_piece_bytes_ = 0;
  reserve(pieces.size());
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (include[id]) insert(pieces[id], static_cast<std::uint32_t>(id));
  }
}

std::optional<std::uint32_t> PieceIndex::find(std::string_view piece) const {
  if (slots_.empty() || piece.size() > max_piece_bytes_) return std::nullopt;
  const std::uint64_t hash = hash_bytes(piece);
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].data != nullptr) {
    if (slots_[i].hash == hash && std::string_view(slots_[i].data, slots_[i].size) == piece) {
      return slots_[i].value;
    }
    i = (i + 1) & (slots_.size() - 1);
  }
  return std::nullopt;
}

std::optional<TokenId> Vocabulary::find(std::string_view piece) const {
  const auto id = index.find(piece);
  if (!id) return std::nullopt;
  return static_cast<TokenId>(*id);
}

void Vocabulary::build_index() {
  std::vector<bool> include(pieces.size());
  for (std::size_t id = 0; id < pieces.size(); ++id) include[id] = kinds[id] != TokenKind::kAbsent;
  index.build(pieces, include);
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : piece.substr(3, 2)) {
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<unsigned char>(value);
}

std::string piece_of_byte(unsigned char byte) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct ByteAlphabet {
  std::array<char32_t, 256> to_char{};
  std::array<std::int16_t, 512> to_byte{};
  ByteAlphabet() {
    to_byte.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t code = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      to_char[static_cast<std::size_t>(byte)] = code;
      to_byte[code] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

char32_t byte_to_char(unsigned char byte) {
  return byte_alphabet().to_char[byte];
}

std::optional<unsigned char> char_to_byte(char32_t code) {
  if (code >= 512 || byte_alphabet().to_byte[code] < 0) return std::nullopt;
  return static_cast<unsigned char>(byte_alphabet().to_byte[code]);
}

std::string bytes_to_chars(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char c : bytes) append_utf8(out, byte_to_char(static_cast<unsigned char>(c)));
  return out;
}

std::string chars_to_bytes(std::string_view piece) {
  std::string out;
  out.reserve(piece.size());
  for (std::size_t pos = 0; pos < piece.size();) {
    const Utf8Char c = decode_utf8(piece, pos);
    const auto byte = c.valid ? char_to_byte(c.code) : std::nullopt;
    if (byte) {
      out.push_back(static_cast<char>(*byte));
    } else {
      out.append(piece.substr(pos, c.length));
    }
    pos += c.length;
  }
  return out;
}

}  // namespace quire
