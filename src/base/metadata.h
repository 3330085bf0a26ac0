// Purpose: typed key-value pairs as a file header carries them (GGUF); loader/ fills it, text/ and model/
// read it. Knows nothing of what the keys mean. Thread: immutable once filled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/string_list.h"

namespace quire {

using MetadataValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                 std::vector<double>, StringList, std::vector<bool>>;

class Metadata {
 public:
  void set(std::string key, MetadataValue value) { values_[std::move(key)] = std::move(value); }
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  const MetadataValue* find(std::string_view key) const {
    auto it = values_.find(key);
    return it == values_.end() ? nullptr : &it->second;
  }
  // A number of any width that fits; nullopt if absent or of another kind.
  std::optional<std::int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  const std::string* get_string(std::string_view key) const;
  const StringList* get_strings(std::string_view key) const;
  const std::vector<std::int64_t>* get_ints(std::string_view key) const;
  const std::vector<double>* get_floats(std::string_view key) const;
  const std::map<std::string, MetadataValue, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, MetadataValue, std::less<>> values_;
};

}  // namespace quire
