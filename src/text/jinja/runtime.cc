#include "text/jinja/runtime.h"

#include <fmt/core.h>

#include "text/jinja/value.h"

namespace quire::jinja {

void fail(std::string message) {
  throw TemplateError{std::move(message)};
}

Runtime::Runtime(const TemplateLimits& limits)
    : limits_(limits),
      deadline_(std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                    std::chrono::duration<double>(limits.max_seconds))),
      stack_base_(static_cast<const char*>(__builtin_frame_address(0))) {}

void Runtime::fail_steps() const {
  fail(fmt::format("the template takes more than {} steps (limit)", limits_.max_steps));
}

void Runtime::check_clock() {
  work_ = 0;
  if (std::chrono::steady_clock::now() > deadline_) {
    fail(fmt::format("the template takes longer than {} s (limit)", limits_.max_seconds));
  }
}

// Measures the stack itself: frames are several times larger in some builds (sanitizers) than in others.
void Runtime::check_stack() const {
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  const auto used = static_cast<std::size_t>(here < stack_base_ ? stack_base_ - here : here - stack_base_);
  if (used > kMaxStackBytes) fail("the template nests too deeply (limit)");
}

void Runtime::check_text_bytes(std::size_t bytes) const {
  if (bytes > limits_.max_output_bytes) {
    fail(fmt::format("the template makes a text of more than {} bytes (limit)", limits_.max_output_bytes));
  }
}

void Runtime::check_memory(std::size_t bytes) const {
  if (bytes > limits_.max_memory_bytes || live_bytes_ + bytes > limits_.max_memory_bytes) {
    fail(fmt::format("the template holds more than {} bytes in memory (limit)", limits_.max_memory_bytes));
  }
}

void Runtime::destroy(Object* object) noexcept {
  doomed_.push_back(object);
  if (destroying_) return;
  destroying_ = true;
  while (!doomed_.empty()) {
    Object* next = doomed_.back();
    doomed_.pop_back();
    live_bytes_ -= next->charged;
    delete next;
  }
  destroying_ = false;
}

}  // namespace quire::jinja
