#include "loader/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "loader/gguf.h"
#include "loader/mapped_tensors.h"
#include "loader/model_folder.h"
#include "loader/safetensors.h"
#include "loader/show.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Far above real files: tokenizer.json of a 262,144-token vocabulary with merges has 34 MB.
constexpr std::size_t kMaxSmallFileBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

bool is_pickle_name(std::string_view name) {
  for (const std::string_view suffix : {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}) {
    if (ends_with(name, suffix)) return true;
  }
  return false;
}

constexpr std::string_view kPickleAdvice =
    "pickled PyTorch weights are refused, because loading one can run any code in it: convert them to "
    "safetensors "
    "(save_pretrained in transformers) or to GGUF";

// One line, safe in a log and in an HTTP reply.
std::string shown_name(std::string name) {
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '_';
  }
  return name.empty() ? "model" : name;
}

Status open_gguf_into(const std::string& path, Checkpoint* out) {
  QUIRE_TRY(GgufCheckpoint gguf, open_gguf(path));
  out->format = CheckpointFormat::kGguf;
  out->gguf_version = gguf.version;
  out->metadata = std::move(gguf.metadata);
  out->gguf_metadata_end = gguf.metadata_end;
  out->tensors = std::move(gguf.tensors);
  return {};
}

// chat_template.json is the older form of chat_template.jinja: {"chat_template": TEXT}. Used where the newer
// one is absent.
Result<std::string> template_from_json(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("chat_template") || !json["chat_template"].is_string()) {
    return invalid(fmt::format("{}: chat_template.json is not {{\"chat_template\": TEXT}}", path));
  }
  return json["chat_template"].get<std::string>();
}

Status read_side_files(const ModelFolder& folder, Checkpoint* out) {
  QUIRE_TRY(out->config_json, folder.read_optional("config.json", kMaxSmallFileBytes));
  QUIRE_TRY(out->generation_config_json, folder.read_optional("generation_config.json", kMaxSmallFileBytes));
  QUIRE_TRY(out->tokenizer_json, folder.read_optional("tokenizer.json", kMaxTokenizerBytes));
  QUIRE_TRY(out->tokenizer_config_json, folder.read_optional("tokenizer_config.json", kMaxSmallFileBytes));
  QUIRE_TRY(out->chat_template_jinja, folder.read_optional("chat_template.jinja", kMaxSmallFileBytes));
  if (out->chat_template_jinja.empty()) {
    QUIRE_TRY(const std::string json, folder.read_optional("chat_template.json", kMaxSmallFileBytes));
    if (!json.empty()) {
      QUIRE_TRY(out->chat_template_jinja, template_from_json(json, folder.path()));
    }
  }
  return {};
}

// The one GGUF model in the folder: a single file, or a single split set (then its first file).
Result<std::string> only_gguf(const ModelFolder& folder) {
  std::vector<std::string> found;
  for (const std::string& name : folder.file_names()) {
    if (!ends_with(name, ".gguf")) continue;
    GgufShardName shard;
    if (parse_gguf_shard_name(name, &shard) && shard.number > 1) {
      if (!found.empty() && found.back() == shard.path_of(1)) continue;
    }
    found.push_back(name);
  }
  if (found.size() > 1) {
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 8); ++i) list += " " + found[i];
    return invalid(
        fmt::format("{} holds {} GGUF models: name one of them:{}", folder.path(), found.size(), list));
  }
  if (found.empty()) return std::string();
  return found[0];
}

Status open_folder(const std::string& path, bool allow_no_tensors, Checkpoint* out) {
  QUIRE_TRY(const ModelFolder folder, ModelFolder::open(path));
  out->name = folder.model_name();
  if (has_safetensors(folder)) {
    out->format = CheckpointFormat::kSafetensors;
    QUIRE_TRY(out->tensors, open_safetensors_folder(folder));
    return read_side_files(folder, out);
  }
  QUIRE_TRY(const std::string gguf, only_gguf(folder));
  if (!gguf.empty()) {
    QUIRE_RETURN_IF_ERROR(folder.resolve(gguf));
    return open_gguf_into(folder.path() + "/" + gguf, out);
  }
  const bool has_tokenizer = std::find(folder.file_names().begin(), folder.file_names().end(),
                                       "tokenizer.json") != folder.file_names().end();
  if (allow_no_tensors && has_tokenizer) {
    out->format = CheckpointFormat::kSafetensors;
    return read_side_files(folder, out);
  }
  for (const std::string& name : folder.file_names()) {
    if (is_pickle_name(name)) {
      return make_error(ErrorCode::kUnsupported, fmt::format("{} holds {}: {}", path, name, kPickleAdvice));
    }
  }
  return invalid(
      fmt::format("{} holds no model: a checkpoint folder has config.json and *.safetensors, or one .gguf "
                  "file",
                  path));
}

Result<std::string> first_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 8> head{};
  if (!in) return make_error(ErrorCode::kIo, fmt::format("cannot open {} for reading", path));
  in.read(head.data(), head.size());
  return std::string(head.data(), static_cast<std::size_t>(in.gcount()));
}

Status open_file(const std::string& path, Checkpoint* out) {
  const std::string file_name = fs::path(path).filename().string();
  QUIRE_TRY(const std::string head, first_bytes(path));
  if (head.empty()) return invalid(fmt::format("{} is empty", path));
  const std::string magic = head.substr(0, 4);
  if (magic == "GGUF" || magic == "FUGG" || ends_with(file_name, ".gguf")) {
    out->name = ends_with(file_name, ".gguf") ? file_name.substr(0, file_name.size() - 5) : file_name;
    return open_gguf_into(path, out);
  }
  if (ends_with(file_name, ".safetensors")) {
    // One file of a folder: its own tensors, with the folder's side files.
    out->format = CheckpointFormat::kSafetensors;
    out->name = file_name.substr(0, file_name.size() - 12);
    const std::string parent = fs::path(path).parent_path().string();
    QUIRE_TRY(out->tensors, open_safetensors_file(path));
    QUIRE_TRY(const ModelFolder folder, ModelFolder::open(parent.empty() ? "." : parent));
    return read_side_files(folder, out);
  }
  if (is_pickle_name(file_name) || magic == std::string("PK\x03\x04", 4) || magic[0] == '\x80') {
    return make_error(ErrorCode::kUnsupported, fmt::format("{}: {}", path, kPickleAdvice));
  }
  if (magic == "lmgg" || magic == "tjgg" || magic == "fmgg" || magic == "algg") {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{} is a GGML file from before GGUF: convert the model again with a current tool", path));
  }
  if (ends_with(file_name, ".json")) {
    return invalid(fmt::format("{} is one file of a checkpoint: give the folder that holds it", path));
  }
  return invalid(
      fmt::format("{} is neither a GGUF file (it begins with {}) nor a safetensors file nor a folder", path,
                  shown(magic)));
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path, bool allow_no_tensors) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return invalid("the path of the model is empty or holds a NUL byte");
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return make_error(ErrorCode::kNotFound, fmt::format("{} does not exist", path));
  }
  if (error) return make_error(ErrorCode::kIo, fmt::format("cannot open {}: {}", path, error.message()));
  auto out = std::make_unique<Checkpoint>();
  out->path = path;
  if (fs::is_directory(status)) {
    QUIRE_RETURN_IF_ERROR(open_folder(path, allow_no_tensors, out.get()));
  } else if (fs::is_regular_file(status)) {
    QUIRE_RETURN_IF_ERROR(open_file(path, out.get()));
  } else {
    return invalid(fmt::format("{} is neither a file nor a folder", path));
  }
  out->name = shown_name(out->name);
  if (out->tensors == nullptr) {
    QUIRE_TRY(out->tensors, MappedTensors::create({}, {}, {}));
  }
  if (out->tensors->tensors().empty() && !allow_no_tensors) {
    return invalid(fmt::format("{} holds no tensors: a vocabulary alone can tokenize, but not run", path));
  }
  for (const TensorView& tensor : out->tensors->tensors()) out->total_bytes += tensor.data.size();
  return out;
}

}  // namespace quire
