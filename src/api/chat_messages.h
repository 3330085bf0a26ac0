// Purpose: "messages", "tools" and what else a chat template reads, from a request to the template's context.
// In: the request's fields. Out: ChatPrompt. Thread: any. Out of scope: rendering (text/chat_template).
#pragma once

#include "api/field_reader.h"
#include "api/generate_request.h"
#include "api/served_model.h"

namespace quire {

// Reads messages, tools, tool_choice, documents, chat_template, chat_template_kwargs, reasoning_effort,
// add_generation_prompt and continue_final_message. Errors stay in `fields`.
ChatPrompt read_chat_prompt(FieldReader& fields, const ServedModel& model, const ApiOptions& options);

// True if the template joins a tool call's arguments to a string (as DeepSeek's does), so that they must be
// given as text; else they are given as an object, which `tojson` prints.
bool template_wants_argument_text(const std::string& source);

}  // namespace quire
