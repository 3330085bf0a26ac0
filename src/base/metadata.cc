#include "base/metadata.h"

#include <limits>

namespace quire {
namespace {

template <typename T>
const T* get(const Metadata& metadata, std::string_view key) {
  const MetadataValue* value = metadata.find(key);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

}  // namespace

std::optional<std::int64_t> Metadata::get_int(std::string_view key) const {
  if (const auto* u = get<std::uint64_t>(*this, key)) {
    if (*u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(*u);
  }
  if (const auto* i = get<std::int64_t>(*this, key)) return *i;
  return std::nullopt;
}

std::optional<double> Metadata::get_float(std::string_view key) const {
  if (const auto* f = get<double>(*this, key)) return *f;
  if (auto i = get_int(key)) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<bool> Metadata::get_bool(std::string_view key) const {
  if (const auto* b = get<bool>(*this, key)) return *b;
  return std::nullopt;
}

const std::string* Metadata::get_string(std::string_view key) const {
  return get<std::string>(*this, key);
}
const StringList* Metadata::get_strings(std::string_view key) const {
  return get<StringList>(*this, key);
}
const std::vector<std::int64_t>* Metadata::get_ints(std::string_view key) const {
  return get<std::vector<std::int64_t>>(*this, key);
}
const std::vector<double>* Metadata::get_floats(std::string_view key) const {
  return get<std::vector<double>>(*this, key);
}

}  // namespace quire
