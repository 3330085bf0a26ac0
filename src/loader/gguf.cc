#include "loader/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>

#include <fmt/core.h>

#include "loader/show.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors are read in place");

// Metadata value types of the specification.
enum class ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a value in the file; for a string the least it takes; 0 if the type is unknown or an array.
std::uint64_t value_bytes(std::uint32_t type) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kString:
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

struct GgmlType {
  std::uint32_t id;
  std::string_view name;
  std::optional<TensorType> type;  // nullopt: known by name, not readable here
};
// Ids of ggml's enum ggml_type. Those without a TensorType are listed so that a refusal can name them.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", TensorType::kF32},    {1, "F16", TensorType::kF16},    {2, "Q4_0", TensorType::kQ4_0},
    {3, "Q4_1", TensorType::kQ4_1},  {6, "Q5_0", TensorType::kQ5_0},  {7, "Q5_1", TensorType::kQ5_1},
    {8, "Q8_0", TensorType::kQ8_0},  {9, "Q8_1", std::nullopt},       {10, "Q2_K", TensorType::kQ2_K},
    {11, "Q3_K", TensorType::kQ3_K}, {12, "Q4_K", TensorType::kQ4_K}, {13, "Q5_K", TensorType::kQ5_K},
    {14, "Q6_K", TensorType::kQ6_K}, {15, "Q8_K", std::nullopt},      {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt},    {18, "IQ3_XXS", std::nullopt},   {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt},    {21, "IQ3_S", std::nullopt},     {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", std::nullopt},    {24, "I8", TensorType::kI8},     {25, "I16", TensorType::kI16},
    {26, "I32", TensorType::kI32},   {27, "I64", TensorType::kI64},   {28, "F64", TensorType::kF64},
    {29, "IQ1_M", std::nullopt},     {30, "BF16", TensorType::kBf16}, {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},     {39, "MXFP4", std::nullopt},
};

const GgmlType* find_ggml_type(std::uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

// One pass over the header. A read that does not fit sets no position and returns an error that says where.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file_name) : bytes_(bytes), file_(file_name) {}
  Result<GgufFile> parse();

 private:
  std::uint64_t left() const { return bytes_.size() - position_; }

  Error damaged(const std::string& what) const {
    return invalid(fmt::format("{}: {} (at byte {} of {}): the file is damaged or cut short, fetch it again",
                               file_, what, position_, bytes_.size()));
  }

  template <typename T>
  bool read(T* out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // The length is checked against the bytes left before anything is allocated.
  Result<std::string> read_string(std::string_view what, std::uint64_t max_bytes) {
    QUIRE_TRY(const std::string_view text, read_view(what, max_bytes));
    return std::string(text);
  }
  Result<std::string_view> read_view(std::string_view what, std::uint64_t max_bytes) {
    std::uint64_t length = 0;
    if (!read(&length)) return damaged(fmt::format("the file ends inside the length of {}", what));
    if (length > left()) {
      return damaged(fmt::format("{} declares {} bytes, {} are left", what, length, left()));
    }
    if (length > max_bytes) {
      return damaged(fmt::format("{} declares {} bytes, more than the limit of {}", what, length, max_bytes));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }

  Status read_header();
  Status read_pair(std::uint64_t number);
  Result<MetadataValue> read_value(const std::string& key, std::uint32_t type);
  Result<MetadataValue> read_array(const std::string& key);
  Result<MetadataValue> read_strings(const std::string& key, std::uint64_t count);
  template <typename T, typename Stored>
  Result<MetadataValue> read_numbers(const std::string& key, std::uint64_t count);
  Status read_alignment();
  Status read_tensor_info(std::uint64_t number);
  Status place_tensors();

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t position_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_pairs_ = 0;
  std::uint64_t num_array_values_ = 0;
  std::uint64_t alignment_ = 32;  // the specification's default
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint64_t> sizes_;
  std::unordered_set<std::string> names_;
  GgufFile out_;
};

Status Parser::read_header() {
  char magic[4];
  if (!read(&magic)) {
    return invalid(fmt::format("{} has only {} bytes: it is not a GGUF file", file_, bytes_.size()));
  }
  const std::string_view found(magic, 4);
  if (found == "FUGG") {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has big-endian byte order (magic \"FUGG\"): only little-endian GGUF is "
                                  "read; convert it with gguf_convert_endian.py",
                                  file_));
  }
  if (found != "GGUF") {
    return invalid(
        fmt::format("{} is not a GGUF file: it begins with {}, not with \"GGUF\"", file_, shown(found)));
  }
  std::uint32_t version = 0;
  if (!read(&version)) return damaged("the file ends inside the version");
  if ((version & 0xffffu) == 0 && version != 0) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has big-endian byte order (version field {:#010x}): only little-endian "
                                  "GGUF is read; convert it with gguf_convert_endian.py",
                                  file_, version));
  }
  if (version != 2 && version != 3) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has GGUF version {}; versions 2 and 3 are read{}", file_, version,
                                  version == 1 ? ": convert the model again with a current tool" : ""));
  }
  out_.version = version;
  if (!read(&num_tensors_) || !read(&num_pairs_)) return damaged("the file ends inside the counts");
  // Least sizes: a tensor is a length, one byte of name, dims count, type and offset; a pair is a length, one
  // byte of key, a type and one byte of value.
  constexpr std::uint64_t kLeastTensor = 8 + 1 + 4 + 4 + 8;
  constexpr std::uint64_t kLeastPair = 8 + 1 + 4 + 1;
  if (num_tensors_ > left() / kLeastTensor) {
    return damaged(fmt::format("the header declares {} tensors, {} bytes are left", num_tensors_, left()));
  }
  if (num_pairs_ > left() / kLeastPair) {
    return damaged(
        fmt::format("the header declares {} metadata pairs, {} bytes are left", num_pairs_, left()));
  }
  return {};
}

template <typename T, typename Stored>
Result<MetadataValue> Parser::read_numbers(const std::string& key, std::uint64_t count) {
  std::vector<Stored> values(count);  // count * sizeof(T) is known to fit in the bytes left
  for (Stored& value : values) {
    T raw{};
    QUIRE_CHECK(read(&raw));
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      if (raw > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return damaged(fmt::format("array {} holds {}, which does not fit 63 bits", shown(key), raw));
      }
    }
    value = static_cast<Stored>(raw);
  }
  return MetadataValue(std::move(values));
}

// Once over the lengths, which checks them, and once more for the copy, into memory of the right size.
Result<MetadataValue> Parser::read_strings(const std::string& key, std::uint64_t count) {
  const std::uint64_t start = position_;
  const auto next = [this] {
    return read_view("a string of an array", std::numeric_limits<std::uint64_t>::max());
  };
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    QUIRE_TRY(const std::string_view text, next());
    total += text.size();
  }
  if (total > StringList::kMaxBytes) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{}: the strings of array {} have {} bytes, more than {}", file_,
                                  shown(key), total, StringList::kMaxBytes));
  }
  position_ = start;
  StringList values;
  values.reserve(count, total);
  for (std::uint64_t i = 0; i < count; ++i) {
    QUIRE_TRY(const std::string_view text, next());
    values.push_back(text);
  }
  return MetadataValue(std::move(values));
}

Result<MetadataValue> Parser::read_array(const std::string& key) {
  std::uint32_t type = 0;
  std::uint64_t count = 0;
  if (!read(&type) || !read(&count)) {
    return damaged(fmt::format("the file ends inside the head of array {}", shown(key)));
  }
  if (type == static_cast<std::uint32_t>(ValueType::kArray)) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: metadata key {} is an array of arrays, which is not supported", file_, shown(key)));
  }
  const std::uint64_t least = value_bytes(type);
  if (least == 0) return damaged(fmt::format("array {} has unknown value type {}", shown(key), type));
  if (count > left() / least) {
    return damaged(fmt::format("array {} declares {} values of at least {} bytes, {} bytes are left",
                               shown(key), count, least, left()));
  }
  if (count > kGgufMaxArrayValues - num_array_values_) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{}: the metadata arrays hold more than {} values (at {})", file_,
                                  kGgufMaxArrayValues, shown(key)));
  }
  num_array_values_ += count;
  switch (static_cast<ValueType>(type)) {
    case ValueType::kU8:
      return read_numbers<std::uint8_t, std::int64_t>(key, count);
    case ValueType::kI8:
      return read_numbers<std::int8_t, std::int64_t>(key, count);
    case ValueType::kU16:
      return read_numbers<std::uint16_t, std::int64_t>(key, count);
    case ValueType::kI16:
      return read_numbers<std::int16_t, std::int64_t>(key, count);
    case ValueType::kU32:
      return read_numbers<std::uint32_t, std::int64_t>(key, count);
    case ValueType::kI32:
      return read_numbers<std::int32_t, std::int64_t>(key, count);
    case ValueType::kU64:
      return read_numbers<std::uint64_t, std::int64_t>(key, count);
    case ValueType::kI64:
      return read_numbers<std::int64_t, std::int64_t>(key, count);
    case ValueType::kF32:
      return read_numbers<float, double>(key, count);
    case ValueType::kF64:
      return read_numbers<double, double>(key, count);
    case ValueType::kBool: {
      std::vector<bool> values;
      values.reserve(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint8_t raw = 0;
        QUIRE_CHECK(read(&raw));
        if (raw > 1) return damaged(fmt::format("array {} holds {} where a bool is 0 or 1", shown(key), raw));
        values.push_back(raw == 1);
      }
      return MetadataValue(std::move(values));
    }
    case ValueType::kString:
      return read_strings(key, count);
    case ValueType::kArray:
      break;
  }
  QUIRE_CHECK(false) << "value type " << type;
  return MetadataValue{};
}

Result<MetadataValue> Parser::read_value(const std::string& key, std::uint32_t type) {
  const auto number = [&]<typename T, typename Stored>(T raw, Stored) -> Result<MetadataValue> {
    if (!read(&raw)) return damaged(fmt::format("the file ends inside the value of {}", shown(key)));
    return MetadataValue(static_cast<Stored>(raw));
  };
  switch (static_cast<ValueType>(type)) {
    case ValueType::kU8:
      return number(std::uint8_t{}, std::uint64_t{});
    case ValueType::kI8:
      return number(std::int8_t{}, std::int64_t{});
    case ValueType::kU16:
      return number(std::uint16_t{}, std::uint64_t{});
    case ValueType::kI16:
      return number(std::int16_t{}, std::int64_t{});
    case ValueType::kU32:
      return number(std::uint32_t{}, std::uint64_t{});
    case ValueType::kI32:
      return number(std::int32_t{}, std::int64_t{});
    case ValueType::kU64:
      return number(std::uint64_t{}, std::uint64_t{});
    case ValueType::kI64:
      return number(std::int64_t{}, std::int64_t{});
    case ValueType::kF32:
      return number(float{}, double{});
    case ValueType::kF64:
      return number(double{}, double{});
    case ValueType::kBool: {
      std::uint8_t raw = 0;
      if (!read(&raw)) return damaged(fmt::format("the file ends inside the value of {}", shown(key)));
      if (raw > 1) return damaged(fmt::format("{} holds {} where a bool is 0 or 1", shown(key), raw));
      return MetadataValue(raw == 1);
    }
    case ValueType::kString: {
      QUIRE_TRY(std::string text, read_string(shown(key), std::numeric_limits<std::uint64_t>::max()));
      return MetadataValue(std::move(text));
    }
    case ValueType::kArray:
      return read_array(key);
  }
  return damaged(fmt::format("{} has unknown value type {}", shown(key), type));
}

Status Parser::read_pair(std::uint64_t number) {
  QUIRE_TRY(std::string key, read_string(fmt::format("key {}", number), kGgufMaxKeyBytes));
  if (key.empty()) return damaged(fmt::format("key {} is empty", number));
  if (out_.metadata.has(key)) return damaged(fmt::format("metadata key {} appears twice", shown(key)));
  std::uint32_t type = 0;
  if (!read(&type)) return damaged(fmt::format("the file ends inside the type of {}", shown(key)));
  QUIRE_TRY(MetadataValue value, read_value(key, type));
  out_.metadata.set(std::move(key), std::move(value));
  return {};
}

Status Parser::read_alignment() {
  const MetadataValue* value = out_.metadata.find("general.alignment");
  if (value == nullptr) return {};
  const auto* alignment = std::get_if<std::uint64_t>(value);
  // Below 8 an f64 would be misaligned; the specification asks for a multiple of 8. The upper bound keeps the
  // padding arithmetic far from overflow.
  constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;
  if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment < 8 ||
      *alignment > kMaxAlignment) {
    return damaged(fmt::format(
        "general.alignment is {}; it must be a power of two from 8 to {}",
        alignment == nullptr ? std::string("not an unsigned number") : fmt::format("{}", *alignment),
        kMaxAlignment));
  }
  alignment_ = *alignment;
  return {};
}

Status Parser::read_tensor_info(std::uint64_t number) {
  TensorView tensor;
  QUIRE_TRY(tensor.name, read_string(fmt::format("the name of tensor {}", number), kGgufMaxNameBytes));
  const std::string name = shown(tensor.name);
  if (tensor.name.empty()) return damaged(fmt::format("tensor {} has an empty name", number));
  if (!names_.insert(tensor.name).second) return damaged(fmt::format("tensor {} appears twice", name));
  std::uint32_t num_dims = 0;
  if (!read(&num_dims)) return damaged(fmt::format("the file ends inside tensor {}", name));
  if (num_dims < 1 || num_dims > kGgufMaxDims) {
    return damaged(
        fmt::format("tensor {} has {} dimensions; 1 to {} are allowed", name, num_dims, kGgufMaxDims));
  }
  std::uint64_t count = 1;
  tensor.shape.resize(num_dims);
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    std::uint64_t dim = 0;
    if (!read(&dim)) return damaged(fmt::format("the file ends inside tensor {}", name));
    if (dim == 0 || dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        count > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / dim) {
      return damaged(fmt::format("dimension {} of tensor {} is {}: zero, negative or too large", i, name,
                                 static_cast<std::int64_t>(dim)));
    }
    count *= dim;
    tensor.shape[num_dims - 1 - i] = static_cast<std::int64_t>(dim);  // the file has the innermost first
  }
  std::uint32_t type_id = 0;
  std::uint64_t offset = 0;
  if (!read(&type_id) || !read(&offset)) return damaged(fmt::format("the file ends inside tensor {}", name));
  const GgmlType* ggml_type = find_ggml_type(type_id);
  if (ggml_type == nullptr) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: tensor {} has unknown type id {}: the file is damaged, or newer than this "
                    "program",
                    file_, name, type_id));
  }
  if (!ggml_type->type.has_value()) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: tensor {} has type {} (id {}), which is not supported: use a file with F32, "
                    "F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K",
                    file_, name, ggml_type->name, type_id));
  }
  tensor.type = *ggml_type->type;
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  const std::int64_t row = tensor.shape.back();
  if (row % info.block_values != 0) {
    return damaged(
        fmt::format("tensor {} has rows of {} values, not a multiple of the {} values in a block of {}", name,
                    row, info.block_values, info.name));
  }
  const std::uint64_t num_blocks = count / static_cast<std::uint64_t>(info.block_values);
  const auto block_bytes = static_cast<std::uint64_t>(info.block_bytes);
  if (num_blocks > bytes_.size() / block_bytes) {
    return invalid(
        fmt::format("{}: tensor {} declares {} blocks of {} bytes, the whole file has {} bytes: it is "
                    "damaged or cut short, fetch it again",
                    file_, name, num_blocks, block_bytes, bytes_.size()));
  }
  if (offset % alignment_ != 0) {
    return damaged(fmt::format("tensor {} is at offset {}, not a multiple of the alignment {}", name, offset,
                               alignment_));
  }
  offsets_.push_back(offset);
  sizes_.push_back(num_blocks * block_bytes);
  out_.tensors.push_back(std::move(tensor));
  return {};
}

// The data begins at the next multiple of the alignment; offsets count from there.
Status Parser::place_tensors() {
  if (out_.tensors.empty()) return {};  // a vocabulary alone may end without padding
  const std::uint64_t padding = (alignment_ - position_ % alignment_) % alignment_;
  const std::uint64_t data_bytes = padding > left() ? 0 : left() - padding;
  const std::uint64_t data_start = position_ + padding;  // used only where data_bytes > 0
  std::uint64_t declared = 0;
  for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
    if (offsets_[i] > std::numeric_limits<std::uint64_t>::max() / 2) {
      return damaged(fmt::format("tensor {} is at offset {}", shown(out_.tensors[i].name), offsets_[i]));
    }
    declared = std::max(declared, offsets_[i] + sizes_[i]);  // sizes are below the file's size
  }
  for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
    if (offsets_[i] > data_bytes || sizes_[i] > data_bytes - offsets_[i]) {
      return invalid(
          fmt::format("{}: tensor {} lies outside the file: {} bytes are declared, the file has {}: it "
                      "is damaged or cut short, fetch it again",
                      file_, shown(out_.tensors[i].name), data_start + declared, bytes_.size()));
    }
    out_.tensors[i].data = bytes_.subspan(data_start + offsets_[i], sizes_[i]);
  }
  std::vector<std::size_t> order(out_.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return offsets_[a] < offsets_[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (offsets_[order[i - 1]] + sizes_[order[i - 1]] > offsets_[order[i]]) {
      return invalid(fmt::format("{}: tensors {} and {} overlap: the file is damaged, fetch it again", file_,
                                 shown(out_.tensors[order[i - 1]].name), shown(out_.tensors[order[i]].name)));
    }
  }
  return {};
}

Result<GgufFile> Parser::parse() {
  QUIRE_RETURN_IF_ERROR(read_header());
  for (std::uint64_t i = 0; i < num_pairs_; ++i) QUIRE_RETURN_IF_ERROR(read_pair(i));
  out_.metadata_end = position_;
  QUIRE_RETURN_IF_ERROR(read_alignment());
  for (std::uint64_t i = 0; i < num_tensors_; ++i) QUIRE_RETURN_IF_ERROR(read_tensor_info(i));
  QUIRE_RETURN_IF_ERROR(place_tensors());
  return std::move(out_);
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& file_name) {
  return Parser(bytes, file_name).parse();
}

}  // namespace quire
