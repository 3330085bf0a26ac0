#include "apps/engine_start.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "apps/kv_plan.h"
#include "base/log.h"
#include "loader/catalogue.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// "" = off.
Result<std::string> cache_folder(const std::string& flag) {
  std::string folder = flag;
  const char* variable = std::getenv("QUIRE_ENGINE_CACHE");
  if (folder.empty() && variable != nullptr) folder = variable;
  if (folder == "off") return std::string();
  if (!folder.empty()) return folder;
  QUIRE_TRY(const std::string home, quire_home());
  return home + "/engines";
}

// The name has all that may stand side by side; the rest of the key makes the file stale.
std::string cached_name(const Checkpoint& checkpoint, const EngineKey& key) {
  std::string identity = key.packing + '\n' + key.weights;
  for (const auto& source : key.files) identity += '\n' + source.path;
  std::string name = checkpoint.name.substr(0, 80);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return fmt::format("{}-{:016x}.qengine", name,
                     engine_checksum(std::as_bytes(std::span(identity.data(), identity.size()))));
}

// Why a file as large as the checkpoint should not be written into the folder, or "". The disk keeps a
// twentieth free, or a gigabyte.
std::string space_problem(const std::string& folder, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return {};
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::uint64_t kept =
      std::min<std::uint64_t>(std::uint64_t{disk.f_blocks} * disk.f_frsize / 20, 1 << 30);
  if (free >= bytes + kept) return {};
  return fmt::format("{} has {} free, about {} are needed and {} stay free", folder, memory_text(free),
                     memory_text(bytes), memory_text(kept));
}

EngineStart begin_writing(EngineStart start, const Checkpoint& checkpoint) {
  // Writing past a limit on file sizes is then an error that is reported, not the end of the server.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string folder = fs::path(start.path).parent_path().string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    start.problem = fmt::format("cannot create {}: {}", folder, error.message());
  } else if (start.problem = space_problem(folder, checkpoint.total_bytes); start.problem.empty()) {
    auto writer = EngineWriter::create(start.path);
    if (writer.ok()) {
      start.writer = std::move(*writer);
    } else {
      start.problem = writer.error().message;
    }
  }
  if (!start.problem.empty()) log_warning("no engine file: {}", start.problem);
  return start;
}

EngineStart prepare(const std::string& cache_flag, const Checkpoint& checkpoint, Backend& backend,
                    std::optional<DType> hold_as) {
  EngineStart start;
  start.begun = std::chrono::steady_clock::now();
  const auto folder = cache_folder(cache_flag);
  if (!folder.ok()) {
    start.problem = folder.error().message;
  } else if (folder->empty()) {
    start.problem = cache_flag.empty() ? "QUIRE_ENGINE_CACHE is off" : "--engine-cache off";
  } else if (backend.packing_key().empty()) {
    start.problem = fmt::format("backend {} keeps weights as they are read", backend.name());
  }
  if (!start.problem.empty()) return start;
  start.key = make_engine_key(checkpoint, backend, hold_as);
  start.path = *folder + "/" + cached_name(checkpoint, start.key);
  start.info.quire_version = QUIRE_VERSION;
  start.info.compute = compute_mode_name(backend.compute_mode());
  start.info.dtype = hold_as.has_value() ? dtype_name(*hold_as) : "";
  return start;
}

}  // namespace

Result<std::string> engine_file_of(const ModelFlags& flags, const std::string& asked) {
  const std::string& path = flags.engine_dir.empty() ? asked : flags.engine_dir;
  std::error_code ignored;
  const std::string inside = path + "/" + kEngineFileName;
  if (fs::is_regular_file(inside, ignored)) return inside;
  if (fs::is_regular_file(path, ignored) && (!flags.engine_dir.empty() || path.ends_with(".qengine")))
    return path;
  if (flags.engine_dir.empty()) return std::string();
  return make_error(ErrorCode::kNotFound,
                    fmt::format("--engine-dir {}: there is no {}; write it with `quire build MODEL -o {}`",
                                path, fs::is_directory(path, ignored) ? inside : path, path),
                    "engine-dir");
}

ModelFlags with_engine_limits(const ModelFlags& flags, const EngineInfo& info) {
  ModelFlags out = flags;
  if (info.max_batch_size > 0 && !flags.max_num_seqs_given) out.max_num_seqs = info.max_batch_size;
  if (info.max_input_len > 0 && flags.max_model_len == "auto")
    out.max_model_len = std::to_string(info.max_input_len + info.max_output_len);
  return out;
}

Status check_built_engine(const EngineFile& file, const Checkpoint& checkpoint, Backend& backend,
                          std::optional<DType> hold_as) {
  EngineKey wanted = file.table().key;
  const EngineKey own = make_engine_key(checkpoint, backend, hold_as);
  wanted.packing = own.packing;
  wanted.weights = own.weights;
  const std::string difference = engine_key_difference(file.table().key, wanted);
  if (difference.empty()) return {};
  return invalid(
      fmt::format("{}: {}; build it again with these flags on this machine", file.path(), difference),
      "engine-dir");
}

std::vector<std::string> engine_info_lines(const EngineInfo& info) {
  std::vector<std::string> lines;
  if (info.max_batch_size > 0 || info.max_input_len > 0) {
    lines.push_back(fmt::format("built for {} sequences, inputs of {} and outputs of {} tokens, workspace {}",
                                info.max_batch_size, info.max_input_len, info.max_output_len,
                                memory_text(info.workspace_bytes)));
  }
  if (!info.tuning.has_value()) return lines;
  lines.push_back(fmt::format("tuned with {} threads: panels of {} rows, {} parts per thread of {} to {}",
                              info.tuned_threads, info.tuning->panel_rows, info.tuning->parts_per_thread,
                              memory_text(static_cast<std::size_t>(info.tuning->min_part_bytes)),
                              memory_text(static_cast<std::size_t>(info.tuning->max_part_bytes))));
  for (const auto& measured : info.measurements) {
    lines.push_back(fmt::format("tuned {}: {:.2f} ms, {:.2f} ms by default ({:+.1f}%)", measured.what,
                                measured.tuned_ms, measured.default_ms,
                                100 * (measured.tuned_ms / measured.default_ms - 1)));
  }
  return lines;
}

EngineStart start_from_cache(const std::string& cache_flag, const Checkpoint& checkpoint, Backend& backend,
                             std::optional<DType> hold_as) {
  EngineStart start = prepare(cache_flag, checkpoint, backend, hold_as);
  if (!start.problem.empty()) return start;
  auto opened = EngineFile::open(start.path);
  if (!opened.ok()) {
    if (opened.error().code != ErrorCode::kNotFound)
      log_warning("{}; packing the weights again", opened.error().message);
    return begin_writing(std::move(start), checkpoint);
  }
  const std::string difference = engine_key_difference((*opened)->table().key, start.key);
  if (!difference.empty()) {
    log_warning("{} is out of date: {}; packing the weights again", start.path, difference);
    return begin_writing(std::move(start), checkpoint);
  }
  if ((*opened)->may_have_lost_pages()) {
    const Status intact = (*opened)->verify(backend.pool());
    if (!intact.ok()) {
      log_warning("{}; packing the weights again", intact.error().message);
      return begin_writing(std::move(start), checkpoint);
    }
    (*opened)->note_verified();
  }
  start.file = std::move(*opened);
  return start;
}

EngineStart replace_in_cache(const std::string& cache_flag, const Checkpoint& checkpoint, Backend& backend,
                             std::optional<DType> hold_as) {
  EngineStart start = prepare(cache_flag, checkpoint, backend, hold_as);
  return start.problem.empty() ? begin_writing(std::move(start), checkpoint) : std::move(start);
}

std::string finish_in_cache(EngineStart& start) {
  if (start.writer == nullptr) return fmt::format("none: {}", start.problem);
  const Status written = start.writer->finish(start.key, start.info, /*durable=*/false);
  const std::uint64_t bytes = start.writer->num_bytes();
  start.writer.reset();
  if (!written.ok()) {
    log_warning("no engine file: {}", written.error().message);
    return fmt::format("none: {}", written.error().message);
  }
  return fmt::format("written: {}, {}, in {:.1f} s with packing; the next start maps it", start.path,
                     memory_text(bytes),
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start.begun).count());
}

}  // namespace quire
