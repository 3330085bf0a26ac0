// Purpose: what one rendering may use: steps, time, stack, memory, text size; and how values are destroyed.
// In: TemplateLimits. Out: fail() (an exception that never leaves this room) when a limit is hit.
// Thread: one render, one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/chat_template.h"

namespace quire::jinja {

struct Object;

// Thrown inside src/text/jinja only; ChatTemplate turns it into an Error.
struct TemplateError {
  std::string message;
  bool own_text = false;  // raise_exception(): the message is the template's, passed on as it is
};
[[noreturn]] void fail(std::string message);

class Runtime {
 public:
  explicit Runtime(const TemplateLimits& limits);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // One evaluated node or visited element.
  void step() {
    if (++steps_ > limits_.max_steps) fail_steps();
    work(kStepWork);
  }
  // Cost of an operation over this many bytes; looks at the clock now and then.
  void work(std::size_t bytes) {
    work_ += bytes;
    if (work_ >= kClockWork) check_clock();
  }
  void check_stack() const;
  void check_text_bytes(std::size_t bytes) const;  // of one string that is about to be made
  void check_memory(std::size_t bytes) const;      // that are about to be allocated
  const TemplateLimits& limits() const { return limits_; }

  void charge(std::size_t bytes) {
    live_bytes_ += bytes;
    if (live_bytes_ > limits_.max_memory_bytes) check_memory(0);
  }
  void release(std::size_t bytes) { live_bytes_ -= bytes; }
  // Deletes the object and what only it holds without recursion, however deep the nesting.
  void destroy(Object* object) noexcept;
  std::size_t live_bytes() const { return live_bytes_; }

 private:
  static constexpr std::size_t kStepWork = 64;             // a node costs about as much as copying 64 bytes
  static constexpr std::size_t kClockWork = 1u << 19;      // well under a millisecond
  static constexpr std::size_t kMaxStackBytes = 1u << 20;  // an eighth of a usual thread's stack

  [[noreturn]] void fail_steps() const;
  void check_clock();

  const TemplateLimits limits_;
  std::int64_t steps_ = 0;
  std::size_t work_ = 0;
  std::size_t live_bytes_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  const char* stack_base_;
  std::vector<Object*> doomed_;
  bool destroying_ = false;
};

}  // namespace quire::jinja
