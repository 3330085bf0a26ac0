#include "model/engine_format.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>

namespace quire {
namespace {

constexpr std::size_t kSampledEnd = 64 << 10;
constexpr std::size_t kSampledPage = 4096;
constexpr std::size_t kSampledPages = 64;

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;  // odd: multiplying by it loses nothing

std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 32);
}

std::uint64_t text_checksum(std::string_view text) {
  return engine_checksum(std::as_bytes(std::span(text.data(), text.size())));
}

std::uint64_t sample_file(std::span<const std::byte> bytes) {
  if (bytes.size() <= 2 * kSampledEnd + kSampledPages * kSampledPage) return engine_checksum(bytes);
  std::uint64_t state =
      mix(engine_checksum(bytes.first(kSampledEnd)), engine_checksum(bytes.last(kSampledEnd)));
  const std::size_t step = bytes.size() / (kSampledPages + 1);
  for (std::size_t i = 1; i <= kSampledPages; ++i) {
    state = mix(state, engine_checksum(bytes.subspan(i * step, kSampledPage)));
  }
  return state;
}

}  // namespace

// Eight independent lanes, so that the multiplications overlap: as fast as memory.
std::uint64_t engine_checksum(std::span<const std::byte> bytes) {
  constexpr std::size_t kLanes = 8;
  std::uint64_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = (i + 1) * kMultiplier;
  const std::byte* data = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof(lanes); left -= sizeof(lanes), data += sizeof(lanes)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, data, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  std::uint64_t state = bytes.size();
  for (const std::uint64_t lane : lanes) state = mix(state, lane);
  while (left > 0) {
    const std::size_t count = std::min<std::size_t>(left, 8);
    std::uint64_t word = 0;
    std::memcpy(&word, data, count);
    state = mix(state, word);
    data += count;
    left -= count;
  }
  return state;
}

std::array<std::uint8_t, 16> current_boot_id() {
  std::array<std::uint8_t, 16> id{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  std::erase(text, '-');
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return id;
  for (std::size_t i = 0; i < id.size(); ++i) {
    id[i] = static_cast<std::uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

EngineKey make_engine_key(const Checkpoint& checkpoint, const Backend& backend,
                          std::optional<DType> hold_as) {
  EngineKey key;
  key.packing = backend.packing_key();
  key.weights = hold_as.has_value() ? std::string(dtype_name(*hold_as)) : "as in the file";
  std::uint64_t state = text_checksum(checkpoint.config_json);
  for (const auto& file : checkpoint.tensors->files()) {
    std::error_code error;
    const auto real = std::filesystem::canonical(file->path(), error);
    key.files.push_back({error ? file->path() : real.string(), file->identity()});
    state = mix(state, sample_file(file->bytes()));
  }
  key.content = fmt::format("{:016x}", state);
  return key;
}

std::string engine_key_difference(const EngineKey& stored, const EngineKey& wanted) {
  if (stored.packing != wanted.packing)
    return fmt::format("it is for ({}), not for ({})", stored.packing, wanted.packing);
  if (stored.weights != wanted.weights)
    return fmt::format("it holds weights {}, not {}", stored.weights, wanted.weights);
  if (stored.files.size() != wanted.files.size())
    return fmt::format("the checkpoint had {} files, not {}", stored.files.size(), wanted.files.size());
  for (std::size_t i = 0; i < stored.files.size(); ++i) {
    const auto& [path, identity] = stored.files[i];
    if (path != wanted.files[i].path) return fmt::format("it was made from {}", path);
    if (identity != wanted.files[i].identity) {
      return fmt::format(
          "{} has changed since{}", path,
          identity.bytes == wanted.files[i].identity.bytes
              ? ""
              : fmt::format(" ({} bytes then, {} now)", identity.bytes, wanted.files[i].identity.bytes));
    }
  }
  if (stored.content != wanted.content) return "the checkpoint's content has changed";
  return {};
}

}  // namespace quire
