// Purpose: read safetensors files, alone or as the shards of an index, every number checked against the file.
// In: the bytes of a file, or a folder. Out: tensor views. Their bytes may be unaligned for their type (the
// format aligns only the header): copy, do not cast, or check.
// Policy, stricter than some readers: the data must be covered exactly, without holes, overlaps or trailing
// bytes; names are unique.
// Thread: plain values. Out of scope: config.json, what the names mean (model/).
// Layout: the format section of the safetensors project's README.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loader/model_folder.h"
#include "loader/tensor_source.h"

namespace quire {

// The reference implementation's cap on the header.
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

// file_name is used in messages only. Tensors come out in the order of their data.
Result<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& file_name);

// weight_map of an index: tensor name -> file name, in the index's words (not yet checked to be inside).
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   const std::string& file_name);

// One file.
Result<std::unique_ptr<TensorSource>> open_safetensors_file(const std::string& path);

// Whether the folder holds safetensors, and the tensors of all: model.safetensors, else the index
// model.safetensors.index.json with its shards, else the only *.safetensors file or index that is there.
bool has_safetensors(const ModelFolder& folder);
Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const ModelFolder& folder);

}  // namespace quire
