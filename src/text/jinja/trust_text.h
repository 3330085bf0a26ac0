// Purpose: a UTF-8 string that remembers, byte range by byte range, whether the text came from the template
// (trusted) or from a message (untrusted). In/out: plain value; ranges always end at character borders.
// Thread: plain value. Out of scope: what trust means to a tokenizer (tokenizer.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

class TrustText {
 public:
  TrustText() = default;
  TrustText(std::string bytes, bool trusted) : bytes_(std::move(bytes)), first_trusted_(trusted) {}

  void append(std::string_view bytes, bool trusted);
  void append(const TrustText& other);
  void append(const TrustText& other, std::size_t begin, std::size_t end);
  TrustText substr(std::size_t begin, std::size_t end) const;

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }

  bool trusted_at(std::size_t position) const;
  bool fully_trusted() const { return bytes_.empty() || (first_trusted_ && flips_.empty()); }
  // What the heap holds for this text, for the memory limit.
  std::size_t heap_bytes() const { return bytes_.capacity() + flips_.capacity() * sizeof(std::size_t); }

  // Calls visit(begin, end, trusted) for each maximal range of equal trust.
  template <typename Visit>
  void for_each_run(Visit visit) const {
    std::size_t begin = 0;
    bool trusted = first_trusted_;
    for (const std::size_t flip : flips_) {
      visit(begin, flip, trusted);
      begin = flip;
      trusted = !trusted;
    }
    if (begin < bytes_.size()) visit(begin, bytes_.size(), trusted);
  }

 private:
  void start_run(bool trusted);

  std::string bytes_;
  bool first_trusted_ = true;
  std::vector<std::size_t> flips_;  // ascending offsets where trust changes; none at 0 or at the end
};

}  // namespace quire::jinja
