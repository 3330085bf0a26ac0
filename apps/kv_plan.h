// Purpose: how many KV blocks to have, and why. In: flags, the model's sizes, the machine's free memory. Out:
// a number that is printed with its reason. Thread: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace quire {

struct FreeMemory {
  std::size_t bytes = 0;
  std::string reason;  // what limits it: the machine or a cgroup
};
// The smaller of MemAvailable and what every memory cgroup above this process still allows (v1 or v2).
FreeMemory detect_free_memory();

struct KvPlanInput {
  std::int64_t model_context = 0;  // tokens the model can handle
  std::int64_t max_model_len = 0;  // asked; 0 = as long as the context and the blocks allow
  std::int64_t max_num_seqs = 0;
  std::int64_t block_size = 0;
  std::size_t block_bytes = 0;   // of all layers
  std::int64_t num_blocks = 0;   // asked; 0 = by memory
  std::size_t memory_bytes = 0;  // asked; 0 = by free memory
  FreeMemory free;
};

struct KvPlan {
  std::int64_t num_blocks = 0;
  std::int64_t max_model_len = 0;
  std::string reason;
};
Result<KvPlan> plan_kv(const KvPlanInput& input);

std::string memory_text(std::size_t bytes);  // "1.5 GiB"

}  // namespace quire
