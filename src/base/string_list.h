// Purpose: a list of strings in one block of memory: no allocation for each, and neighbours lie together. For
// vocabularies and merges, which have hundreds of thousands.
// In: strings, appended. Out: views, valid until the list changes. Thread: immutable once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace quire {

class StringList {
 public:
  using value_type = std::string_view;
  // What all strings together may have; who takes strings from outside checks it before.
  static constexpr std::size_t kMaxBytes = std::numeric_limits<std::uint32_t>::max();

  StringList() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a vector of strings is one.
  StringList(const std::vector<std::string>& strings) {
    for (const std::string& text : strings) push_back(text);
  }

  void reserve(std::size_t count, std::size_t bytes) {
    ends_.reserve(count);
    bytes_.reserve(bytes);
  }
  void push_back(std::string_view text) {
    QUIRE_CHECK(text.size() <= kMaxBytes - bytes_.size());
    bytes_.append(text);
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }

  std::size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  std::size_t total_bytes() const { return bytes_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }
  std::string_view back() const { return (*this)[size() - 1]; }

  class const_iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = std::string_view;

    const_iterator() = default;
    const_iterator(const StringList* list, std::size_t i) : list_(list), i_(i) {}
    std::string_view operator*() const { return (*list_)[i_]; }
    const_iterator& operator++() {
      ++i_;
      return *this;
    }
    const_iterator operator++(int) {
      const const_iterator before = *this;
      ++i_;
      return before;
    }
    bool operator==(const const_iterator& other) const = default;

   private:
    const StringList* list_ = nullptr;
    std::size_t i_ = 0;
  };
  const_iterator begin() const { return {this, 0}; }
  const_iterator end() const { return {this, size()}; }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace quire
