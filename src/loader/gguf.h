// Purpose: read one GGUF file (version 2 or 3, little-endian): metadata and tensor views, every count,
// length, offset and type checked against the bytes that are there before it is used. In: the bytes of a
// file, or its path. Out: GgufFile. Thread: plain values. Out of scope: what the keys mean (text/, model/),
// what a block type holds (quant/). Layout: the GGUF specification of the ggml project (docs/gguf.md there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/metadata.h"
#include "base/result.h"
#include "loader/tensor_source.h"

namespace quire {

struct GgufFile {
  std::uint32_t version = 0;
  Metadata metadata;
  std::size_t metadata_end = 0;     // where the metadata pairs end and the list of tensors begins
  std::vector<TensorView> tensors;  // views into the bytes given
};

// Bounds of what is read. They are far above any real file; they keep a damaged or hostile one from filling
// memory.
inline constexpr std::uint64_t kGgufMaxKeyBytes = 65535;                      // the specification's own limit
inline constexpr std::uint64_t kGgufMaxNameBytes = 1024;                      // ggml itself stops at 64
inline constexpr std::uint64_t kGgufMaxDims = 4;                              // the specification's limit
inline constexpr std::uint64_t kGgufMaxArrayValues = std::uint64_t{1} << 26;  // of all arrays together

// file_name is used in messages only.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& file_name);

// A set of files made by gguf-split: PREFIX-00001-of-00003.gguf.
struct GgufShardName {
  std::string prefix;  // with the folder
  int number = 0;      // from 1
  int count = 0;
  std::string path_of(int shard_number) const;
};
// Returns false if the path does not have that form.
bool parse_gguf_shard_name(const std::string& path, GgufShardName* out);

// The file at path and, if it is one of a set, all files of the set (from any one of them).
struct GgufCheckpoint {
  std::uint32_t version = 0;
  Metadata metadata;             // of the first file
  std::size_t metadata_end = 0;  // in the first file
  std::unique_ptr<TensorSource> tensors;
};
Result<GgufCheckpoint> open_gguf(const std::string& path);

}  // namespace quire
