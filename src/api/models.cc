// /v1/models and /v1/models/NAME.
#include "api/error_body.h"
#include "api/routes.h"

namespace quire {
namespace {

Json model_json(const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "quire"},
          {"root", model.root},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len},
          {"permission", Json::array()}};
}

}  // namespace

void handle_models(const Call& call) {
  Json list = Json::array();
  for (const std::string& name : call.model->names) list.push_back(model_json(*call.model, name));
  HttpResponse response;
  response.body = dump_json({{"object", "list"}, {"data", std::move(list)}});
  call.writer.send(response);
}

void handle_model(const Call& call) {
  const std::string name(call.rest);
  if (!call.model->answers_to(name)) {
    call.writer.send(error_response(unknown_model(name)));
    return;
  }
  HttpResponse response;
  response.body = dump_json(model_json(*call.model, name));
  call.writer.send(response);
}

}  // namespace quire
