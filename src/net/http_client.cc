#include "net/http_client.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <curl/curl.h>
#include <fmt/core.h>

namespace quire {
namespace {

constexpr long kMaxRedirects = 10;
constexpr std::size_t kMaxHeaderBytes = std::size_t{256} << 10;

struct Transfer {
  const HttpGet& request;
  const std::function<bool(const HttpHead&)>& on_head;
  const std::function<bool(std::string_view)>& on_data;
  CURL* curl = nullptr;
  HttpHead head;
  std::size_t header_bytes = 0;
  bool head_given = false;
  bool stopped = false;

  bool give_head() {
    if (head_given) return true;
    head_given = true;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    head.status = static_cast<int>(status);
    stopped = !on_head(head);
    return !stopped;
  }
};

// libcurl calls these from C: nothing may be thrown through it, and nothing here does but for memory.
std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  transfer->header_bytes += line.size();
  if (transfer->header_bytes > kMaxHeaderBytes) return 0;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  std::string name(line.substr(0, colon));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view value = line.substr(colon + 1);
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  transfer->head.headers.emplace_back(std::move(name), std::string(value));
  return line.size();
}

std::size_t take_data(char* data, std::size_t size, std::size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::size_t bytes = size * count;
  if (!transfer->give_head()) return 0;
  if (!transfer->on_data({data, bytes})) {
    transfer->stopped = true;
    return 0;
  }
  return bytes;
}

int look_for_cancel(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* cancelled = static_cast<Transfer*>(user)->request.cancelled;
  return cancelled != nullptr && cancelled->load() ? 1 : 0;
}

// Without the query: a storage host's signed address carries a secret there.
std::string shown_url(const std::string& url) {
  std::string out = url.substr(0, url.find('?'));
  const std::size_t scheme = out.find("://");
  const std::size_t at = out.find('@');
  if (scheme != std::string::npos && at != std::string::npos && at < out.find('/', scheme + 3)) {
    out.erase(scheme + 3, at - scheme - 2);
  }
  return out;
}

}  // namespace

Status http_get(const HttpGet& request, const std::function<bool(const HttpHead&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  QUIRE_CHECK(curl != nullptr);
  const bool is_https = request.url.rfind("https://", 0) == 0;
  if (!is_https && request.url.rfind("http://", 0) != 0) {
    return invalid(fmt::format("{} is no http or https address", shown_url(request.url)));
  }
  Transfer transfer{request, on_head, on_data, curl.get(), {}, 0, false, false};
  char reason[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode code = curl_easy_setopt(curl.get(), option, value);
    QUIRE_CHECK_EQ(static_cast<int>(code), 0) << "curl option " << static_cast<int>(option);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // A redirect never leaves TLS once it is in use.
  set(CURLOPT_REDIR_PROTOCOLS_STR, is_https ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, request.user_agent.c_str());
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout.count()));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set(CURLOPT_HEADERFUNCTION, &take_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, &take_data);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &look_for_cancel);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  if (request.offset > 0) set(CURLOPT_RANGE, fmt::format("{}-", request.offset).c_str());
  if (!request.bearer_token.empty()) {
    // libcurl sends it to the first host alone (CURLOPT_UNRESTRICTED_AUTH is off).
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    set(CURLOPT_XOAUTH2_BEARER, request.bearer_token.c_str());
  }
  // As OpenSSL's own programs and Python do, for a company's own certificates.
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* file = std::getenv(name);
    if (file == nullptr || *file == '\0') continue;
    set(CURLOPT_CAINFO, file);
    break;
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (transfer.stopped || code == CURLE_ABORTED_BY_CALLBACK) {
    return make_error(ErrorCode::kCancelled, "the transfer was stopped");
  }
  if (code != CURLE_OK) {
    return make_error(ErrorCode::kIo, fmt::format("cannot fetch {}: {}", shown_url(request.url),
                                                  *reason != '\0' ? reason : curl_easy_strerror(code)));
  }
  if (!transfer.give_head()) return make_error(ErrorCode::kCancelled, "the transfer was stopped");
  return {};
}

}  // namespace quire
