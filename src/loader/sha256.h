// Purpose: SHA-256 of bytes as they pass by. In: bytes. Out: lower-case hex. Thread: one.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"

namespace quire {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(const void* data, std::size_t size);
  std::string finish();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of a whole file; kCancelled soon after *cancelled becomes true.
Result<std::string> file_sha256(const std::string& path, const std::atomic<bool>* cancelled = nullptr);

}  // namespace quire
