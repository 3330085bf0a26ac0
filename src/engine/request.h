// Purpose: what a connection hands to the engine: token ids in, a stream out. Made in api/submit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/kv_eviction.h"
#include "engine/sampling_params.h"
#include "engine/token_stream.h"

namespace quire {

struct TokenRequest {
  std::string id;                     // for logs and /v1/engine; not used as a key
  std::vector<std::int32_t> prompt;   // not empty, each in [0, vocab_size)
  std::vector<std::int32_t> eos_ids;  // end the output unless params.ignore_eos
  SamplingParams params;
  std::int32_t priority = 0;  // lower runs first (vLLM's sense)
  KvEviction eviction;
  std::shared_ptr<TokenStream> stream;
  std::int32_t choice = 0;  // which choice of the stream this is
};

}  // namespace quire
