#include "api/api_server.h"

#include <array>
#include <cstdint>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "api/error_body.h"
#include "api/routes.h"
#include "base/log.h"

namespace quire {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

void answer_loading(ResponseWriter& writer) {
  writer.send(http_error_response(503, "Loading model"));
}

}  // namespace

std::optional<std::string_view> bearer_token(std::string_view header) {
  constexpr std::string_view kScheme = "bearer";
  if (header.size() <= kScheme.size() || !is_space(header[kScheme.size()])) return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != kScheme[i]) return std::nullopt;
  }
  header.remove_prefix(kScheme.size());
  while (!header.empty() && is_space(header.front())) header.remove_prefix(1);
  while (!header.empty() && is_space(header.back())) header.remove_suffix(1);
  return header;
}

bool matches_any_key(std::string_view given, const std::vector<std::string>& keys) {
  unsigned any = 0;
  for (const std::string& key : keys) {
    // Always over the whole key, whatever was given; the length's own difference is one bit among others.
    unsigned difference = given.size() == key.size() ? 0 : 1;
    for (std::size_t i = 0; i < key.size(); ++i) {
      const unsigned char theirs = given.empty() ? 0 : static_cast<unsigned char>(given[i % given.size()]);
      difference |= static_cast<unsigned>(theirs ^ static_cast<unsigned char>(key[i]));
    }
    any |= static_cast<unsigned>(difference == 0 && !key.empty());
  }
  return any != 0;
}

ApiServer::ApiServer(ApiOptions options) : options_(std::move(options)) {}

void ApiServer::serve_model(ServedModel model) {
  metrics_.start(model.names.front(), model.max_model_len, model.engine->config());
  owned_model_ = std::make_unique<const ServedModel>(std::move(model));
  model_.store(owned_model_.get(), std::memory_order_release);
}

std::string ApiServer::new_id(std::string_view prefix) const {
  thread_local std::mt19937_64 generator = [] {
    std::random_device entropy;
    std::seed_seq seed{entropy(), entropy(), entropy(), entropy()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("{}-{:016x}{:016x}", prefix, generator(), generator());
}

bool ApiServer::authorized(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  const auto token = bearer_token(request.header("authorization"));
  return token && matches_any_key(*token, options_.api_keys);
}

void ApiServer::handle(const HttpRequest& request, ResponseWriter& writer) {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const ServedModel* current = model();
  const std::string_view path = request.path;
  std::string allowed;
  const Route* found = nullptr;
  for (const Route& route : routes()) {
    const bool prefix = route.path.back() == '/';
    const bool matches =
        prefix ? path.size() > route.path.size() && path.substr(0, route.path.size()) == route.path
               : path == route.path;
    if (!matches) continue;
    if (route.method == method) {
      found = &route;
      break;
    }
    allowed += allowed.empty() ? "" : ", ";
    allowed += route.method;
  }
  // Without a key nobody learns which paths exist.
  if ((found == nullptr || found->needs_key) && !authorized(request)) {
    writer.send(http_error_response(
        401, "A valid API key is needed: send it as \"Authorization: Bearer KEY\".", "invalid_api_key"));
    return;
  }
  if (found == nullptr) {
    if (current == nullptr) return answer_loading(writer);
    if (!allowed.empty()) {
      HttpResponse response = http_error_response(405, fmt::format("This path takes {} only.", allowed));
      response.headers.emplace_back("Allow", allowed);
      writer.send(response);
    } else {
      writer.send(http_error_response(404, "There is nothing at this path."));
    }
    return;
  }
  if (found->needs_model && current == nullptr) return answer_loading(writer);
  const std::string_view rest =
      found->path.back() == '/' ? path.substr(found->path.size()) : std::string_view();
  found->handler(Call{*this, current, request, writer, rest});
}

}  // namespace quire
