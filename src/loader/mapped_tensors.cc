#include "loader/mapped_tensors.h"

#include <fmt/core.h>

#include "loader/show.h"

namespace quire {

Result<std::unique_ptr<MappedTensors>> MappedTensors::create(
    std::vector<std::shared_ptr<const MappedFile>> files, std::vector<TensorView> tensors,
    const std::vector<std::size_t>& file_of) {
  QUIRE_CHECK_EQ(tensors.size(), file_of.size());
  std::unique_ptr<MappedTensors> source(new MappedTensors(std::move(files), std::move(tensors)));
  source->index_.reserve(source->tensors_.size());
  for (std::size_t i = 0; i < source->tensors_.size(); ++i) {
    const std::string& name = source->tensors_[i].name;
    const auto [it, inserted] = source->index_.emplace(name, i);
    if (!inserted) {
      return invalid(fmt::format("tensor {} is in both {} and {}: the checkpoint is damaged, fetch it again",
                                 shown(name), source->files_[file_of[it->second]]->path(),
                                 source->files_[file_of[i]]->path()));
    }
  }
  return source;
}

const TensorView* MappedTensors::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace quire
