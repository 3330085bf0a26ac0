// /v1/engine: everything chosen at start and why, and the engine's present state.
#include "api/error_body.h"
#include "api/routes.h"

namespace quire {

void handle_engine_info(const Call& call) {
  Json body = call.model->info;
  const EngineStats stats = call.model->engine->stats();
  body["state"] = {{"num_requests_running", stats.num_running},
                   {"num_requests_waiting", stats.num_waiting},
                   {"num_blocks", stats.num_blocks},
                   {"num_free_blocks", stats.num_free_blocks},
                   {"num_steps", stats.num_steps},
                   {"num_preemptions", stats.num_preemptions},
                   {"prompt_tokens", stats.prompt_tokens},
                   {"generation_tokens", stats.generation_tokens},
                   {"failed", stats.failed}};
  HttpResponse response;
  response.body = dump_json(body);
  call.writer.send(response);
}

}  // namespace quire
