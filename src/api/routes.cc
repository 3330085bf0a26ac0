#include "api/routes.h"

#include <array>

namespace quire {

std::span<const Route> routes() {
  // Open without a key: what load balancers and Prometheus ask.
  static constexpr std::array<Route, 15> kRoutes{{
      {"POST", "/v1/chat/completions", handle_chat_completions, true, true},
      {"POST", "/v1/completions", handle_completions, true, true},
      {"GET", "/v1/models", handle_models, true, true},
      {"GET", "/v1/models/", handle_model, true, true},
      {"POST", "/tokenize", handle_tokenize, true, true},
      {"POST", "/v1/tokenize", handle_tokenize, true, true},
      {"POST", "/detokenize", handle_detokenize, true, true},
      {"POST", "/v1/detokenize", handle_detokenize, true, true},
      {"GET", "/v1/engine", handle_engine_info, true, true},
      {"GET", "/health", handle_health, false, false},
      {"GET", "/v1/health", handle_health, false, false},
      {"GET", "/ping", handle_health, false, false},
      {"GET", "/ready", handle_health, false, false},
      {"GET", "/version", handle_version, false, false},
      {"GET", "/metrics", handle_metrics, false, false},
  }};
  return kRoutes;
}

}  // namespace quire
