// Purpose: what is in an engine file, as plain values: packed weights that a later start maps instead of
// packing again. Layout (little-endian): a header of one page; arrays, each at a multiple of 64 bytes, of
// 4096 if it is large; then the table, a JSON text that names the arrays. The header has the table's place
// and checksum, the table has the arrays'. Readers: engine_file.h, writer: engine_writer.h. Thread: plain
// values. Out of scope: what a kind of weight means by its numbers (backend/), where cached files lie
// (apps/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "loader/checkpoint.h"

namespace quire {

// To be raised when the header or the table changes, or what a name in the table stands for.
inline constexpr std::uint32_t kEngineFormatVersion = 1;
inline constexpr std::size_t kEngineHeaderBytes = 4096;

struct EngineHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t byte_order;  // kEngineByteOrder as this machine writes it
  std::uint64_t file_bytes;
  std::uint64_t table_offset;
  std::uint64_t table_bytes;
  std::uint64_t table_checksum;
  std::uint64_t header_checksum;  // of all before it
  // The boot during which the file was written, or its arrays were last compared with their checksums; zeros:
  // it was synced to the disk before it got its name. A file of an earlier boot may have lost pages in a
  // crash.
  std::array<std::uint8_t, 16> boot_id;
};
inline constexpr char kEngineMagic[8] = {'Q', 'u', 'i', 'r', 'e', 'E', 'n', 'g'};
inline constexpr std::uint32_t kEngineByteOrder = 0x01020304;

// What an engine file was made from and for. A file serves only where every part is the same.
struct EngineKey {
  struct Source {
    std::string path;  // with links resolved
    FileIdentity identity;
    friend bool operator==(const Source&, const Source&) = default;
  };
  std::string packing;  // Backend::packing_key(): layout version, instruction set, compute mode
  std::string weights;  // how they are held: "as in the file" or a type
  std::vector<Source> files;
  // Of config.json and samples of every file: 64 KiB at both ends and 64 pages between. It finds another
  // checkpoint under the same path with the same size and time. A change of a few bytes in place, with the
  // time set back, gets past it; whoever does that has to delete the engine file.
  std::string content;
};
EngineKey make_engine_key(const Checkpoint& checkpoint, const Backend& backend, std::optional<DType> hold_as);
// "" if a file with key `stored` serves where `wanted` is asked for, else what differs, in words.
std::string engine_key_difference(const EngineKey& stored, const EngineKey& wanted);

// What `quire build` was asked for and found. Zero or empty: not given.
struct EngineInfo {
  struct Measurement {
    std::string what;  // "decode, 1 sequence"
    std::int64_t num_tokens = 0;
    double default_ms = 0;
    double tuned_ms = 0;
  };
  std::string quire_version;
  std::string compute;  // compute mode
  std::string dtype;    // type that weights are held as; "" = as in the file
  std::int64_t max_batch_size = 0;
  std::int64_t max_input_len = 0;
  std::int64_t max_output_len = 0;
  std::uint64_t workspace_bytes = 0;  // activations of the largest step
  std::optional<CpuTuning> tuning;
  int tuned_threads = 0;  // threads that it was measured with
  std::vector<Measurement> measurements;
};

struct EngineArray {
  std::string name;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};
struct EngineWeight {
  std::string name;  // of the tensor in the checkpoint
  std::string kind;
  std::string text;
  std::vector<std::pair<std::string, std::int64_t>> numbers;
  std::vector<EngineArray> arrays;
};
// A checkpoint that the file replaces: its texts are arrays of the table, of its tensors only the
// descriptions stay.
struct EngineCheckpoint {
  struct Tensor {
    std::string name;
    TensorType type = TensorType::kF32;
    std::vector<std::int64_t> shape;
  };
  std::string name;
  CheckpointFormat format = CheckpointFormat::kGguf;
  std::uint32_t gguf_version = 0;
  std::uint64_t total_bytes = 0;
  std::vector<Tensor> tensors;
};
struct EngineTable {
  EngineKey key;
  EngineInfo info;
  std::vector<EngineWeight> weights;
  std::vector<EngineArray> vectors;  // float32: norms and biases
  std::vector<EngineArray> texts;    // side files, and the metadata of a GGUF file
  std::optional<EngineCheckpoint> checkpoint;
};
std::string engine_table_to_json(const EngineTable& table);
Result<EngineTable> engine_table_from_json(std::string_view json, const std::string& file_name);

// Finds damage, is no protection against intent: a change within one 64-bit word always shows.
std::uint64_t engine_checksum(std::span<const std::byte> bytes);

// This boot of the machine; zeros if the system does not say.
std::array<std::uint8_t, 16> current_boot_id();

}  // namespace quire
