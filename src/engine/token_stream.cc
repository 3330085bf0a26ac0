#include "engine/token_stream.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

TokenStream::TokenStream(std::int32_t num_choices) : num_choices_(num_choices) {
  QUIRE_CHECK_GE(num_choices, 1);
  cancelled_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(num_choices));
}

std::optional<TokenEvent> TokenStream::next(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  // now + milliseconds::max() would overflow.
  timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
  if (!ready_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return std::nullopt;
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void TokenStream::cancel(std::int32_t choice) {
  QUIRE_CHECK_GE(choice, 0);
  QUIRE_CHECK_LT(choice, num_choices_);
  cancelled_[static_cast<std::size_t>(choice)].store(true, std::memory_order_relaxed);
}

void TokenStream::cancel_all() {
  for (std::int32_t choice = 0; choice < num_choices_; ++choice) cancel(choice);
}

void TokenStream::push(TokenEvent event) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
  }
  ready_.notify_one();
}

bool TokenStream::cancelled(std::int32_t choice) const {
  QUIRE_CHECK_GE(choice, 0);
  QUIRE_CHECK_LT(choice, num_choices_);
  return cancelled_[static_cast<std::size_t>(choice)].load(std::memory_order_relaxed);
}

}  // namespace quire
