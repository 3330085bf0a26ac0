#include "apps/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "loader/install.h"

namespace quire {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(5);
constexpr auto kRateWindow = std::chrono::seconds(5);

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(seconds, 359999.0));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine(bool quiet) : quiet_(quiet), is_terminal_(isatty(STDERR_FILENO) == 1) {}

double ProgressLine::rate(std::uint64_t done, Clock::time_point now) {
  if (!history_.empty() && done < history_.back().second) history_.clear();  // a file begun again
  history_.emplace_back(now, done);
  while (history_.size() > 2 && now - history_.front().first > kRateWindow) history_.pop_front();
  const double seconds = std::chrono::duration<double>(now - history_.front().first).count();
  return seconds < 0.2 ? 0 : static_cast<double>(done - history_.front().second) / seconds;
}

void ProgressLine::update(const std::string& what, std::uint64_t done, std::uint64_t total) {
  if (quiet_) return;
  const auto now = Clock::now();
  if (first_ == Clock::time_point{}) {
    first_ = now;
    first_done_ = done;
  }
  const bool last = done >= total;
  const int tenth = total == 0 ? 0 : static_cast<int>(done * 10 / total);
  if (is_terminal_) {
    if (now - last_drawn_ < kRedraw && !last) return;
  } else {
    // A line for each tenth, at most one in five seconds; the end always.
    if (tenth == last_tenth_ && what == last_what_) return;
    if (now - last_drawn_ < kPlainLine && !last) return;
  }
  last_tenth_ = tenth;
  last_what_ = what;
  last_drawn_ = now;
  draw(what, done, total);
}

void ProgressLine::draw(const std::string& what, std::uint64_t done, std::uint64_t total) {
  const auto now = Clock::now();
  double per_second = rate(done, now);
  if (done >= total && done >= first_done_) {  // at the end, over all of it
    const double seconds = std::chrono::duration<double>(now - first_).count();
    per_second = seconds < 0.2 ? 0 : static_cast<double>(done - first_done_) / seconds;
  }
  std::string right = fmt::format("{:>3}%  {} / {}", total == 0 ? 0 : done * 100 / total, bytes_text(done),
                                  bytes_text(total));
  if (per_second > 0) {
    right += fmt::format("  {}/s", bytes_text(static_cast<std::uint64_t>(per_second)));
    if (done < total) right += "  " + time_text(static_cast<double>(total - done) / per_second) + " left";
  }
  if (!is_terminal_) {
    fmt::print(stderr, "{}: {}\n", what, right);
    return;
  }
  const int width = terminal_width() - 1;
  const int bar_width = std::clamp(width - static_cast<int>(what.size() + right.size()) - 5, 0, 40);
  std::string line = what + " ";
  if (bar_width >= 8) {
    const auto filled =
        total == 0 ? 0 : static_cast<std::size_t>(static_cast<std::uint64_t>(bar_width) * done / total);
    line += "[" + std::string(filled, '=') + std::string(static_cast<std::size_t>(bar_width) - filled, ' ') +
            "] ";
  }
  line += right;
  if (line.size() > static_cast<std::size_t>(width)) line.resize(static_cast<std::size_t>(width));
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
  line_open_ = true;
}

void ProgressLine::note(const std::string& text) {
  if (quiet_) return;
  finish();
  fmt::print(stderr, "{}\n", text);
}

void ProgressLine::finish() {
  if (line_open_) fmt::print(stderr, "\n");
  line_open_ = false;
}

}  // namespace quire
