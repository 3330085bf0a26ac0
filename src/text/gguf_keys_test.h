// Test support: the key-value section of a GGUF file, just enough to feed load_tokenizer_gguf (the real
// reader is in loader/, which this room may not include). Not for damaged files.
#pragma once

#include <optional>
#include <string>

#include "base/metadata.h"

namespace quire {

std::optional<Metadata> read_gguf_keys_for_test(const std::string& path);

}  // namespace quire
