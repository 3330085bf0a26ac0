#include "apps/kv_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

namespace quire {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "max" and absent files are no limit.
std::size_t read_bytes(const std::string& path) {
  const std::string line = read_line(path);
  if (line.empty() || line.find_first_not_of("0123456789") != std::string::npos || line.size() > 18) {
    return std::numeric_limits<std::size_t>::max();
  }
  return std::stoull(line);
}

std::size_t memory_available() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    std::size_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

// A value of memory.stat, 0 if absent. Page cache that can be dropped does not use the limit up.
std::size_t stat_value(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  std::size_t value = 0;
  while (file >> key >> value) {
    if (key == name) return value;
  }
  return 0;
}

std::size_t group_left(const std::string& folder, const char* limit_file, const char* used_file,
                       const char* cache_key) {
  const std::size_t limit = read_bytes(folder + "/" + limit_file);
  // cgroup v1 writes a number near 2^63 for "none".
  if (limit > (std::size_t{1} << 60)) return std::numeric_limits<std::size_t>::max();
  const std::size_t used = read_bytes(folder + "/" + used_file);
  if (used == std::numeric_limits<std::size_t>::max()) return limit;
  const std::size_t held = used - std::min(used, stat_value(folder + "/memory.stat", cache_key));
  return limit - std::min(limit, held);
}

// Every group from this process's own up to the root can limit it.
std::size_t cgroup_left() {
  std::size_t left = std::numeric_limits<std::size_t>::max();
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (;;) {
      left = std::min(left, v2 ? group_left(root + path, "memory.max", "memory.current", "inactive_file")
                               : group_left(root + path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                            "total_inactive_file"));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return left;
}

std::int64_t blocks_for(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

}  // namespace

std::string memory_text(std::size_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1u << 20) return fmt::format("{:.1f} KiB", value / (1 << 10));
  if (bytes < 1u << 30) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.2f} GiB", value / (1 << 30));
}

FreeMemory detect_free_memory() {
  const std::size_t machine = memory_available();
  const std::size_t group = cgroup_left();
  if (group < machine) return {group, "the memory cgroup's limit"};
  return {machine, "the machine's available memory"};
}

Result<KvPlan> plan_kv(const KvPlanInput& input) {
  KvPlan plan;
  const std::int64_t longest = input.max_model_len > 0 ? input.max_model_len : input.model_context;
  if (longest > input.model_context) {
    return invalid(fmt::format("--max-model-len {} is more than this model's context of {} tokens", longest,
                               input.model_context),
                   "max-model-len");
  }
  // Slots are numbered with 32 bits.
  const std::int64_t most = std::numeric_limits<std::int32_t>::max() / input.block_size;
  const std::int64_t useful = std::min(most, input.max_num_seqs * blocks_for(longest, input.block_size));
  const auto affordable = [&](std::size_t bytes) {
    return static_cast<std::int64_t>(
        std::min<std::size_t>(bytes / input.block_bytes, static_cast<std::size_t>(most)));
  };
  if (input.num_blocks > 0) {
    if (input.num_blocks > most) {
      return invalid(fmt::format("--kv-blocks {} is more than the possible {}", input.num_blocks, most),
                     "kv-blocks");
    }
    plan.num_blocks = input.num_blocks;
    plan.reason = "--kv-blocks";
  } else if (input.memory_bytes > 0) {
    plan.num_blocks = affordable(input.memory_bytes);
    plan.reason = fmt::format("--kv-cache-memory-bytes {}", memory_text(input.memory_bytes));
  } else {
    // Half of what is free: the rest is for activations, logits, the page cache of the weights, and others.
    const std::int64_t half = affordable(input.free.bytes / 2);
    plan.num_blocks = std::min(useful, half);
    plan.reason =
        useful <= half
            ? fmt::format("enough for {} sequences of {} tokens", input.max_num_seqs, longest)
            : fmt::format("half of {}, which limits ({})", memory_text(input.free.bytes), input.free.reason);
  }
  if (plan.num_blocks < 1) {
    return make_error(ErrorCode::kTooLarge, fmt::format("no memory for the KV cache: one block takes {}",
                                                        memory_text(input.block_bytes)));
  }
  const std::int64_t tokens = plan.num_blocks * input.block_size;
  if (input.max_model_len > tokens) {
    return invalid(
        fmt::format(
            "--max-model-len {} does not fit in the KV cache of {} blocks, {} tokens ({}); give it more "
            "with --kv-cache-memory-bytes or --kv-blocks, or lower --max-model-len",
            input.max_model_len, plan.num_blocks, tokens, plan.reason),
        "max-model-len");
  }
  plan.max_model_len = std::min(longest, tokens);
  return plan;
}

}  // namespace quire
