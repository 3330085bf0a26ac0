// Purpose: the files of a checkpoint folder, and only those: a name from an index, or a symbolic link, that
// leads out of the folder's real tree is refused before anything is opened. The real tree is the folder with
// its own links resolved. One shape is wider: in a Hugging Face cache, where a snapshot holds links to
// ../../blobs, it is the enclosing models--ORG--NAME folder. Thread: immutable. Out of scope: what the files
// hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

class ModelFolder {
 public:
  static Result<ModelFolder> open(const std::string& path);
  // The real path of the file that name (relative, '/' allowed) stands for. kNotFound if there is none.
  Result<std::string> resolve(std::string_view name) const;
  // The text of a file; "" if there is none.
  Result<std::string> read_optional(std::string_view name, std::size_t max_bytes) const;
  // Names of the regular files directly in the folder, sorted.
  const std::vector<std::string>& file_names() const { return file_names_; }
  const std::string& path() const { return path_; }  // as given
  // ORG/NAME's last part in a Hugging Face cache, else the folder's own name.
  std::string model_name() const;

 private:
  std::string path_;
  std::string real_;  // path_, resolved
  std::string tree_;  // real_, or the cache folder around it
  std::vector<std::string> file_names_;
};

}  // namespace quire
