#include "loader/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/mapped_tensors.h"
#include "loader/show.h"

namespace quire {
namespace {

struct Dtype {
  std::string_view name;
  TensorType type;
};
constexpr Dtype kDtypes[] = {
    {"F64", TensorType::kF64},   {"F32", TensorType::kF32},        {"F16", TensorType::kF16},
    {"BF16", TensorType::kBf16}, {"I64", TensorType::kI64},        {"I32", TensorType::kI32},
    {"I16", TensorType::kI16},   {"I8", TensorType::kI8},          {"U8", TensorType::kU8},
    {"BOOL", TensorType::kBool}, {"F8_E4M3", TensorType::kF8E4M3}, {"F8_E5M2", TensorType::kF8E5M2},
};

constexpr std::size_t kMaxDims = 32;

struct HeaderEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

// The header's grammar, one event at a time: {"__metadata__": {text: text}, name: {"dtype": text, "shape":
// [n], "data_offsets": [n, n]}}. A tree of values would lose duplicate names and could be made very deep;
// this does neither.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;  // set when an event returned false
  std::vector<HeaderEntry> entries;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(std::int64_t value) override {
    return fail(fmt::format("the number {}{}", value, where()));
  }
  bool number_float(double, const std::string& text) override {
    return fail(fmt::format("the number {}{}", shown(text), where()));
  }
  bool number_unsigned(std::uint64_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) return unexpected("a number");
    auto& list = *(state_ == State::kShape ? entries.back().shape : entries.back().offsets);
    if (list.size() == (state_ == State::kShape ? kMaxDims : 2))
      return fail("a list that is too long" + where());
    list.push_back(value);
    return true;
  }
  bool string(std::string& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kField || field_ != "dtype") return unexpected("a text");
    entries.back().dtype = value;
    state_ = State::kEntry;
    return true;
  }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTopValue:
        state_ = entries.back().name == "__metadata__" ? State::kMetadata : State::kEntry;
        return true;
      default:
        return unexpected("an object");
    }
  }
  bool key(std::string& value) override {
    switch (state_) {
      case State::kTop: {
        if (value.empty()) return fail("an empty tensor name");
        if (!names_.insert(value).second) return fail(fmt::format("tensor {} twice", shown(value)));
        entries.emplace_back().name = value;
        state_ = State::kTopValue;
        return true;
      }
      case State::kMetadata:
        return metadata_keys_.insert(value).second ||
               fail(fmt::format("metadata key {} twice", shown(value)));
      case State::kEntry: {
        HeaderEntry& entry = entries.back();
        const bool again = (value == "dtype" && entry.dtype) || (value == "shape" && entry.shape) ||
                           (value == "data_offsets" && entry.offsets);
        if (again) return fail(fmt::format("field {} twice{}", shown(value), where()));
        if (value != "dtype" && value != "shape" && value != "data_offsets") {
          return fail(fmt::format("the unknown field {}{}", shown(value), where()));
        }
        field_ = value;
        state_ = State::kField;
        return true;
      }
      default:
        return unexpected("a key");
    }
  }
  bool end_object() override {
    if (state_ == State::kMetadata) {
      entries.pop_back();
      state_ = State::kTop;
      return true;
    }
    if (state_ == State::kEntry) {
      const HeaderEntry& entry = entries.back();
      if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
        return fail("an entry without dtype, shape or two data_offsets" + where());
      }
      state_ = State::kTop;
      return true;
    }
    state_ = State::kEnd;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ != State::kField || field_ == "dtype") return unexpected("an array");
    if (field_ == "shape") {
      entries.back().shape.emplace();
      state_ = State::kShape;
    } else {
      entries.back().offsets.emplace();
      state_ = State::kOffsets;
    }
    return true;
  }
  bool end_array() override {
    state_ = State::kEntry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("invalid JSON at byte {}", position));
  }

 private:
  enum class State { kStart, kTop, kTopValue, kMetadata, kEntry, kField, kShape, kOffsets, kEnd };

  std::string where() const {
    return entries.empty() ? std::string() : fmt::format(" in the entry of {}", shown(entries.back().name));
  }
  bool unexpected(std::string_view what) { return fail(fmt::format("{} out of place{}", what, where())); }
  bool fail(std::string text) {
    if (problem.empty()) problem = std::move(text);
    return false;
  }

  State state_ = State::kStart;
  std::string field_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
};

Result<TensorView> check_entry(const HeaderEntry& entry, const std::string& file_name) {
  TensorView tensor;
  tensor.name = entry.name;
  const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& candidate) { return candidate.name == *entry.dtype; });
  if (dtype == std::end(kDtypes)) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: tensor {} has dtype {}, which is not supported", file_name,
                                  shown(entry.name), shown(*entry.dtype)));
  }
  tensor.type = dtype->type;
  const auto value_bytes = static_cast<std::uint64_t>(tensor_type_info(tensor.type).block_bytes);
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t size = value_bytes;
  bool empty = false;
  for (const std::uint64_t dim : *entry.shape) {
    if (dim > kMax || (dim != 0 && size > kMax / dim)) {
      return invalid(fmt::format("{}: the shape of tensor {} overflows", file_name, shown(entry.name)));
    }
    if (dim == 0) {
      empty = true;
    } else {
      size *= dim;
    }
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  if (empty) size = 0;
  const std::uint64_t begin = (*entry.offsets)[0];
  const std::uint64_t end = (*entry.offsets)[1];
  if (begin > end) {
    return invalid(fmt::format("{}: tensor {} ends at {}, before its begin at {}", file_name,
                               shown(entry.name), end, begin));
  }
  if (end - begin != size) {
    return invalid(fmt::format("{}: tensor {} has {} bytes of data, its dtype {} and shape need {}",
                               file_name, shown(entry.name), end - begin, *entry.dtype, size));
  }
  return tensor;
}

}  // namespace

Result<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& file_name) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return invalid(
        fmt::format("{} has only {} bytes: it is not a safetensors file", file_name, bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    return invalid(
        fmt::format("{} declares a header of {} bytes, more than the limit of {}: it is not a safetensors "
                    "file, or it is damaged",
                    file_name, header_bytes, kSafetensorsMaxHeaderBytes));
  }
  if (header_bytes > bytes.size() - sizeof(header_bytes)) {
    return invalid(
        fmt::format("{} declares {} bytes of header, the file has {} bytes: it is cut short, fetch it "
                    "again",
                    file_name, header_bytes, bytes.size()));
  }
  const std::uint64_t data_start = sizeof(header_bytes) + header_bytes;
  const auto* header = reinterpret_cast<const char*>(bytes.data() + sizeof(header_bytes));
  if (header_bytes == 0 || header[0] != '{') {
    return invalid(
        fmt::format("{}: the header does not begin with '{{': it is not a safetensors file", file_name));
  }
  // The JSON reader takes a NUL for the end of its input, so what follows one would go unseen.
  if (std::memchr(header, 0, header_bytes) != nullptr) {
    return invalid(fmt::format("{}: the header has invalid JSON: a NUL byte", file_name));
  }
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(header, header + header_bytes, &reader)) {
    return invalid(fmt::format("{}: the header has {}", file_name, reader.problem));
  }
  std::sort(reader.entries.begin(), reader.entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return *a.offsets != *b.offsets ? *a.offsets < *b.offsets : a.name < b.name;
  });
  std::vector<TensorView> tensors;
  tensors.reserve(reader.entries.size());
  std::uint64_t expected = 0;
  for (const HeaderEntry& entry : reader.entries) {
    QUIRE_TRY(TensorView tensor, check_entry(entry, file_name));
    if ((*entry.offsets)[0] != expected) {
      return invalid(
          fmt::format("{}: tensor {} begins at byte {} of the data, the one before it ends at {}: the data "
                      "must be covered without {}",
                      file_name, shown(entry.name), (*entry.offsets)[0], expected,
                      (*entry.offsets)[0] > expected ? "holes" : "overlaps"));
    }
    expected = (*entry.offsets)[1];
    tensors.push_back(std::move(tensor));
  }
  const std::uint64_t data_bytes = bytes.size() - data_start;
  if (expected != data_bytes) {
    // expected may be anything up to 2^63; the sum below cannot overflow.
    return invalid(fmt::format("{}: the header declares a file of {} bytes, it has {}: {}, fetch it again",
                               file_name, data_start + expected, bytes.size(),
                               expected > data_bytes ? "it is cut short" : "it has trailing bytes"));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& offsets = *reader.entries[i].offsets;
    tensors[i].data = bytes.subspan(data_start + offsets[0], offsets[1] - offsets[0]);
  }
  return tensors;
}

Result<std::unique_ptr<TensorSource>> open_safetensors_file(const std::string& path) {
  QUIRE_TRY(auto file, MappedFile::open(path));
  QUIRE_TRY(auto tensors, parse_safetensors(file->bytes(), path));
  const std::vector<std::size_t> file_of(tensors.size(), 0);
  QUIRE_TRY(auto source, MappedTensors::create({std::move(file)}, std::move(tensors), file_of));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace quire
