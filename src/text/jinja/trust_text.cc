#include "text/jinja/trust_text.h"

#include <algorithm>

namespace quire::jinja {

// Called before bytes of this trust are appended.
void TrustText::start_run(bool trusted) {
  if (bytes_.empty()) {
    first_trusted_ = trusted;
    return;
  }
  const bool last = first_trusted_ != (flips_.size() % 2 == 1);
  if (last != trusted) flips_.push_back(bytes_.size());
}

void TrustText::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  start_run(trusted);
  bytes_.append(bytes);
}

void TrustText::append(const TrustText& other) {
  append(other, 0, other.size());
}

void TrustText::append(const TrustText& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  if (other.flips_.empty()) {
    append(std::string_view(other.bytes_).substr(begin, end - begin), other.first_trusted_);
    return;
  }
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  bool trusted = other.first_trusted_ != ((flip - other.flips_.begin()) % 2 == 1);
  while (begin < end) {
    const std::size_t stop = flip == other.flips_.end() ? end : std::min(end, *flip);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), trusted);
    begin = stop;
    trusted = !trusted;
    if (flip != other.flips_.end()) ++flip;
  }
}

TrustText TrustText::substr(std::size_t begin, std::size_t end) const {
  TrustText out;
  out.append(*this, begin, end);
  return out;
}

bool TrustText::trusted_at(std::size_t position) const {
  const auto flip = std::upper_bound(flips_.begin(), flips_.end(), position);
  return first_trusted_ != ((flip - flips_.begin()) % 2 == 1);
}

}  // namespace quire::jinja
