// Purpose: an engine file (engine_format.h), mapped: packed weights without packing. Every offset, size and
// number is checked before it is used. The file must not be written to while it is mapped; writers replace it
// by a rename. Owner: the weights keep the mapping alive. Thread: immutable; prefetch() has a thread of its
// own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "loader/checkpoint.h"
#include "model/engine_format.h"

namespace quire {

class EngineFile {
 public:
  // kNotFound: there is no such file. kInvalid: it is no engine file, of another version, cut short or
  // damaged.
  static Result<std::unique_ptr<EngineFile>> open(const std::string& path);
  ~EngineFile();
  EngineFile(const EngineFile&) = delete;
  EngineFile& operator=(const EngineFile&) = delete;

  const std::string& path() const { return file_->path(); }
  std::uint64_t file_bytes() const { return file_->bytes().size(); }
  const EngineTable& table() const { return table_; }
  std::uint64_t table_offset() const { return header_.table_offset; }  // the arrays end before it

  // Has the system read the arrays, in their order, while the caller goes on: the first tokens then wait for
  // no page.
  void prefetch();
  // Compares every array with its checksum, on the pool. The error names the first that differs.
  Status verify(ThreadPool& pool) const;
  // Whether the file was written without a sync, and the machine was started since: then verify() comes
  // first.
  bool may_have_lost_pages() const;
  // Notes that verify() has passed during this boot, if the file can be written to.
  void note_verified() const;

  // The packed weight and the vector that were added under this name; `occurrence` counts weights of one
  // name.
  Result<std::unique_ptr<PackedWeight>> weight(const std::string& name, int occurrence,
                                               Backend& backend) const;
  Result<std::vector<float>> vector(const std::string& name) const;

  // The checkpoint that the file replaces: metadata, side files and descriptions of the tensors, without
  // their data. kUnsupported if the file was made to lie beside its checkpoint.
  Result<std::unique_ptr<Checkpoint>> checkpoint() const;

 private:
  explicit EngineFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  Status read_table();
  std::span<const std::byte> bytes_of(const EngineArray& array) const {
    return file_->bytes().subspan(array.offset, array.bytes);
  }
  template <typename F>
  void for_arrays(const F& f) const;

  std::shared_ptr<const MappedFile> file_;
  EngineHeader header_{};
  EngineTable table_;
  std::unordered_map<std::string, std::vector<const EngineWeight*>> weights_;
  std::unordered_map<std::string, const EngineArray*> vectors_;
  std::jthread prefetcher_;
};

}  // namespace quire
