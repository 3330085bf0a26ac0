#include "model/engine_file.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "loader/gguf.h"

namespace quire {
namespace {

// The tensors of a checkpoint that is not there: names, types and shapes.
class DescribedTensors final : public TensorSource {
 public:
  explicit DescribedTensors(const EngineCheckpoint& checkpoint) {
    for (const auto& tensor : checkpoint.tensors)
      views_.push_back({tensor.name, tensor.type, tensor.shape, {}});
    for (const TensorView& view : views_) index_.emplace(view.name, &view);
  }
  const TensorView* find(std::string_view name) const override {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : it->second;
  }
  const std::vector<TensorView>& tensors() const override { return views_; }

 private:
  std::vector<TensorView> views_;
  std::unordered_map<std::string_view, const TensorView*> index_;
};

std::uint64_t header_checksum(const EngineHeader& header) {
  return engine_checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(EngineHeader, header_checksum)));
}

Error damaged(const std::string& path, const std::string& what) {
  return invalid(fmt::format("{}: {}: build it again with `quire build`", path, what));
}

}  // namespace

Result<std::unique_ptr<EngineFile>> EngineFile::open(const std::string& path) {
  QUIRE_TRY(auto mapped, MappedFile::open(path));
  std::unique_ptr<EngineFile> file(new EngineFile(std::move(mapped)));
  QUIRE_RETURN_IF_ERROR(file->read_table());
  return file;
}

EngineFile::~EngineFile() = default;

template <typename F>
void EngineFile::for_arrays(const F& f) const {
  for (const EngineWeight& weight : table_.weights) {
    for (const EngineArray& array : weight.arrays) f(weight.name, array);
  }
  for (const EngineArray& array : table_.vectors) f(array.name, array);
  for (const EngineArray& array : table_.texts) f(array.name, array);
}

Status EngineFile::read_table() {
  const auto bytes = file_->bytes();
  const std::string& path = file_->path();
  if (bytes.size() >= sizeof(kEngineMagic) &&
      std::memcmp(bytes.data(), kEngineMagic, sizeof(kEngineMagic)) != 0)
    return invalid(fmt::format("{} is not an engine file", path));
  if (bytes.size() < kEngineHeaderBytes) return damaged(path, "the engine file is cut short");
  std::memcpy(&header_, bytes.data(), sizeof(header_));
  if (header_.byte_order != kEngineByteOrder)
    return damaged(path, "the engine file is from a machine of another byte order");
  if (header_.version != kEngineFormatVersion) {
    return damaged(path, fmt::format("the engine file has format version {}, this program reads {}",
                                     header_.version, kEngineFormatVersion));
  }
  if (header_.header_checksum != header_checksum(header_))
    return damaged(path, "the engine file's header is damaged");
  if (header_.file_bytes != bytes.size()) {
    return damaged(
        path, fmt::format("the engine file is cut short: {} bytes of {}", bytes.size(), header_.file_bytes));
  }
  if (header_.table_offset < kEngineHeaderBytes || header_.table_offset > bytes.size() ||
      header_.table_bytes != bytes.size() - header_.table_offset) {
    return damaged(path, "the engine file's header is damaged");
  }
  const auto text = bytes.subspan(header_.table_offset);
  if (engine_checksum(text) != header_.table_checksum)
    return damaged(path, "the engine file's table is damaged");
  QUIRE_TRY(table_, engine_table_from_json({reinterpret_cast<const char*>(text.data()), text.size()}, path));

  bool inside = true;
  for_arrays([&](const std::string&, const EngineArray& array) {
    inside = inside && array.offset % kBufferAlignment == 0 && array.offset >= kEngineHeaderBytes &&
             array.offset <= header_.table_offset && array.bytes <= header_.table_offset - array.offset;
  });
  if (!inside) return damaged(path, "the engine file's table names arrays outside the file");
  for (const EngineWeight& weight : table_.weights) weights_[weight.name].push_back(&weight);
  for (const EngineArray& array : table_.vectors) vectors_[array.name] = &array;
  return {};
}

void EngineFile::prefetch() {
  prefetcher_ = std::jthread([file = file_](const std::stop_token& stop) {
    // Steps of one huge page multiple, so that stopping does not wait for the whole file.
    constexpr std::size_t kStep = std::size_t{32} << 20;
    auto* data = const_cast<std::byte*>(file->bytes().data());
    const std::size_t size = file->bytes().size();
    madvise(data, size, MADV_HUGEPAGE);  // where the file system keeps files in huge pages
    for (std::size_t at = 0; at < size && !stop.stop_requested(); at += kStep) {
      const std::size_t count = std::min(kStep, size - at);
      madvise(data + at, count, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
      if (madvise(data + at, count, MADV_POPULATE_READ) == 0) continue;
#endif
      // Linux before 5.14: touch a byte of each page.
      for (std::size_t i = at; i < at + count; i += 4096) {
        static_cast<void>(*const_cast<const volatile std::byte*>(data + i));
      }
    }
  });
}

Status EngineFile::verify(ThreadPool& pool) const {
  std::vector<std::pair<const std::string*, const EngineArray*>> arrays;
  for_arrays([&](const std::string& name, const EngineArray& array) { arrays.emplace_back(&name, &array); });
  std::atomic<std::size_t> first_bad{arrays.size()};
  pool.run(static_cast<std::int64_t>(arrays.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (engine_checksum(bytes_of(*arrays[at].second)) == arrays[at].second->checksum) return;
    std::size_t seen = first_bad.load();
    while (at < seen && !first_bad.compare_exchange_weak(seen, at)) {
    }
  });
  if (first_bad == arrays.size()) return {};
  const auto& [name, array] = arrays[first_bad];
  return damaged(path(), fmt::format("the data of {}{} is damaged", *name,
                                     array->name == *name ? "" : " (" + array->name + ")"));
}

bool EngineFile::may_have_lost_pages() const {
  constexpr std::array<std::uint8_t, 16> kSynced{};
  return header_.boot_id != kSynced && header_.boot_id != current_boot_id();
}

void EngineFile::note_verified() const {
  const int fd = ::open(path().c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;  // a cache that cannot be written to: compared again at the next start
  const auto boot = current_boot_id();
  [[maybe_unused]] const ssize_t written =
      ::pwrite(fd, boot.data(), boot.size(), offsetof(EngineHeader, boot_id));
  ::close(fd);
}

Result<std::unique_ptr<PackedWeight>> EngineFile::weight(const std::string& name, int occurrence,
                                                         Backend& backend) const {
  const auto it = weights_.find(name);
  if (it == weights_.end() || static_cast<std::size_t>(occurrence) >= it->second.size())
    return damaged(path(), fmt::format("the engine file has no weight {}", name));
  const EngineWeight& stored = *it->second[static_cast<std::size_t>(occurrence)];
  PackedImage image;
  image.kind = stored.kind;
  image.text = stored.text;
  image.numbers = stored.numbers;
  for (const EngineArray& array : stored.arrays) image.arrays.push_back({array.name, bytes_of(array)});
  auto weight = backend.restore(image, file_);
  if (weight.ok()) return weight;
  Error error = weight.error();
  error.message = fmt::format("{}: {}: {}", path(), name, error.message);
  return error;
}

Result<std::vector<float>> EngineFile::vector(const std::string& name) const {
  const auto it = vectors_.find(name);
  if (it == vectors_.end()) return damaged(path(), fmt::format("the engine file has no vector {}", name));
  const auto bytes = bytes_of(*it->second);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Result<std::unique_ptr<Checkpoint>> EngineFile::checkpoint() const {
  if (!table_.checkpoint.has_value()) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} holds weights only: it serves together with the checkpoint it was made "
                                  "from; `quire build` writes files that need none",
                                  path()));
  }
  const EngineCheckpoint& stored = *table_.checkpoint;
  auto out = std::make_unique<Checkpoint>();
  out->path = path();
  out->name = stored.name;
  out->format = stored.format;
  out->gguf_version = stored.gguf_version;
  out->total_bytes = stored.total_bytes;
  out->tensors = std::make_unique<DescribedTensors>(stored);
  const std::pair<const char*, std::string*> side_files[] = {
      {"config.json", &out->config_json},
      {"generation_config.json", &out->generation_config_json},
      {"tokenizer.json", &out->tokenizer_json},
      {"tokenizer_config.json", &out->tokenizer_config_json},
      {"chat_template.jinja", &out->chat_template_jinja}};
  for (const EngineArray& array : table_.texts) {
    const auto bytes = bytes_of(array);
    if (array.name == "gguf metadata") {
      QUIRE_TRY(GgufFile gguf, parse_gguf(bytes, path()));
      out->metadata = std::move(gguf.metadata);
    }
    for (const auto& [name, text] : side_files) {
      if (array.name == name) text->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return out;
}

}  // namespace quire
