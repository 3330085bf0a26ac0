#include "text/jinja/arguments.h"

#include <fmt/core.h>

namespace quire::jinja {

void Arguments::bind_to(const char* function, const char* const* names, std::size_t num_names,
                        std::size_t num_required, const Value** bound) const {
  if (positional.size() > num_names) {
    fail(fmt::format("TypeError: {}() takes at most {} argument(s), {} given", function, num_names,
                     positional.size()));
  }
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    std::size_t i = 0;
    while (i < num_names && name.bytes() != names[i]) ++i;
    if (i == num_names) {
      fail(fmt::format("TypeError: {}() got an unexpected keyword argument '{}'", function, name.bytes()));
    }
    if (bound[i] != nullptr) {
      fail(fmt::format("TypeError: {}() got multiple values for argument '{}'", function, name.bytes()));
    }
    bound[i] = &value;
  }
  for (std::size_t i = 0; i < num_required; ++i) {
    if (bound[i] == nullptr)
      fail(fmt::format("TypeError: {}() misses its argument '{}'", function, names[i]));
  }
}

}  // namespace quire::jinja
