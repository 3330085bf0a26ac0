// Purpose: the arguments of a call and how they bind to named parameters. Thread: plain value.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> named;  // names are string values: they may come from a message

  // One entry per parameter, null where nothing was given; fails on too many, unknown, repeated or missing
  // ones (the first num_required must be there).
  template <std::size_t N>
  std::array<const Value*, N> bind(const char* function, const std::array<const char*, N>& names,
                                   std::size_t num_required = 0) const {
    std::array<const Value*, N> bound{};
    bind_to(function, names.data(), N, num_required, bound.data());
    return bound;
  }
  // For Python's methods whose parameters have no names.
  template <std::size_t N>
  std::array<const Value*, N> bind_positional(const char* function, const std::array<const char*, N>& names,
                                              std::size_t num_required = 0) const {
    if (!named.empty()) fail(std::string("TypeError: ") + function + "() takes no keyword arguments");
    return bind(function, names, num_required);
  }
  void bind_none(const char* function) const { bind_to(function, nullptr, 0, 0, nullptr); }

 private:
  void bind_to(const char* function, const char* const* names, std::size_t num_names,
               std::size_t num_required, const Value** bound) const;
};

}  // namespace quire::jinja
