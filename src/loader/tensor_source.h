// Purpose: named tensors of a checkpoint, as they lie in the (mapped) file.
// In: files. Out: TensorView: name, element type, shape, bytes, all checked against the file. Thread:
// immutable. Out of scope: what a type's blocks mean (quant/), what a name means (model/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace quire {

// Element types of checkpoint files. The k-quants and Qx_y are GGUF's block types (ggml's names).
enum class TensorType : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kF64,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct TensorTypeInfo {
  std::string_view name;      // "F32", "Q4_K", ...
  std::int64_t block_values;  // values per block (1 for plain types)
  std::int64_t block_bytes;   // bytes per block
};
const TensorTypeInfo& tensor_type_info(TensorType type);

struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;  // outermost first: a linear layer's weight is [out, in], rows contiguous
  std::span<const std::byte> data;  // exactly the bytes of the tensor
  std::int64_t num_values() const;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const TensorView* find(std::string_view name) const = 0;  // nullptr if absent
  virtual const std::vector<TensorView>& tensors() const = 0;       // in file order
  // The files that hold them, in order; none if they are not from files.
  virtual std::vector<std::shared_ptr<const MappedFile>> files() const { return {}; }
};

}  // namespace quire
