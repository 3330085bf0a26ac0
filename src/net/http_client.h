// Purpose: one HTTP(S) GET as a stream of bytes: redirects followed, certificates verified, the proxy
// variables of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) honoured, every wait bounded.
// Built on libcurl, which does proxies, CONNECT, connection attempts over IPv4 and IPv6 and certificate
// stores as every administrator expects. Thread: any; each call is on its own. Out of scope: what is fetched,
// retries.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace quire {

struct HttpGet {
  std::string url;           // http or https
  std::string bearer_token;  // sent to the first host only
  std::uint64_t offset = 0;  // > 0: Range: bytes=OFFSET-
  std::string user_agent = "quire";
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{30};  // without a byte
  const std::atomic<bool>* cancelled = nullptr;
};

struct HttpHead {
  int status = 0;       // of the last hop
  HttpHeaders headers;  // of all hops of a redirect in order, names in lower case
};

// on_head is called once, before on_data; false from either ends the transfer: kCancelled. kIo: no
// connection, or it broke off before the end of the body. A status of 400 and more is no error here.
Status http_get(const HttpGet& request, const std::function<bool(const HttpHead&)>& on_head,
                const std::function<bool(std::string_view)>& on_data);

}  // namespace quire
