// Sharded safetensors: model.safetensors.index.json says which tensor is in which file.
#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/mapped_tensors.h"
#include "loader/safetensors.h"
#include "loader/show.h"

namespace quire {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kDataSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxDepth = 32;

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() > suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// Keeps the pairs of weight_map, skips everything else; refuses a name that appears twice.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;
  bool found = false;
  std::map<std::string, std::string> weight_map;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(std::int64_t) override { return scalar("a number"); }
  bool number_unsigned(std::uint64_t) override { return scalar("a number"); }
  bool number_float(double, const std::string&) override { return scalar("a number"); }
  bool binary(binary_t&) override { return scalar("binary"); }
  bool string(std::string& value) override {
    if (!in_map()) return scalar("a text");
    weight_map[key_] = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_map()) return fail(fmt::format("an object as the file of {}", shown(key_)));
    if (depth_ == 1 && key_ == "weight_map") map_open_ = true;
    return ++depth_ <= kMaxDepth || fail("too many levels");
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1) map_open_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_map()) return fail(fmt::format("a list as the file of {}", shown(key_)));
    if (depth_ == 0) return fail("a list where an object should be");
    if (depth_ == 1 && key_ == "weight_map") return fail("a list as weight_map");
    return ++depth_ <= kMaxDepth || fail("too many levels");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& value) override {
    if (in_map()) {
      if (weight_map.count(value) != 0) return fail(fmt::format("tensor {} twice", shown(value)));
    } else if (depth_ == 1 && value == "weight_map") {
      if (found) return fail("weight_map twice");
      found = true;
    }
    if (in_map() || depth_ == 1) key_ = value;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("invalid JSON at byte {}", position));
  }

 private:
  bool in_map() const { return map_open_ && depth_ == 2; }
  bool scalar(std::string_view what) {
    if (depth_ == 0 || (depth_ == 1 && key_ == "weight_map"))
      return fail(fmt::format("{} out of place", what));
    return !in_map() || fail(fmt::format("{} as the file of {}", what, shown(key_)));
  }
  bool fail(std::string text) {
    if (problem.empty()) problem = std::move(text);
    return false;
  }

  std::string key_;
  std::size_t depth_ = 0;
  bool map_open_ = false;
};

Result<std::unique_ptr<TensorSource>> open_shards(const ModelFolder& folder, const std::string& index_name) {
  const std::string index_path = folder.path() + "/" + index_name;
  QUIRE_TRY(const std::string index_real, folder.resolve(index_name));
  QUIRE_TRY(const std::string json, read_file(index_real, kMaxIndexBytes));
  QUIRE_TRY(const auto weight_map, parse_safetensors_index(json, index_path));
  // Every name is checked before the first file is opened.
  std::map<std::string, std::string> real_of;
  for (const auto& [tensor, file] : weight_map) {
    if (real_of.count(file) != 0) continue;
    auto real = folder.resolve(file);
    if (!real.ok()) {
      return make_error(real.error().code, fmt::format("{} (named by {} for tensor {})", real.error().message,
                                                       index_name, shown(tensor)));
    }
    real_of.emplace(file, std::move(*real));
  }
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::vector<TensorView> tensors;
  std::vector<std::size_t> file_of;
  for (const auto& [name, real] : real_of) {
    QUIRE_TRY(auto file, MappedFile::open(real));
    const std::string shard_path = folder.path() + "/" + name;
    QUIRE_TRY(auto shard, parse_safetensors(file->bytes(), shard_path));
    for (TensorView& tensor : shard) {
      const auto it = weight_map.find(tensor.name);
      if (it == weight_map.end() || it->second != name) {
        return invalid(fmt::format(
            "{} holds tensor {}, which {} {}: the files are not of one checkpoint", shard_path,
            shown(tensor.name), index_name,
            it == weight_map.end() ? std::string("does not name") : "places in " + shown(it->second)));
      }
      tensors.push_back(std::move(tensor));
      file_of.push_back(files.size());
    }
    files.push_back(std::move(file));
  }
  QUIRE_TRY(auto source, MappedTensors::create(std::move(files), std::move(tensors), file_of));
  for (const auto& [tensor, file] : weight_map) {
    if (source->find(tensor) == nullptr) {
      return invalid(
          fmt::format("{} places tensor {} in {}, which does not hold it: the files are not of one "
                      "checkpoint",
                      index_path, shown(tensor), shown(file)));
    }
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

std::vector<std::string> names_ending(const ModelFolder& folder, std::string_view suffix) {
  std::vector<std::string> out;
  for (const std::string& name : folder.file_names()) {
    if (ends_with(name, suffix)) out.push_back(name);
  }
  return out;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   const std::string& file_name) {
  IndexReader reader;
  // The JSON reader takes a NUL for the end of its input.
  if (json.find('\0') != std::string_view::npos) {
    return invalid(fmt::format("{}: the index has invalid JSON: a NUL byte", file_name));
  }
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    return invalid(fmt::format("{}: the index has {}", file_name, reader.problem));
  }
  if (!reader.found || reader.weight_map.empty()) {
    return invalid(fmt::format("{}: the index has no weight_map, or an empty one", file_name));
  }
  return std::move(reader.weight_map);
}

bool has_safetensors(const ModelFolder& folder) {
  return !names_ending(folder, kDataSuffix).empty() || !names_ending(folder, kIndexSuffix).empty();
}

Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const ModelFolder& folder) {
  const auto has = [&](std::string_view name) {
    return std::find(folder.file_names().begin(), folder.file_names().end(), name) !=
           folder.file_names().end();
  };
  const auto open_one = [&](std::string_view name) -> Result<std::unique_ptr<TensorSource>> {
    QUIRE_RETURN_IF_ERROR(folder.resolve(name));
    return open_safetensors_file(folder.path() + "/" + std::string(name));
  };
  if (has(kSingle)) return open_one(kSingle);
  if (has(kIndex)) return open_shards(folder, std::string(kIndex));
  const auto indexes = names_ending(folder, kIndexSuffix);
  if (indexes.size() == 1) return open_shards(folder, indexes[0]);
  const auto singles = names_ending(folder, kDataSuffix);
  if (indexes.empty() && singles.size() == 1) return open_one(singles[0]);
  return invalid(
      fmt::format("{} holds {} safetensors files and {} indexes, but neither {} nor {}: it is not clear "
                  "which to load",
                  folder.path(), singles.size(), indexes.size(), kSingle, kIndex));
}

}  // namespace quire
