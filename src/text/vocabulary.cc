#include "text/vocabulary.h"

#include <array>
#include <bit>
#include <cstring>

#include "text/utf8.h"

namespace quire {

namespace {

template <typename T>
std::uint64_t load(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// Words of 8 bytes, the last ones overlapping, each multiplied by an odd constant (splitmix64's); the upper
// half of a product depends on all bits of its word, and is folded onto the lower. It need not resist
// collisions made on purpose: who supplies the vocabulary supplies the model.
std::uint32_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kFirst = 0xbf58476d1ce4e5b9ull, kSecond = 0x94d049bb133111ebull;
  const char* data = text.data();
  const std::size_t size = text.size();
  const auto mix = [](std::uint64_t h, std::uint64_t word) {
    h = (h ^ word) * kFirst;
    return h ^ h >> 32;
  };
  std::uint64_t h = size;
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) h = mix(h, load<std::uint64_t>(data + i));
    h = mix(h, load<std::uint64_t>(data + size - 8));
  } else if (size >= 4) {
    h = mix(h, load<std::uint32_t>(data) | load<std::uint32_t>(data + size - 4) << 32);
  } else if (size > 0) {
    // First, middle and last: all bytes there are.
    h = mix(h, load<std::uint8_t>(data) | load<std::uint8_t>(data + size / 2) << 8 |
                   load<std::uint8_t>(data + size - 1) << 16);
  }
  return static_cast<std::uint32_t>(h * kSecond >> 32);
}

}  // namespace

void PieceIndex::reserve(std::size_t count) {
  std::size_t wanted = 16;
  while (wanted < count + count / 2) wanted *= 2;  // at most two thirds full
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  shift_ = 32 - std::countr_zero(wanted);
  for (const Slot& slot : old) {
    if (slot.number == kFree) continue;
    std::size_t i = slot.hash >> shift_;
    while (slots_[i].number != kFree) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

std::size_t PieceIndex::probe(const StringList& strings, std::string_view text, std::uint32_t hash) const {
  std::size_t i = hash >> shift_;
  while (slots_[i].number != kFree && !(slots_[i].hash == hash && strings[slots_[i].number] == text)) {
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

std::optional<std::uint32_t> PieceIndex::insert(const StringList& strings, std::uint32_t number) {
  if (slots_.size() < count_ + count_ / 2 + 2) reserve((count_ + 1) * 2);
  const std::uint32_t hash = hash_bytes(strings[number]);
  Slot& slot = slots_[probe(strings, strings[number], hash)];
  if (slot.number != kFree) return slot.number;
  slot = {hash, number};
  ++count_;
  return std::nullopt;
}

std::optional<std::uint32_t> PieceIndex::find(const StringList& strings, std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[probe(strings, text, hash_bytes(text))];
  return slot.number == kFree ? std::nullopt : std::optional<std::uint32_t>(slot.number);
}

std::optional<TokenId> Vocabulary::find(std::string_view piece) const {
  const auto id = index.find(pieces, piece);
  if (!id) return std::nullopt;
  return static_cast<TokenId>(*id);
}

void Vocabulary::build_index() {
  index = PieceIndex();
  repeats.clear();
  index.reserve(pieces.size());
  for (TokenId id = 0; id < size(); ++id) {
    if (kind(id) != TokenKind::kAbsent) add_to_index(id);
  }
}

void Vocabulary::add_to_index(TokenId id) {
  if (index.insert(pieces, static_cast<std::uint32_t>(id))) repeats.push_back(id);
}

OrdinaryPieces::OrdinaryPieces(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {
  for (TokenId id : vocabulary.repeats) {
    const std::string_view piece = vocabulary.piece(id);
    const auto first = vocabulary.index.find(vocabulary.pieces, piece);
    if (vocabulary.is_ordinary(static_cast<std::size_t>(id)) && first && !vocabulary.is_ordinary(*first)) {
      behind_.emplace(piece, static_cast<std::uint32_t>(id));
    }
  }
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
