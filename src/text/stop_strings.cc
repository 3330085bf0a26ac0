#include "text/stop_strings.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

StopStrings::StopStrings(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop), progress_(stops_.size(), 0) {
  for (const std::string& stop : stops_) {
    QUIRE_CHECK(!stop.empty()) << "an empty stop string";
    // borders[n]: the longest proper prefix of the first n bytes that is also their suffix.
    std::vector<std::size_t> borders(stop.size() + 1, 0);
    for (std::size_t i = 1, length = 0; i < stop.size(); ++i) {
      while (length > 0 && stop[i] != stop[length]) length = borders[length];
      if (stop[i] == stop[length]) ++length;
      borders[i + 1] = length;
    }
    borders_.push_back(std::move(borders));
  }
}

std::string StopStrings::push(std::string_view text, bool enabled) {
  if (matched_) return {};
  if (!enabled) {
    std::string out = std::move(held_);
    out += text;
    held_.clear();
    std::fill(progress_.begin(), progress_.end(), 0);
    return out;
  }
  for (char c : text) {
    held_.push_back(c);
    const std::string* completed = nullptr;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      std::size_t& length = progress_[i];
      while (length > 0 && stops_[i][length] != c) length = borders_[i][length];
      if (stops_[i][length] == c) ++length;
      if (length < stops_[i].size()) continue;
      // Of those that complete here the longest started first.
      if (completed == nullptr || stops_[i].size() > completed->size()) completed = &stops_[i];
      length = borders_[i][length];
    }
    if (completed != nullptr) {
      matched_ = *completed;
      std::string out = std::move(held_);
      held_.clear();
      if (!include_stop_) out.resize(out.size() - completed->size());
      return out;
    }
  }
  const std::size_t keep = progress_.empty() ? 0 : *std::max_element(progress_.begin(), progress_.end());
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  std::string out = std::move(held_);
  held_.clear();
  return out;
}

}  // namespace quire
