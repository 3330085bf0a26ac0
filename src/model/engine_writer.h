// Purpose: write an engine file (engine_format.h) while a model is loaded. In: weights as they are packed.
// Out: a file under its name, complete, or none: it is written under another name in the same folder and
// renamed, so several writers do not meet and a reader sees the old file or the new one. Thread: one caller;
// a thread of its own does the writing, so that it overlaps with packing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/packed_weight.h"
#include "base/buffer.h"
#include "base/result.h"
#include "model/engine_format.h"

namespace quire {

class EngineWriter {
 public:
  // The folder must exist.
  static Result<std::unique_ptr<EngineWriter>> create(const std::string& path);
  ~EngineWriter();  // what was not finished goes away
  EngineWriter(const EngineWriter&) = delete;
  EngineWriter& operator=(const EngineWriter&) = delete;

  // The weight must live until wait() has returned. What fails is told by finish().
  void add_weight(const std::string& name, const PackedWeight& weight);
  void add_vector(const std::string& name, std::span<const float> values);
  // All of the checkpoint that is not weights, so that the file can replace it.
  void add_checkpoint(const Checkpoint& checkpoint);
  void wait();
  // The table, the header, the name. durable: synced to the disk first; else the file is marked with this
  // boot (EngineHeader::boot_id).
  Status finish(const EngineKey& key, const EngineInfo& info, bool durable);
  std::uint64_t num_bytes() const { return position_; }  // after wait()

 private:
  EngineWriter(std::string path, std::string temporary, int fd);
  void work();
  void enqueue(std::function<void()> job);
  EngineArray write_array(const std::string& name, std::span<const std::byte> bytes);
  void append(std::span<const std::byte> bytes);
  void flush();

  const std::string path_;
  const std::string temporary_;
  int fd_;
  EngineTable table_;
  // Of the writing thread.
  Buffer stage_;
  std::size_t staged_ = 0;
  std::uint64_t position_ = 0;  // staged bytes included
  int error_number_ = 0;        // the first failed write; nothing is written after it
  std::string problem_;         // another reason to give up

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// Puts another info into a finished file that nobody has mapped, and syncs it to the disk.
Status replace_engine_info(const std::string& path, const EngineInfo& info);

}  // namespace quire
