// Purpose: packed weights as plain numbers and arrays, and back, for engine files. See packed_weight.h. Every
// number is checked before it is used: the image may come from a file.
#include <limits>

#include <fmt/core.h>

#include "backend/cpu/gemm/amx_weight.h"
#include "backend/cpu/gemm/packed_weight.h"

namespace quire::cpu::gemm {
namespace {

// No matrix has more rows or columns; keeps the sizes below 2^63.
constexpr std::int64_t kMaxDim = std::int64_t{1} << 28;

Error misfit(const PackedImage& image, std::string_view what) {
  return invalid(fmt::format("a stored weight of kind \"{}\" has no usable {}", image.kind, what));
}

// The array as a buffer, which must have exactly this many bytes.
Result<Buffer> take(const PackedImage& image, std::string_view name, std::int64_t num_bytes,
                    const std::shared_ptr<const void>& owner) {
  const auto bytes = image.array(name);
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % kBufferAlignment == 0;
  if (bytes.size() != static_cast<std::size_t>(num_bytes) || !aligned) {
    return invalid(fmt::format("a stored weight of kind \"{}\" has {} bytes of {}{}, {} belong there",
                               image.kind, bytes.size(), name, aligned ? "" : ", misaligned", num_bytes));
  }
  return Buffer::view(bytes, owner);
}

using Restore = Result<std::unique_ptr<PackedWeight>> (*)(const PackedImage&, std::shared_ptr<const void>);
struct Kind {
  std::string_view name;
  Restore restore;
};
constexpr Kind kKinds[] = {
    {GroupedWeight::kKind, GroupedWeight::restore},
    {DenseWeight::kKind, DenseWeight::restore},
    {AmxWeight::kKind, AmxWeight::restore},
};

}  // namespace

PackedImage GroupedWeight::image() const {
  PackedImage image;
  image.kind = kKind;
  image.numbers = {{"n", n()},
                   {"k", k()},
                   {"bits", bits_},
                   {"group_size", group_size_},
                   {"zero", zero_},
                   {"has_mins", has_mins_ ? 1 : 0},
                   {"scale_kind", scale_kind_},
                   {"groups_per_super", groups_per_super_}};
  image.arrays = {{"data", data_.bytes()}, {"scales", scales_.bytes()}};
  if (has_mins_) image.arrays.push_back({"mins", mins_.bytes()});
  if (scale_kind_ != kScaleCodes) return image;
  image.arrays.push_back({"super_scales", super_scales_.bytes()});
  if (has_mins_) image.arrays.push_back({"super_mins", super_mins_.bytes()});
  return image;
}

Result<std::unique_ptr<PackedWeight>> GroupedWeight::restore(const PackedImage& image,
                                                             std::shared_ptr<const void> owner) {
  const auto n = image.number("n", 1, kMaxDim);
  const auto k = image.number("k", 1, kMaxDim);
  const auto bits = image.number("bits", 4, 8);
  const auto group_size = image.number("group_size", kBlockK / 2, kMaxDim);
  const auto zero = image.number("zero", 0, 255);
  const auto has_mins = image.number("has_mins", 0, 1);
  const auto scale_kind = image.number("scale_kind", kScaleF16, kScaleF32);
  const auto per_super = image.number("groups_per_super", 0, kMaxDim);
  if (!n || !k) return misfit(image, "shape");
  if (!bits || *bits == 7 || !group_size || *group_size % (kBlockK / 2) != 0 || !zero || !has_mins)
    return misfit(image, "layout");
  if (!scale_kind || !per_super || (*scale_kind == kScaleCodes) != (*per_super > 0))
    return misfit(image, "scales");

  std::unique_ptr<GroupedWeight> weight(new GroupedWeight(*n, *k, static_cast<int>(*bits),
                                                          static_cast<int>(*group_size),
                                                          static_cast<int>(*zero), *has_mins == 1));
  weight->scale_kind_ = static_cast<ScaleKind>(*scale_kind);
  const std::int64_t tiles = weight->num_tiles();
  QUIRE_TRY(weight->data_, take(image, "data", tiles * weight->num_blocks() * 64 * *bits, owner));
  const std::int64_t scale_bytes =
      tiles * weight->num_groups_ * kTileCols * static_cast<std::int64_t>(weight->scale_bytes());
  QUIRE_TRY(weight->scales_, take(image, "scales", scale_bytes, owner));
  if (weight->has_mins_) {
    QUIRE_TRY(weight->mins_, take(image, "mins", scale_bytes, owner));
  }
  if (weight->scale_kind_ == kScaleCodes) {
    weight->groups_per_super_ = static_cast<int>(*per_super);
    weight->num_supers_ = (weight->num_groups_ + *per_super - 1) / *per_super;
    const std::int64_t super_bytes = tiles * weight->num_supers_ * kTileCols * 2;
    QUIRE_TRY(weight->super_scales_, take(image, "super_scales", super_bytes, owner));
    if (weight->has_mins_) {
      QUIRE_TRY(weight->super_mins_, take(image, "super_mins", super_bytes, owner));
    }
  }
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

DenseWeight::DenseWeight(std::int64_t n, std::int64_t k, DType storage, std::string origin, Buffer data)
    : CpuWeight(n, k), storage_(storage), origin_(std::move(origin)), data_(std::move(data)) {}

PackedImage DenseWeight::image() const {
  PackedImage image;
  image.kind = kKind;
  image.numbers = {{"n", n()}, {"k", k()}, {"dtype", static_cast<int>(storage_)}};
  image.text = origin_;
  image.arrays = {{"data", data_.bytes()}};
  return image;
}

Result<std::unique_ptr<PackedWeight>> DenseWeight::restore(const PackedImage& image,
                                                           std::shared_ptr<const void> owner) {
  const auto n = image.number("n", 1, kMaxDim);
  const auto k = image.number("k", 1, kMaxDim);
  const auto dtype = image.number("dtype", static_cast<int>(DType::kF32), static_cast<int>(DType::kBf16));
  if (!n || !k) return misfit(image, "shape");
  if (!dtype) return misfit(image, "element type");
  const auto storage = static_cast<DType>(*dtype);
  std::unique_ptr<DenseWeight> weight(new DenseWeight(*n, *k, storage, image.text, Buffer()));
  QUIRE_TRY(
      weight->data_,
      take(image, "data", weight->num_tiles() * static_cast<std::int64_t>(weight->tile_bytes()), owner));
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image, std::shared_ptr<const void> owner) {
  for (const Kind& kind : kKinds) {
    if (kind.name == image.kind) return kind.restore(image, std::move(owner));
  }
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("a stored weight of kind \"{}\", which this program does not know", image.kind));
}

}  // namespace quire::cpu::gemm
