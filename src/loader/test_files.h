// Purpose: for tests only: files crafted byte by byte, right or wrong at will, in a folder that goes away.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace quire::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-loader-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Appends little-endian values.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out_.append(raw, sizeof(T));
    return *this;
  }
  ByteWriter& raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  ByteWriter& text(std::string_view bytes) { return put<std::uint64_t>(bytes.size()).raw(bytes); }
  const std::string& bytes() const { return out_; }

 private:
  std::string out_;
};

// A GGUF file. Offsets and data follow from the tensors unless a test sets them.
struct GgufMaker {
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;  // innermost first, as in the file
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    std::uint64_t num_bytes = 0;
  };
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::string pairs;
  std::uint64_t num_pairs = 0;
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;
  std::uint64_t data_bytes = 0;
  std::int64_t tensor_count = -1;  // what the header says, if not the truth
  std::int64_t pair_count = -1;

  GgufMaker& raw_pair(std::string_view key, std::uint32_t type, std::string_view value) {
    pairs += ByteWriter().text(key).put(type).raw(value).bytes();
    ++num_pairs;
    return *this;
  }
  GgufMaker& pair_text(std::string_view key, std::string_view value) {
    return raw_pair(key, 8, ByteWriter().text(value).bytes());
  }
  GgufMaker& pair_u32(std::string_view key, std::uint32_t value) {
    return raw_pair(key, 4, ByteWriter().put(value).bytes());
  }
  GgufMaker& pair_u16(std::string_view key, std::uint16_t value) {
    return raw_pair(key, 2, ByteWriter().put(value).bytes());
  }
  // The next tensor, at the next aligned offset.
  GgufMaker& tensor(std::string name, std::vector<std::uint64_t> dims, std::uint32_t type,
                    std::uint64_t num_bytes) {
    data_bytes = (data_bytes + alignment - 1) / alignment * alignment;
    tensors.push_back({std::move(name), std::move(dims), type, data_bytes, num_bytes});
    data_bytes += num_bytes;
    return *this;
  }
  std::string header() const {
    ByteWriter out;
    out.raw(magic).put(version);
    out.put<std::uint64_t>(tensor_count < 0 ? tensors.size() : static_cast<std::uint64_t>(tensor_count));
    out.put<std::uint64_t>(pair_count < 0 ? num_pairs : static_cast<std::uint64_t>(pair_count));
    out.raw(pairs);
    for (const Tensor& tensor : tensors) {
      out.text(tensor.name).put(static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) out.put(dim);
      out.put(tensor.type).put(tensor.offset);
    }
    return out.bytes();
  }
  // Byte i of the data is i % 251.
  std::string file() const {
    std::string out = header();
    if (tensors.empty()) return out;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    for (std::uint64_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i % 251);
    return out;
  }
};

// A safetensors file of a header as given and data of zeros.
inline std::string make_safetensors(std::string_view header, std::size_t data_bytes) {
  return ByteWriter().text(header).raw(std::string(data_bytes, '\0')).bytes();
}

}  // namespace quire::testing
