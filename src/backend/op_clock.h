// Purpose: adds up how long each kind of operation takes, for Backend::op_times(): two clock reads (some 50
// ns) per operation. Thread: one caller of operations; times() from any. Operations of a backend do not call
// each other's measured entry points, or the time would count twice.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace quire {

class OpClock {
 public:
  enum Kind : std::size_t { kLinear, kAttention, kOther, kNumKinds };

  // Adds the time until it goes out of scope.
  class Scope {
   public:
    Scope(OpClock& clock, Kind kind) : sum_(clock.sums_[kind]), start_(std::chrono::steady_clock::now()) {}
    ~Scope() {
      const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start_;
      // One writer: no read-modify-write needed.
      sum_.store(sum_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(spent.count()),
                 std::memory_order_relaxed);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::atomic<std::uint64_t>& sum_;
    const std::chrono::steady_clock::time_point start_;
  };

  OpTimes times() const {
    return {sums_[kLinear].load(std::memory_order_relaxed), sums_[kAttention].load(std::memory_order_relaxed),
            sums_[kOther].load(std::memory_order_relaxed)};
  }

 private:
  std::array<std::atomic<std::uint64_t>, kNumKinds> sums_{};
};

}  // namespace quire
