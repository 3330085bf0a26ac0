// Purpose: find stop strings in a text that arrives in pieces, holding back only what may still become one.
// In: text deltas. Out: text that is safe to send, and the stop string that ended it. Thread: owned by one
// connection.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopStrings {
 public:
  // include_stop: the matched string stays in the text (include_stop_str_in_output). Empty strings are not
  // allowed.
  StopStrings(std::vector<std::string> stops, bool include_stop);
  // Adds text; returns what may be sent now. After a match (matched() set) everything further is dropped.
  // The stop string that completes first wins; of two that complete together, the one that starts first.
  // enabled = false (fewer than min_tokens so far): text passes, nothing can match within it.
  std::string push(std::string_view text, bool enabled = true);
  // The output ended: returns what was held back.
  std::string finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  // Knuth-Morris-Pratt per stop string: the border of each prefix, and how much of the string the text so far
  // ends with. The greatest of these is what must be held back.
  std::vector<std::vector<std::size_t>> borders_;
  std::vector<std::size_t> progress_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace quire
