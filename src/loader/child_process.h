// Purpose: run a program beside this one, without a shell, its output in a file; end it with us. In:
// arguments. Out: exit status. Thread: one.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace quire {

class ChildProcess {
 public:
  // arguments[0] is found in PATH. environment: set or replaced in ours. Its standard output and error go to
  // log_path, its input is empty. It has a process group of its own, so that the terminal's Ctrl-C reaches
  // only us.
  static Result<ChildProcess> start(const std::vector<std::string>& arguments,
                                    const std::vector<std::pair<std::string, std::string>>& environment,
                                    const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), status_(other.status_) { other.pid_ = -1; }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // terminates it and its children, and waits

  // Its exit code (128 + signal if it was killed), or nullopt while it runs.
  std::optional<int> poll();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void end();
  pid_t pid_ = -1;  // -1: none, or finished
  std::optional<int> status_;
};

}  // namespace quire
