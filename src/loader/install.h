// Purpose: put files into the models folder so that nothing is ever half there: one pull of a name at a time,
// work in a staging folder of the same file system, then one rename. Layout: models/.staging/NAME/ holds what
// is being fetched, models/.staging/NAME.lock is the lock. Thread: one per pull; several processes exclude
// each other. Out of scope: where the bytes come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// Exclusive for a name while held; the holder has the staging folder for itself.
class InstallLock {
 public:
  // Waits while another process holds it (on_wait is called once), until *cancelled.
  static Result<InstallLock> acquire(const std::string& models_folder, const std::string& name,
                                     const std::atomic<bool>* cancelled,
                                     const std::function<void()>& on_wait);
  InstallLock(InstallLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  InstallLock& operator=(InstallLock&&) = delete;
  ~InstallLock();

 private:
  explicit InstallLock(int fd) : fd_(fd) {}
  int fd_;
};

std::string staging_path(const std::string& models_folder, const std::string& name);

// An empty folder that is gone when this is: what a killed process left there goes first.
class ScratchFolder {
 public:
  static Result<ScratchFolder> create(const std::string& path);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A file being written. Errors say what to do when the disk is full.
class OutputFile {
 public:
  // append: keep what is there (a resumed download), else the file must be new or is emptied.
  static Result<OutputFile> open(const std::string& path, bool append);
  OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) { other.fd_ = -1; }
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  Status write(std::string_view bytes);
  Status clear();   // empties it
  Status finish();  // to the disk, and closed

 private:
  OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

// Error if the file system of folder has less than needed bytes free.
Status check_free_space(const std::string& folder, std::uint64_t needed);

// Renames from to to, replacing a file or folder that is there, and makes it last.
Status move_into_place(const std::string& from, const std::string& to);

Status make_folders(const std::string& path);
std::string bytes_text(std::uint64_t bytes);  // "98.4 MB"

}  // namespace quire
