// Sets of GGUF files: names of the form PREFIX-00001-of-00003.gguf, keys split.no, split.count and
// split.tensors.count. Facts: gguf-split of the llama.cpp project.
#include <filesystem>

#include <fmt/core.h>

#include "base/mapped_file.h"
#include "loader/gguf.h"
#include "loader/mapped_tensors.h"
#include "loader/model_folder.h"

namespace quire {

std::string GgufShardName::path_of(int shard_number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, shard_number, count);
}

bool parse_gguf_shard_name(const std::string& path, GgufShardName* out) {
  // "-ddddd-of-ddddd.gguf" has 20 characters.
  constexpr std::size_t kTail = 20;
  if (path.size() <= kTail) return false;
  const std::string tail = path.substr(path.size() - kTail);
  const auto digits = [&](std::size_t from) {
    int value = 0;
    for (std::size_t i = from; i < from + 5; ++i) {
      if (tail[i] < '0' || tail[i] > '9') return -1;
      value = value * 10 + (tail[i] - '0');
    }
    return value;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return false;
  const int number = digits(1);
  const int count = digits(10);
  if (number < 1 || count < 1 || number > count) return false;
  *out = {path.substr(0, path.size() - kTail), number, count};
  return true;
}

namespace {

// The number of files in the set that this file says it belongs to; 1 if it is alone.
Result<std::int64_t> declared_shards(const Metadata& metadata, const std::string& path) {
  if (!metadata.has("split.count")) return std::int64_t{1};
  const auto count = metadata.get_int("split.count");
  if (!count || *count < 0 || *count > 99999) {
    return invalid(fmt::format("{}: split.count is not a number from 0 to 99999: the file is damaged", path));
  }
  return std::max<std::int64_t>(*count, 1);
}

}  // namespace

Result<GgufCheckpoint> open_gguf(const std::string& path) {
  std::vector<std::shared_ptr<const MappedFile>> files(1);
  QUIRE_TRY(files[0], MappedFile::open(path));
  QUIRE_TRY(GgufFile first, parse_gguf(files[0]->bytes(), path));
  QUIRE_TRY(const std::int64_t count, declared_shards(first.metadata, path));
  std::vector<std::size_t> file_of(first.tensors.size(), 0);
  if (count > 1) {
    GgufShardName name;
    if (!parse_gguf_shard_name(path, &name) || name.count != count) {
      return invalid(
          fmt::format("{} is one of {} files of a split model, but its name does not end in "
                      "-00001-of-{:05}.gguf, so the others cannot be found: give it back its name",
                      path, count, count));
    }
    const auto folder = std::filesystem::path(path).parent_path().string();
    QUIRE_TRY(const ModelFolder tree, ModelFolder::open(folder.empty() ? "." : folder));
    files.assign(1, nullptr);
    files.clear();
    file_of.clear();
    GgufFile all;
    for (int number = 1; number <= name.count; ++number) {
      const std::string shard_path = name.path_of(number);
      QUIRE_TRY(const std::string real, tree.resolve(std::filesystem::path(shard_path).filename().string()));
      auto opened = MappedFile::open(real);
      if (!opened.ok()) {
        return make_error(opened.error().code,
                          fmt::format("{} (one of the {} files of {})", opened.error().message, count, path));
      }
      QUIRE_TRY(GgufFile shard, parse_gguf((*opened)->bytes(), shard_path));
      const auto shard_no = shard.metadata.get_int("split.no");
      const auto shard_count = shard.metadata.get_int("split.count");
      if (shard_no != number - 1 || shard_count != count) {
        return invalid(
            fmt::format("{} says that it is file {} of {}, its name says {} of {}: the files are not of "
                        "one set",
                        shard_path, shard_no.value_or(-1) + 1, shard_count.value_or(-1), number, count));
      }
      if (number == 1) {
        all.version = shard.version;
        all.metadata_end = shard.metadata_end;
        all.metadata = std::move(shard.metadata);  // the others repeat only the split keys
      }
      for (TensorView& tensor : shard.tensors) {
        all.tensors.push_back(std::move(tensor));
        file_of.push_back(files.size());
      }
      files.push_back(std::move(*opened));
    }
    const auto total = all.metadata.get_int("split.tensors.count");
    if (total && *total != static_cast<std::int64_t>(all.tensors.size())) {
      return invalid(
          fmt::format("{} declares {} tensors in all its files, they hold {}: a file is from another set",
                      name.path_of(1), *total, all.tensors.size()));
    }
    first = std::move(all);
  }
  GgufCheckpoint out;
  out.version = first.version;
  out.metadata = std::move(first.metadata);
  out.metadata_end = first.metadata_end;
  QUIRE_TRY(out.tensors, MappedTensors::create(std::move(files), std::move(first.tensors), file_of));
  return out;
}

}  // namespace quire
