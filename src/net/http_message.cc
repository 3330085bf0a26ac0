#include "net/http_message.h"

#include <ostream>  // boost/core string_view prints itself and does not include it

#include <boost/beast/http/status.hpp>

namespace quire {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string_view http_reason(int status) {
  const auto text =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  return {text.data(), text.size()};
}

}  // namespace quire
