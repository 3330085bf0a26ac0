// Purpose: the HTTP API as one handler: routes, authentication, what is answered before the model is loaded.
// In: HttpRequest. Out: answers through ResponseWriter. Thread: any number of connections; serve_model()
// once. Out of scope: sockets (net/), loading (apps/).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "api/metrics.h"
#include "api/served_model.h"
#include "net/http_message.h"

namespace quire {

class ApiServer {
 public:
  explicit ApiServer(ApiOptions options);

  // Everything behind it (engine, tokenizer, template) must outlive the last request.
  void serve_model(ServedModel model);
  void handle(const HttpRequest& request, ResponseWriter& writer);

  // For handlers.
  const ServedModel* model() const { return model_.load(std::memory_order_acquire); }
  const ApiOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  // A fresh "chatcmpl-..." or the like.
  std::string new_id(std::string_view prefix) const;

 private:
  bool authorized(const HttpRequest& request) const;

  const ApiOptions options_;
  Metrics metrics_;
  std::unique_ptr<const ServedModel> owned_model_;
  std::atomic<const ServedModel*> model_{nullptr};
};

// The part after "Bearer " of an Authorization header, scheme in any case; nullopt if it is another scheme.
std::optional<std::string_view> bearer_token(std::string_view header);
// Compares with every key, each in a time that depends on neither where nor whether it differs.
bool matches_any_key(std::string_view given, const std::vector<std::string>& keys);

}  // namespace quire
