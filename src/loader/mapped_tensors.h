// Purpose: the TensorSource of files that are mapped: views of their bytes, an index by name, the mappings
// kept alive. In: views that a reader has checked. Out: TensorSource. Thread: immutable once built. Out of
// scope: reading a format (gguf.h, safetensors.h).
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "loader/tensor_source.h"

namespace quire {

class MappedTensors : public TensorSource {
 public:
  // Refuses two tensors of one name, naming both files (file_of[i] is the file of tensors[i], an index into
  // files).
  static Result<std::unique_ptr<MappedTensors>> create(std::vector<std::shared_ptr<const MappedFile>> files,
                                                       std::vector<TensorView> tensors,
                                                       const std::vector<std::size_t>& file_of);
  const TensorView* find(std::string_view name) const override;
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  std::vector<std::shared_ptr<const MappedFile>> files() const override { return files_; }

 private:
  MappedTensors(std::vector<std::shared_ptr<const MappedFile>> files, std::vector<TensorView> tensors)
      : files_(std::move(files)), tensors_(std::move(tensors)) {}
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into tensors_
};

}  // namespace quire
