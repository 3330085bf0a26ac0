// Purpose: the text of catalogue.json, built in. Its definition is generated at build time
// (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace quire {

extern const std::string_view kCatalogueJson;

}  // namespace quire
