// The hub's URL scheme (huggingface_hub's documentation of its HTTP API): the listing of a revision with
// sizes and hashes, and files by /resolve/, which may redirect to a storage host.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "loader/install.h"
#include "loader/pull_internal.h"
#include "loader/show.h"

namespace quire::internal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kDefaultEndpoint = "https://huggingface.co";
constexpr std::size_t kMaxListingBytes = std::size_t{64} << 20;
constexpr int kMaxTriesWithoutProgress = 5;
constexpr int kMaxListingTries = 3;

std::string endpoint() {
  const char* named = std::getenv("HF_ENDPOINT");
  std::string out = named == nullptr || *named == '\0' ? std::string(kDefaultEndpoint) : std::string(named);
  while (!out.empty() && out.back() == '/') out.pop_back();
  return out;
}

std::string token() {
  const char* named = std::getenv("HF_TOKEN");
  return named == nullptr ? "" : named;
}

// Percent-encoding of a path; '/' stays where keep_slash.
std::string encoded(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Error status_error(int status, const std::string& what, const std::string& repo) {
  if (status == 401 || status == 403) {
    return make_error(ErrorCode::kIo, token().empty()
                                          ? fmt::format("the hub refuses {} ({}): the repository {} needs a "
                                                        "token, or does not exist; set HF_TOKEN to a "
                                                        "token that may read it",
                                                        what, status, repo)
                                          : fmt::format("the hub refuses {} ({}) with the token of HF_TOKEN: "
                                                        "accept the terms of {} on its page, or use a "
                                                        "token that may read it",
                                                        what, status, repo));
  }
  if (status == 404) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("the hub has no {} (404): check the name and the revision", what));
  }
  return make_error(ErrorCode::kIo, fmt::format("the hub answers {} for {}", status, what));
}

bool is_worth_retrying(int status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501);
}

// Seconds that the hub asks to wait, at most a minute.
std::chrono::milliseconds asked_pause(const FetchHead& head) {
  const std::string text(head.header("retry-after"));
  const long seconds = std::strtol(text.c_str(), nullptr, 10);
  return std::chrono::seconds(std::clamp(seconds, 0L, 60L));
}

// The whole body as text.
Result<std::string> fetch_text(const std::string& url, const std::string& what, const std::string& repo,
                               const PullOptions& options) {
  QUIRE_CHECK(options.fetch) << "no fetch function";
  for (int tries = 1;; ++tries) {
    std::string body;
    bool too_large = false;
    FetchHead head;
    const Status status = options.fetch(
        {url, token(), 0},
        [&](const FetchHead& received) {
          head = received;
          return true;
        },
        [&](std::string_view bytes) {
          too_large = body.size() + bytes.size() > kMaxListingBytes;
          if (!too_large) body += bytes;
          return !too_large;
        });
    if (is_cancelled(options)) return cancelled_error();
    if (too_large) {
      return make_error(ErrorCode::kIo, fmt::format("the hub's answer for {} has more than {} bytes", what,
                                                    kMaxListingBytes));
    }
    if (status.ok() && head.status == 200) return body;
    Error error = status.ok() ? status_error(head.status, what, repo) : status.error();
    if (status.ok() && !is_worth_retrying(head.status)) return error;
    if (tries == kMaxListingTries) return error;
    note(options, error.message + "; trying again");
    if (!pause(options, std::max(options.retry_delay * (1 << (tries - 1)), asked_pause(head))))
      return cancelled_error();
  }
}

// A name from the hub becomes a file name here: relative, no part that climbs, no control bytes.
bool is_safe_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.size() > 1024) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7f) return false;
  }
  for (const fs::path& part : fs::path(path)) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

}  // namespace

const HubFileInfo* HubListing::find(std::string_view path) const {
  const auto it =
      std::find_if(files.begin(), files.end(), [&](const HubFileInfo& file) { return file.path == path; });
  return it == files.end() ? nullptr : &*it;
}

Result<HubListing> list_hub_repository(const std::string& repo, const std::string& revision,
                                       const PullOptions& options) {
  const std::string what = fmt::format("repository {} at revision {}", repo, shown(revision));
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint(),
                                      encoded(repo, true), encoded(revision, false));
  QUIRE_TRY(const std::string body, fetch_text(url, what, repo, options));
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("siblings") || !json["siblings"].is_array()) {
    return make_error(ErrorCode::kIo, fmt::format("the hub's answer for {} is no listing", what));
  }
  HubListing out;
  out.repo = repo;
  // Files are fetched from the commit that was listed, so that they are of one state.
  out.commit = json.contains("sha") && json["sha"].is_string() ? json["sha"].get<std::string>() : revision;
  for (const Json& item : json["siblings"]) {
    if (!item.is_object() || !item.contains("rfilename") || !item["rfilename"].is_string()) continue;
    HubFileInfo file;
    file.path = item["rfilename"].get<std::string>();
    if (!is_safe_path(file.path)) continue;  // can never be asked for
    if (item.contains("size") && item["size"].is_number_unsigned()) {
      file.size = item["size"].get<std::uint64_t>();
      file.has_size = true;
    }
    if (item.contains("lfs") && item["lfs"].is_object()) {
      const Json& lfs = item["lfs"];
      if (lfs.contains("size") && lfs["size"].is_number_unsigned()) {
        file.size = lfs["size"].get<std::uint64_t>();
        file.has_size = true;
      }
      if (lfs.contains("sha256") && lfs["sha256"].is_string()) file.sha256 = lfs["sha256"].get<std::string>();
      if (!is_sha256(file.sha256)) file.sha256.clear();
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

namespace {

// One file on its way: what is in the .partial file, and what is known of the whole.
class HubDownload {
 public:
  HubDownload(const HubListing& listing, HubFileInfo file, std::string output_path,
              const PullOptions& options)
      : listing_(listing),
        file_(std::move(file)),
        output_path_(std::move(output_path)),
        partial_path_(output_path_ + ".partial"),
        options_(options) {}

  Result<FetchedFile> run(std::uint64_t done_before, std::uint64_t total) {
    QUIRE_RETURN_IF_ERROR(make_folders(fs::path(output_path_).parent_path().string()));
    QUIRE_RETURN_IF_ERROR(take_up_partial());
    int tries = 0;
    while (true) {
      const std::uint64_t before = bytes_;
      std::optional<Error> failure;
      if (!is_complete()) {
        QUIRE_TRY(failure, transfer(done_before, total));
      }
      if (!failure) {
        failure = verify();
        if (!failure) break;
      }
      if (is_cancelled(options_)) return cancelled_error();
      if (num_wrong_hashes_ == 2 || num_restarts_ > kMaxTriesWithoutProgress)
        return *failure;  // once may be a damaged .partial file, twice is the hub's file
      tries = bytes_ > before ? 1 : tries + 1;
      if (tries >= kMaxTriesWithoutProgress) return *failure;
      note(options_, fmt::format("{}; trying again from byte {}", failure->message, bytes_));
      if (!pause(options_, std::max(options_.retry_delay * (1 << (tries - 1)), asked_pause(head_)))) {
        return cancelled_error();
      }
    }
    QUIRE_RETURN_IF_ERROR(move_into_place(partial_path_, output_path_));
    return FetchedFile{bytes_, found_sha256_};
  }

 private:
  bool is_complete() const { return file_.has_size && bytes_ == file_.size; }

  // Hashes what an earlier run left.
  Status take_up_partial() {
    std::error_code error;
    const auto size = fs::file_size(partial_path_, error);
    if (error || size == 0) return {};
    if (file_.has_size && size > file_.size) return start_over();
    std::ifstream in(partial_path_, std::ios::binary);
    std::vector<char> buffer(std::size_t{1} << 20);
    while (in) {
      in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      const auto count = static_cast<std::size_t>(in.gcount());
      sum_.update(buffer.data(), count);
      bytes_ += count;
      if (is_cancelled(options_)) return cancelled_error();
    }
    note(options_, fmt::format("{}: resuming at byte {}", file_.path, bytes_));
    return {};
  }

  Status start_over() {
    std::error_code error;
    fs::remove(partial_path_, error);
    sum_ = Sha256();
    bytes_ = 0;
    return {};
  }

  // One request. nullopt: the body came to its end. An Error inside: try again; an error result: give up.
  Result<std::optional<Error>> transfer(std::uint64_t done_before, std::uint64_t total) {
    const std::string url = fmt::format("{}/{}/resolve/{}/{}", endpoint(), encoded(listing_.repo, true),
                                        encoded(listing_.commit, false), encoded(file_.path, true));
    QUIRE_TRY(OutputFile output, OutputFile::open(partial_path_, /*append=*/true));
    std::optional<Error> write_error;
    bool restart = false;
    bool accepted = false;
    head_ = {};
    const std::uint64_t offset = bytes_;
    const Status status = options_.fetch(
        {url, token(), offset},
        [&](const FetchHead& head) {
          head_ = head;
          accepted = accept(head, offset, &restart, &output, &write_error);
          return accepted || (head.status != 200 && head.status != 206);
        },
        [&](std::string_view bytes) {
          if (!accepted) return true;  // an error's page
          if (file_.has_size && bytes_ + bytes.size() > file_.size) {
            restart = true;
            return false;
          }
          if (const Status written = output.write(bytes); !written.ok()) {
            write_error = written.error();
            return false;
          }
          sum_.update(bytes.data(), bytes.size());
          bytes_ += bytes.size();
          report(options_, file_.path, done_before + bytes_, std::max(total, done_before + bytes_));
          return true;
        });
    if (write_error) {  // a full disk: what was written goes, so that it is not in the way
      std::error_code ignored;
      fs::remove(partial_path_, ignored);
      return *write_error;
    }
    QUIRE_RETURN_IF_ERROR(output.finish());
    if (is_cancelled(options_)) return cancelled_error();
    if (restart) {
      ++num_restarts_;
      QUIRE_RETURN_IF_ERROR(start_over());
      return std::optional<Error>(
          make_error(ErrorCode::kIo,
                     fmt::format("{}: the hub sent another range or size than it declared", file_.path)));
    }
    if (!status.ok()) return std::optional<Error>(status.error());
    if (!accepted) {
      const std::string what = fmt::format("file {} of {}", file_.path, listing_.repo);
      if (!is_worth_retrying(head_.status)) return status_error(head_.status, what, listing_.repo);
      return std::optional<Error>(status_error(head_.status, what, listing_.repo));
    }
    return std::optional<Error>();
  }

  // Whether the body is the bytes that are missing. Takes size and hash from the headers where the listing
  // had none.
  bool accept(const FetchHead& head, std::uint64_t offset, bool* restart, OutputFile* output,
              std::optional<Error>* write_error) {
    if (head.status == 416) {  // nothing lies beyond what is here: it is whole already, or wrong
      *restart = !is_complete();
      return false;
    }
    if (head.status != 200 && head.status != 206) return false;
    std::string etag(head.header("x-linked-etag"));
    etag.erase(std::remove(etag.begin(), etag.end(), '"'), etag.end());
    if (file_.sha256.empty() && is_sha256(etag)) file_.sha256 = etag;
    const std::string size(head.header("x-linked-size"));
    if (!file_.has_size && !size.empty() && size.find_first_not_of("0123456789") == std::string::npos) {
      file_.size = std::strtoull(size.c_str(), nullptr, 10);
      file_.has_size = true;
    }
    if (head.status == 206) {
      const std::string range(head.header("content-range"));  // the last hop alone sends it
      if (range.rfind(fmt::format("bytes {}-", offset), 0) != 0) {
        *restart = true;
        return false;
      }
      return true;
    }
    if (offset > 0) {  // the whole file, though a part was asked for
      sum_ = Sha256();
      bytes_ = 0;
      if (const Status status = output->clear(); !status.ok()) {
        *write_error = status.error();
        return false;
      }
    }
    return true;
  }

  // nullopt if the file is right; else it is removed, and fetching it again may help.
  std::optional<Error> verify() {
    if (file_.has_size && bytes_ != file_.size) {
      return make_error(ErrorCode::kIo, fmt::format("{} has {} bytes of {}: the connection broke off",
                                                    file_.path, bytes_, file_.size));
    }
    Sha256 sum = std::move(sum_);
    sum_ = Sha256();
    found_sha256_ = sum.finish();
    if (file_.sha256.empty() || found_sha256_ == file_.sha256) return std::nullopt;
    const std::string found = found_sha256_;
    (void)start_over();
    ++num_wrong_hashes_;
    return make_error(ErrorCode::kIo, fmt::format("{} has the wrong SHA-256: {} instead of {}", file_.path,
                                                  found, file_.sha256));
  }

  const HubListing& listing_;
  HubFileInfo file_;
  const std::string output_path_;
  const std::string partial_path_;
  const PullOptions& options_;
  FetchHead head_;
  Sha256 sum_;
  std::uint64_t bytes_ = 0;
  std::string found_sha256_;
  int num_wrong_hashes_ = 0;
  int num_restarts_ = 0;
};

}  // namespace

Result<FetchedFile> fetch_hub_file(const HubListing& listing, const HubFileInfo& file,
                                   const std::string& output_path, std::uint64_t done_before,
                                   std::uint64_t total, const PullOptions& options) {
  return HubDownload(listing, file, output_path, options).run(done_before, total);
}

}  // namespace quire::internal
