// /health, /v1/health, /ping, /ready, /version, /metrics: asked by machines, open without a key.
#include "api/error_body.h"
#include "api/routes.h"

namespace quire {

void handle_health(const Call& call) {
  if (call.model == nullptr) {
    call.writer.send(http_error_response(503, "Loading model"));
    return;
  }
  const EngineStats stats = call.model->engine->stats();
  if (stats.failed) {
    call.writer.send(http_error_response(503, "The engine has failed; restart the server."));
  } else if (stats.seconds_since_progress > call.api.options().engine_stall_seconds) {
    call.writer.send(http_error_response(503, "The engine has made no progress for too long."));
  } else {
    HttpResponse response;
    response.body = R"({"status":"ok"})";
    call.writer.send(response);
  }
}

void handle_version(const Call& call) {
  HttpResponse response;
  response.body = dump_json({{"version", call.api.options().version}});
  call.writer.send(response);
}

void handle_metrics(const Call& call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (call.model != nullptr) {
    const EngineStats stats = call.model->engine->stats();
    response.body = call.api.metrics().text(&stats);
  }
  call.writer.send(response);
}

}  // namespace quire
