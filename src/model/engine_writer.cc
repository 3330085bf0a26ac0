#include "model/engine_writer.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "model/engine_file.h"

namespace quire {
namespace {

// Written in whole huge pages at multiples of their size: then file systems that can (ext4 and xfs of
// Linux 6.16 and later, tmpfs) keep the file in huge pages, and mapping a gigabyte takes a millisecond.
constexpr std::size_t kStageBytes = std::size_t{2} << 20;
constexpr std::uint64_t kPage = 4096;
// Between the name to be and the process that writes.
constexpr std::string_view kWriting = ".writing-";
// Smaller arrays lie together.
constexpr std::size_t kPageAligned = 64 << 10;

Error write_error(const std::string& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return make_error(ErrorCode::kIo, fmt::format("cannot write {}: {}{}", path, std::strerror(number),
                                                full ? "; free some space or choose another folder" : ""));
}

// Files that writers of this path left behind when they were killed.
void remove_abandoned(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path target(path);
  const std::string prefix = target.filename().string() + std::string(kWriting);
  std::error_code error;
  fs::directory_iterator it(target.has_parent_path() ? target.parent_path() : fs::path("."), error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const long pid = std::atol(name.c_str() + prefix.size());
    std::error_code ignored;
    if (pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) fs::remove(it->path(), ignored);
  }
}

// 0 or an errno.
int write_at(int fd, const void* data, std::size_t size, std::uint64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::pwrite(fd, from, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    from += count;
    offset += static_cast<std::uint64_t>(count);
    size -= static_cast<std::size_t>(count);
  }
  return 0;
}

// Writes table and header; the table becomes the end of the file. 0 or an errno.
int write_end(int fd, const EngineTable& table, std::uint64_t table_offset, bool durable) {
  const std::string text = engine_table_to_json(table);
  EngineHeader header{};
  std::memcpy(header.magic, kEngineMagic, sizeof(kEngineMagic));
  header.version = kEngineFormatVersion;
  header.byte_order = kEngineByteOrder;
  header.table_offset = table_offset;
  header.table_bytes = text.size();
  header.table_checksum = engine_checksum(std::as_bytes(std::span(text.data(), text.size())));
  header.file_bytes = table_offset + text.size();
  header.header_checksum =
      engine_checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(EngineHeader, header_checksum)));
  if (!durable) header.boot_id = current_boot_id();
  int failed = write_at(fd, text.data(), text.size(), table_offset);
  if (failed == 0 && ::ftruncate(fd, static_cast<off_t>(header.file_bytes)) != 0) failed = errno;
  if (failed == 0) failed = write_at(fd, &header, sizeof(header), 0);
  if (failed == 0 && durable && ::fsync(fd) != 0) failed = errno;
  return failed;
}

}  // namespace

Result<std::unique_ptr<EngineWriter>> EngineWriter::create(const std::string& path) {
  static std::atomic<int> counter{0};
  remove_abandoned(path);
  const std::string temporary = fmt::format("{}{}{}-{}", path, kWriting, ::getpid(), counter.fetch_add(1));
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return write_error(temporary, errno);
  return std::unique_ptr<EngineWriter>(new EngineWriter(path, temporary, fd));
}

EngineWriter::EngineWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), stage_(kStageBytes) {
  // The header's page is filled in last.
  staged_ = kEngineHeaderBytes;
  position_ = kEngineHeaderBytes;
  thread_ = std::thread([this] { work(); });
}

EngineWriter::~EngineWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.clear();
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void EngineWriter::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    if (error_number_ == 0 && problem_.empty()) job();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void EngineWriter::enqueue(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void EngineWriter::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void EngineWriter::flush() {
  if (staged_ == 0 || error_number_ != 0) return;
  const std::uint64_t offset = position_ - staged_;
  error_number_ = write_at(fd_, std::as_const(stage_).data(), staged_, offset);
  // The disk begins at once, so that no later sync waits for all of it.
  if (error_number_ == 0)
    ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(staged_), SYNC_FILE_RANGE_WRITE);
  staged_ = 0;
}

void EngineWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kStageBytes - staged_);
    std::memcpy(stage_.data() + staged_, bytes.data(), count);
    staged_ += count;
    position_ += count;
    bytes = bytes.subspan(count);
    if (staged_ == kStageBytes) flush();
  }
}

EngineArray EngineWriter::write_array(const std::string& name, std::span<const std::byte> bytes) {
  static constexpr std::byte kZeros[kPage] = {};
  const std::uint64_t alignment = bytes.size() >= kPageAligned ? kPage : kBufferAlignment;
  append(std::span(kZeros).first((alignment - position_ % alignment) % alignment));
  const EngineArray array{name, position_, bytes.size(), engine_checksum(bytes)};
  append(bytes);
  return array;
}

void EngineWriter::add_weight(const std::string& name, const PackedWeight& weight) {
  enqueue([this, name, &weight] {
    const PackedImage image = weight.image();
    if (image.kind.empty()) {
      problem_ = fmt::format("weight {} ({}) has no stored form", name, weight.layout_name());
      return;
    }
    EngineWeight stored{name, image.kind, image.text, image.numbers, {}};
    for (const PackedImage::Array& array : image.arrays)
      stored.arrays.push_back(write_array(array.name, array.bytes));
    table_.weights.push_back(std::move(stored));
  });
}

void EngineWriter::add_vector(const std::string& name, std::span<const float> values) {
  enqueue([this, name, copy = std::vector<float>(values.begin(), values.end())] {
    table_.vectors.push_back(write_array(name, std::as_bytes(std::span(copy))));
  });
}

void EngineWriter::add_checkpoint(const Checkpoint& checkpoint) {
  EngineCheckpoint stored;
  stored.name = checkpoint.name;
  stored.format = checkpoint.format;
  stored.gguf_version = checkpoint.gguf_version;
  stored.total_bytes = checkpoint.total_bytes;
  for (const TensorView& tensor : checkpoint.tensors->tensors())
    stored.tensors.push_back({tensor.name, tensor.type, tensor.shape});
  std::vector<std::pair<std::string, std::string>> texts = {
      {"config.json", checkpoint.config_json},
      {"generation_config.json", checkpoint.generation_config_json},
      {"tokenizer.json", checkpoint.tokenizer_json},
      {"tokenizer_config.json", checkpoint.tokenizer_config_json},
      {"chat_template.jinja", checkpoint.chat_template_jinja}};
  const auto files = checkpoint.tensors->files();
  if (checkpoint.format == CheckpointFormat::kGguf && !files.empty()) {
    // A GGUF file without tensors: its head (magic, version, number of tensors, number of keys) with no
    // tensors, and the keys as they are.
    const auto head = files[0]->bytes().first(checkpoint.gguf_metadata_end);
    std::string text(reinterpret_cast<const char*>(head.data()), head.size());
    constexpr std::size_t kNumTensorsAt = 8;
    std::memset(text.data() + kNumTensorsAt, 0, sizeof(std::uint64_t));
    texts.emplace_back("gguf metadata", std::move(text));
  }
  enqueue([this, stored = std::move(stored), texts = std::move(texts)] {
    table_.checkpoint = stored;
    for (const auto& [name, text] : texts) {
      if (!text.empty())
        table_.texts.push_back(write_array(name, std::as_bytes(std::span(text.data(), text.size()))));
    }
  });
}

Status EngineWriter::finish(const EngineKey& key, const EngineInfo& info, bool durable) {
  QUIRE_CHECK_GE(fd_, 0) << "finish() twice";
  enqueue([this] { flush(); });
  wait();
  if (!problem_.empty()) return make_error(ErrorCode::kUnsupported, problem_);
  table_.key = key;
  table_.info = info;
  if (error_number_ == 0) error_number_ = write_end(fd_, table_, position_, durable);
  if (error_number_ == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error_number_ = errno;
  if (error_number_ != 0) return write_error(path_, error_number_);
  ::close(fd_);
  fd_ = -1;
  if (durable) {
    std::string folder = std::filesystem::path(path_).parent_path().string();
    const int folder_fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd >= 0) {
      ::fsync(folder_fd);  // some file systems refuse this on a folder; the rename itself has been done
      ::close(folder_fd);
    }
  }
  return {};
}

Status replace_engine_info(const std::string& path, const EngineInfo& info) {
  EngineTable table;
  std::uint64_t table_offset = 0;
  {
    QUIRE_TRY(const auto file, EngineFile::open(path));
    table = file->table();
    table_offset = file->table_offset();
  }
  table.info = info;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return write_error(path, errno);
  const int failed = write_end(fd, table, table_offset, true);
  ::close(fd);
  if (failed != 0) return write_error(path, failed);
  return {};
}

}  // namespace quire
