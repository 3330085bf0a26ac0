#include "text/gguf_keys_test.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace quire {

namespace {

class Reader {
 public:
  explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  template <typename T>
  T number() {
    T value{};
    if (pos_ + sizeof(T) > bytes_.size()) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return value;
  }
  std::string_view string() {
    const auto size = number<std::uint64_t>();
    if (size > bytes_.size() - pos_) {
      failed_ = true;
      return {};
    }
    pos_ += size;
    return {bytes_.data() + pos_ - size, size};
  }
  MetadataValue scalar(std::uint32_t type) {
    switch (type) {
      case 0:
        return std::uint64_t{number<std::uint8_t>()};
      case 1:
        return std::int64_t{number<std::int8_t>()};
      case 2:
        return std::uint64_t{number<std::uint16_t>()};
      case 3:
        return std::int64_t{number<std::int16_t>()};
      case 4:
        return std::uint64_t{number<std::uint32_t>()};
      case 5:
        return std::int64_t{number<std::int32_t>()};
      case 6:
        return double{number<float>()};
      case 7:
        return number<std::uint8_t>() != 0;
      case 8:
        return std::string(string());
      case 10:
        return number<std::uint64_t>();
      case 11:
        return number<std::int64_t>();
      case 12:
        return number<double>();
      default:
        failed_ = true;
        return false;
    }
  }
  MetadataValue value(std::uint32_t type) {
    if (type != 9) return scalar(type);
    const auto element = number<std::uint32_t>();
    const auto count = number<std::uint64_t>();
    if (element == 8) {
      StringList strings;
      for (std::uint64_t i = 0; i < count && !failed_; ++i) strings.push_back(string());
      return strings;
    }
    std::vector<double> floats;
    std::vector<std::int64_t> ints;
    std::vector<bool> bools;
    for (std::uint64_t i = 0; i < count && !failed_; ++i) {
      const MetadataValue item = scalar(element);
      if (const auto* d = std::get_if<double>(&item)) floats.push_back(*d);
      if (const auto* u = std::get_if<std::uint64_t>(&item)) ints.push_back(static_cast<std::int64_t>(*u));
      if (const auto* n = std::get_if<std::int64_t>(&item)) ints.push_back(*n);
      if (const auto* b = std::get_if<bool>(&item)) bools.push_back(*b);
    }
    if (element == 6 || element == 12) return floats;
    if (element == 7) return bools;
    return ints;
  }
  bool failed() const { return failed_; }

 private:
  std::vector<char> bytes_;
  std::size_t pos_ = 0;
  bool failed_ = false;
};

}  // namespace

std::optional<Metadata> read_gguf_keys_for_test(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  // Keys lie in front of the tensors; the largest vocabulary in use takes about 20 MB.
  std::vector<char> bytes(std::min<std::size_t>(static_cast<std::size_t>(file.tellg()), 64u << 20));
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  Reader reader(std::move(bytes));
  if (reader.number<std::uint32_t>() != 0x46554747u) return std::nullopt;
  reader.number<std::uint32_t>();  // version
  reader.number<std::uint64_t>();  // tensors
  const auto num_keys = reader.number<std::uint64_t>();
  Metadata metadata;
  for (std::uint64_t i = 0; i < num_keys && !reader.failed(); ++i) {
    std::string name(reader.string());
    const auto type = reader.number<std::uint32_t>();
    metadata.set(std::move(name), reader.value(type));
  }
  if (reader.failed()) return std::nullopt;
  return metadata;
}

}  // namespace quire
