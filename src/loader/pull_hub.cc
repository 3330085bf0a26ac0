// quire pull ORG/NAME: which files of a repository make a checkpoint, and their way into one folder.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/gguf.h"
#include "loader/install.h"
#include "loader/pull_internal.h"
#include "loader/safetensors.h"
#include "loader/show.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using internal::HubFileInfo;
using internal::HubListing;
using Json = nlohmann::ordered_json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
// What a checkpoint folder may have beside its tensors.
constexpr std::string_view kSideFiles[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
};

// Records where the files of a folder came from.
constexpr std::string_view kManifestName = "quire.json";

struct HubSpec {
  std::string repo;
  std::string file_or_tag;  // "" for safetensors
};

std::optional<HubSpec> parse_spec(std::string_view spec) {
  HubSpec out;
  const std::size_t colon = spec.find(':');
  const std::string_view repo = spec.substr(0, colon);
  const std::size_t slash = repo.find('/');
  if (slash == std::string_view::npos || !is_model_name(repo.substr(0, slash)) ||
      !is_model_name(repo.substr(slash + 1))) {
    return std::nullopt;
  }
  out.repo = repo;
  if (colon != std::string_view::npos) {
    out.file_or_tag = spec.substr(colon + 1);
    if (out.file_or_tag.empty()) return std::nullopt;
  }
  return out;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// The name of a GGUF model: its path without .gguf and without the tail of a shard.
std::string gguf_stem(const std::string& path) {
  GgufShardName shard;
  if (parse_gguf_shard_name(path, &shard)) return shard.prefix;
  return path.substr(0, path.size() - 5);
}

// Whether stem ends in the tag ("x-Q4_K_M", "x.q4_k_m", "Q4_K_M/x-Q4_K_M").
bool has_tag(const std::string& stem, std::string_view tag) {
  const std::string text = lower(stem);
  const std::string wanted = lower(tag);
  if (!ends_with(text, wanted)) return false;
  if (text.size() == wanted.size()) return true;
  const char before = text[text.size() - wanted.size() - 1];
  return before == '-' || before == '.' || before == '_' || before == '/';
}

struct Selection {
  std::string local_name;
  std::vector<const HubFileInfo*> files;
};

// All files of the GGUF model that file_or_tag names, or of the only one.
Result<Selection> select_gguf(const HubListing& listing, const std::string& file_or_tag) {
  std::set<std::string> stems;
  for (const HubFileInfo& file : listing.files) {
    if (!ends_with(file.path, ".gguf")) continue;
    const std::string stem = gguf_stem(file.path);
    // The projector of a vision model is no model of its own.
    if (file_or_tag.empty() && lower(fs::path(stem).filename().string()).rfind("mmproj", 0) == 0) continue;
    if (file_or_tag.empty() || file.path == file_or_tag || stem == file_or_tag ||
        has_tag(stem, file_or_tag)) {
      stems.insert(stem);
    }
  }
  if (stems.size() != 1) {
    std::string list;
    for (const HubFileInfo& file : listing.files) {
      if (ends_with(file.path, ".gguf") && (stems.empty() || stems.count(gguf_stem(file.path)) != 0)) {
        list += (list.empty() ? "" : ", ") + file.path;
      }
    }
    return make_error(
        stems.empty() ? ErrorCode::kNotFound : ErrorCode::kInvalid,
        fmt::format("{} has {} GGUF models{}: name one as {}:FILE.gguf or {}:TAG, of {}", listing.repo,
                    stems.size(), file_or_tag.empty() ? "" : " for " + shown(file_or_tag), listing.repo,
                    listing.repo, list.empty() ? "none" : list));
  }
  Selection out;
  for (const HubFileInfo& file : listing.files) {
    if (ends_with(file.path, ".gguf") && gguf_stem(file.path) == *stems.begin()) out.files.push_back(&file);
  }
  const std::string name = fs::path(*stems.begin()).filename().string();
  out.local_name = hub_local_name(listing.repo, name);
  return out;
}

// The safetensors of the repository's top folder: one file, or the shards that the index names.
Result<Selection> select_safetensors(const HubListing& listing, const std::string& staging,
                                     const PullOptions& options) {
  Selection out;
  out.local_name = hub_local_name(listing.repo);
  std::vector<const HubFileInfo*> data;
  for (const HubFileInfo& file : listing.files) {
    if (ends_with(file.path, ".safetensors") && file.path.find('/') == std::string::npos)
      data.push_back(&file);
  }
  if (const HubFileInfo* single = listing.find("model.safetensors")) {
    out.files.push_back(single);
  } else if (const HubFileInfo* index = listing.find(kIndexName)) {
    const std::string index_path = staging + "/" + index->path;
    QUIRE_RETURN_IF_ERROR(internal::fetch_hub_file(listing, *index, index_path, 0, index->size, options));
    QUIRE_TRY(const std::string json, read_file(index_path));
    QUIRE_TRY(const auto weight_map, parse_safetensors_index(json, std::string(kIndexName)));
    std::set<std::string> names;
    for (const auto& [tensor, name] : weight_map) names.insert(name);
    out.files.push_back(index);
    for (const std::string& name : names) {
      const HubFileInfo* shard = listing.find(name);
      if (shard == nullptr) {
        return invalid(fmt::format("{}: {} names {}, which the repository does not have", listing.repo,
                                   kIndexName, shown(name)));
      }
      out.files.push_back(shard);
    }
  } else if (data.size() == 1) {
    out.files.push_back(data[0]);
  } else {
    return invalid(fmt::format("{} has {} safetensors files and no {}: it is not clear which make the model",
                               listing.repo, data.size(), kIndexName));
  }
  for (const std::string_view name : kSideFiles) {
    if (const HubFileInfo* file = listing.find(name)) out.files.push_back(file);
  }
  return out;
}

bool has_top_level_safetensors(const HubListing& listing) {
  return std::any_of(listing.files.begin(), listing.files.end(), [](const HubFileInfo& file) {
    return ends_with(file.path, ".safetensors") && file.path.find('/') == std::string::npos;
  });
}

Status refuse_without_weights(const HubListing& listing) {
  for (const HubFileInfo& file : listing.files) {
    if (ends_with(file.path, ".safetensors") || ends_with(file.path, ".gguf")) return {};
  }
  for (const HubFileInfo& file : listing.files) {
    if (ends_with(file.path, ".bin") || ends_with(file.path, ".pth") || ends_with(file.path, ".pt")) {
      return make_error(
          ErrorCode::kUnsupported,
          fmt::format("{} has only pickled PyTorch weights ({}), which are refused because loading them "
                      "can run any code: look for a repository with safetensors or GGUF",
                      listing.repo, file.path));
    }
  }
  return invalid(fmt::format("{} has no safetensors and no GGUF files", listing.repo));
}

// Whether the installed folder is of this commit and each file in it has its recorded size and hash.
bool is_installed(const std::string& folder, const std::string& commit, const PullOptions& options,
                  std::uint64_t* bytes) {
  auto text = read_file(folder + "/" + std::string(kManifestName), std::size_t{16} << 20);
  if (!text.ok()) return false;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || json.value("commit", Json()) != commit || !json.contains("files") ||
      !json["files"].is_array()) {
    return false;
  }
  *bytes = 0;
  for (const Json& file : json["files"]) {
    if (!file.is_object() || !file.contains("path") || !file["path"].is_string() ||
        !file.contains("sha256")) {
      return false;
    }
    const std::string path = folder + "/" + file["path"].get<std::string>();
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error || file.value("bytes", Json()) != size) return false;
    const auto sum = file_sha256(path, options.cancelled);
    if (!sum.ok() || file["sha256"] != *sum) return false;
    *bytes += size;
  }
  return true;
}

// An earlier pull's staging folder is kept for its .partial files, but only for the same commit.
Status prepare_staging(const std::string& staging, const std::string& commit) {
  const std::string marker = staging + "/.commit";
  std::error_code ignored;
  const auto text = read_file(marker, 4096);
  if (!text.ok() || *text != commit) fs::remove_all(staging, ignored);
  QUIRE_RETURN_IF_ERROR(make_folders(staging));
  QUIRE_TRY(OutputFile out, OutputFile::open(marker, false));
  QUIRE_RETURN_IF_ERROR(out.write(commit));
  return out.finish();
}

Status write_manifest(const std::string& staging, const HubListing& listing, const std::string& revision,
                      Json files) {
  Json manifest;
  manifest["source"] = "hub";
  manifest["repo"] = listing.repo;
  manifest["revision"] = revision;
  manifest["commit"] = listing.commit;
  manifest["files"] = std::move(files);
  QUIRE_TRY(OutputFile out, OutputFile::open(staging + "/" + std::string(kManifestName), false));
  QUIRE_RETURN_IF_ERROR(out.write(manifest.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  return out.finish();
}

}  // namespace

bool is_hub_spec(std::string_view spec) {
  return parse_spec(spec).has_value();
}

Result<PullOutcome> pull_hub_model(const std::string& spec, const PullOptions& options) {
  const auto parsed = parse_spec(spec);
  if (!parsed) {
    return invalid(fmt::format(
        "{} is no repository: ORG/NAME, ORG/NAME:FILE.gguf or ORG/NAME:TAG is expected", shown(spec)));
  }
  QUIRE_TRY(const std::string home, quire_home());
  const std::string models = home + "/models";
  const std::string lock_name = hub_local_name(parsed->repo);
  QUIRE_TRY(const InstallLock lock, InstallLock::acquire(models, lock_name, options.cancelled, [&] {
              internal::note(options,
                             fmt::format("another pull of {} is running: waiting for it", parsed->repo));
            }));
  QUIRE_TRY(const HubListing listing, internal::list_hub_repository(parsed->repo, options.revision, options));
  QUIRE_RETURN_IF_ERROR(refuse_without_weights(listing));
  const std::string staging = staging_path(models, lock_name);
  QUIRE_RETURN_IF_ERROR(prepare_staging(staging, listing.commit + " " + parsed->file_or_tag));
  Selection selection;
  if (parsed->file_or_tag.empty() && has_top_level_safetensors(listing)) {
    QUIRE_TRY(selection, select_safetensors(listing, staging, options));
  } else {
    QUIRE_TRY(selection, select_gguf(listing, parsed->file_or_tag));
  }
  PullOutcome out;
  out.name = selection.local_name;
  QUIRE_TRY(out.path, model_folder_path(selection.local_name));
  if (!options.force && is_installed(out.path, listing.commit, options, &out.bytes)) {
    out.already_installed = true;
    std::error_code ignored;
    fs::remove_all(staging, ignored);
    return out;
  }
  if (internal::is_cancelled(options)) return internal::cancelled_error();
  std::uint64_t total = 0;
  for (const HubFileInfo* file : selection.files) total += file->size;
  QUIRE_RETURN_IF_ERROR(check_free_space(staging, total));
  Json files = Json::array();
  out.bytes = 0;
  for (const HubFileInfo* file : selection.files) {
    // GGUF files lie flat in their folder, whatever folder of the repository they come from.
    const std::string local =
        ends_with(file->path, ".gguf") ? fs::path(file->path).filename().string() : file->path;
    const std::string path = staging + "/" + local;
    std::error_code error;
    internal::FetchedFile fetched;
    if (file->has_size && fs::file_size(path, error) == file->size && !error) {
      // Finished by an earlier run that was interrupted, or the index.
      QUIRE_TRY(fetched.sha256, file_sha256(path, options.cancelled));
      fetched.bytes = file->size;
    }
    if (fetched.sha256.empty() || (!file->sha256.empty() && fetched.sha256 != file->sha256)) {
      auto result = internal::fetch_hub_file(listing, *file, path, out.bytes, total, options);
      if (!result.ok()) {
        return make_error(result.error().code,
                          fmt::format("{} was not installed: {}", parsed->repo, result.error().message));
      }
      fetched = std::move(*result);
    }
    out.bytes += fetched.bytes;
    files.push_back(Json{{"path", local}, {"bytes", fetched.bytes}, {"sha256", fetched.sha256}});
  }
  QUIRE_RETURN_IF_ERROR(write_manifest(staging, listing, options.revision, std::move(files)));
  std::error_code ignored;
  fs::remove(staging + "/.commit", ignored);
  QUIRE_RETURN_IF_ERROR(move_into_place(staging, out.path));
  return out;
}

}  // namespace quire
