// Purpose: how far a long fetch is, on the terminal: one line that is redrawn, or plain lines where stderr is
// no terminal. In: bytes done and in all. Thread: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace quire {

class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() { finish(); }
  void update(const std::string& what, std::uint64_t done, std::uint64_t total);
  void note(const std::string& text);  // a line of its own
  void finish();                       // leaves the line as it is

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& what, std::uint64_t done, std::uint64_t total);
  double rate(std::uint64_t done, Clock::time_point now);  // bytes a second over the last seconds

  const bool quiet_;
  const bool is_terminal_;
  bool line_open_ = false;
  int last_tenth_ = -1;
  std::string last_what_;
  Clock::time_point last_drawn_{};
  Clock::time_point first_{};
  std::uint64_t first_done_ = 0;
  std::deque<std::pair<Clock::time_point, std::uint64_t>> history_;
};

}  // namespace quire
