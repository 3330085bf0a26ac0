// Purpose: which path and method lead to which handler: one explicit array. A new endpoint is one line here.
#pragma once

#include <span>
#include <string_view>

#include "api/api_server.h"
#include "net/http_message.h"

namespace quire {

// What a handler is called with. model is null only if the route does not need one.
struct Call {
  ApiServer& api;
  const ServedModel* model;
  const HttpRequest& request;
  ResponseWriter& writer;
  std::string_view rest;  // of the path, behind the prefix of a route that ends in '/'
};

struct Route {
  std::string_view method;
  std::string_view path;  // one that ends in '/' takes every longer path too
  void (*handler)(const Call& call);
  bool needs_key;
  bool needs_model;
};

std::span<const Route> routes();

// One per endpoint, in the file named so.
void handle_chat_completions(const Call& call);  // openai_chat.cc
void handle_completions(const Call& call);       // openai_completions.cc
void handle_models(const Call& call);            // models.cc
void handle_model(const Call& call);             // models.cc
void handle_tokenize(const Call& call);          // tokenize.cc
void handle_detokenize(const Call& call);        // tokenize.cc
void handle_health(const Call& call);            // health.cc
void handle_version(const Call& call);           // health.cc
void handle_metrics(const Call& call);           // health.cc
void handle_engine_info(const Call& call);       // engine_info.cc

}  // namespace quire
