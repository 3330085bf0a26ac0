// Purpose: open what a user names (a GGUF file, or a folder in the Hugging Face layout) and hold all that is
// in it. In: a path. Out: tensors, and the texts of its side files. Every offset, size, count and type is
// checked. Thread: immutable. Out of scope: names of the catalogue (catalogue.h), what the keys mean (model/,
// text/).
#pragma once

#include <memory>
#include <string>

#include "base/metadata.h"
#include "base/result.h"
#include "loader/tensor_source.h"

namespace quire {

enum class CheckpointFormat { kGguf, kSafetensors };

struct Checkpoint {
  std::string path;  // as given
  std::string name;  // last part of the path, without .gguf: safe to show
  CheckpointFormat format = CheckpointFormat::kGguf;
  std::uint32_t gguf_version = 0;  // 2 or 3 for GGUF, else 0
  std::unique_ptr<TensorSource> tensors;
  Metadata metadata;                  // GGUF keys; empty for safetensors
  std::size_t gguf_metadata_end = 0;  // in the first file: before it are the keys, behind it the tensors
  // Hugging Face side files, "" if absent (for GGUF: all absent).
  std::string config_json;
  std::string generation_config_json;
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string chat_template_jinja;  // chat_template.jinja
  std::uint64_t total_bytes = 0;    // of tensor data
};

// allow_no_tensors: a vocabulary-only GGUF or a folder with only tokenizer files is accepted.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path, bool allow_no_tensors = false);

}  // namespace quire
