#include "api/chat_messages.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace quire {
namespace {

constexpr std::size_t kMaxMessages = 16'384;
constexpr std::size_t kMaxTools = 1024;

struct TemplateTraits {
  bool developer_role = false;  // the template has a place for it
  bool argument_text = false;
};

bool is_role(const std::string& role) {
  constexpr std::array<std::string_view, 6> kRoles{"system",    "developer", "user",
                                                   "assistant", "tool",      "function"};
  for (const auto& known : kRoles) {
    if (role == known) return true;
  }
  return false;
}

// "content" as one text. Text parts are joined by newlines, as vLLM and llama.cpp do.
std::optional<std::string> read_content(FieldReader& fields, const std::string& where) {
  const Json* content = fields.find("content");
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    fields.fail_type("content", "a string or an array of parts", *content);
    return std::nullopt;
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string part_name = fmt::format("{}.content[{}]", where, i);
    FieldReader part((*content)[i], part_name);
    std::string type;
    part.string("type", type);
    std::string piece;
    if (type == "text" || type == "input_text" || type == "output_text") {
      if (part.find("text") == nullptr) part.fail("text", "is missing.");
      part.string("text", piece);
    } else if (type == "refusal") {
      part.string("refusal", piece);
    } else if (part.ok()) {
      part.fail("type",
                fmt::format("is \"{}\"; this model reads text only, so every part must be of type \"text\".",
                            type.substr(0, 64)),
                ErrorCode::kUnsupported);
    }
    if (!part.ok()) {
      fields.fail_with(part.status().error());
      return std::nullopt;
    }
    if (i > 0) text += '\n';
    text += piece;
  }
  return text;
}

Json read_tool_calls(FieldReader& message, const std::string& where, const TemplateTraits& traits) {
  const Json* calls = message.find("tool_calls");
  Json out = Json::array();
  if (calls == nullptr) return out;
  if (!calls->is_array()) {
    message.fail_type("tool_calls", "an array", *calls);
    return out;
  }
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string name = fmt::format("{}.tool_calls[{}]", where, i);
    FieldReader call((*calls)[i], name);
    std::string id;
    std::string type = "function";
    call.string("id", id);
    call.string("type", type);
    const Json* function = call.find("function");
    if (call.ok() && function == nullptr) call.fail("function", "is missing.");
    if (!call.ok()) {
      message.fail_with(call.status().error());
      return out;
    }
    FieldReader inner(*function, name + ".function");
    std::string function_name;
    inner.string("name", function_name);
    Json arguments = Json::object();
    if (const Json* given = inner.find("arguments")) arguments = *given;
    if (inner.ok() && function_name.empty()) inner.fail("name", "is missing.");
    if (!inner.ok()) {
      message.fail_with(inner.status().error());
      return out;
    }
    // OpenAI sends the arguments as JSON inside a string; printed as they are, they would be encoded twice.
    if (arguments.is_string() && !traits.argument_text) {
      if (auto parsed = parse_json(arguments.get_ref<const std::string&>()); parsed.ok()) {
        arguments = std::move(*parsed);
      }
    } else if (!arguments.is_string() && traits.argument_text) {
      arguments = dump_json(arguments);
    }
    Json entry = {{"type", type},
                  {"function", {{"name", function_name}, {"arguments", std::move(arguments)}}}};
    if (!id.empty()) entry["id"] = id;
    out.push_back(std::move(entry));
  }
  return out;
}

Json read_message(const Json& value, const std::string& where, const TemplateTraits& traits,
                  FieldReader& fields) {
  Json out = Json::object();
  FieldReader message(value, where);
  std::string role;
  message.string("role", role);
  if (message.ok() && role.empty()) message.fail("role", "is missing.");
  if (message.ok() && !is_role(role)) {
    message.fail("role",
                 fmt::format("must be system, developer, user, assistant, tool or function, got \"{}\".",
                             role.substr(0, 64)));
  }
  // OpenAI renamed "system"; a template that has no place for the new name would drop the message silently.
  if (role == "developer" && !traits.developer_role) role = "system";
  out["role"] = role;
  const auto content = read_content(message, where);
  Json calls = read_tool_calls(message, where, traits);
  if (message.ok() && !content && role != "assistant") message.fail("content", "is missing.");
  // null, absent and "" are one thing: templates print "None" for null.
  out["content"] = content.value_or("");
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    std::string text;
    message.string(name, text);
    if (message.find(name) != nullptr) out[name] = text;
  }
  // Qwen3 and DeepSeek read the first name; vLLM sends the second.
  if (out.contains("reasoning") && !out.contains("reasoning_content")) {
    out["reasoning_content"] = out["reasoning"];
  }
  if (!message.ok()) fields.fail_with(message.status().error());
  return out;
}

void read_tools(FieldReader& fields, const ServedModel& model, bool has_own_template, Json& context) {
  const Json* tools = fields.find("tools");
  bool use = true;
  if (const Json* choice = fields.find("tool_choice")) {
    if (choice->is_string() && *choice == "none") {
      use = false;
    } else if (!choice->is_string() || *choice != "auto") {
      return fields.fail("tool_choice",
                         "is not supported: only \"auto\" and \"none\" are; a call cannot be forced.",
                         ErrorCode::kUnsupported);
    }
  }
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields.fail_type("tools", "an array", *tools);
  if (tools->size() > kMaxTools) {
    return fields.fail("tools",
                       fmt::format("has {} entries; at most {} are allowed.", tools->size(), kMaxTools));
  }
  for (std::size_t i = 0; i < tools->size(); ++i) {
    FieldReader tool((*tools)[i], fmt::format("tools[{}]", i));
    std::string type = "function";
    tool.string("type", type);
    if (tool.ok() && type != "function") {
      tool.fail("type", fmt::format("must be \"function\", got \"{}\".", type.substr(0, 64)));
    }
    const Json* function = tool.find("function");
    if (tool.ok() && function == nullptr) tool.fail("function", "is missing.");
    if (tool.ok()) {
      FieldReader inner(*function, fmt::format("tools[{}].function", i));
      std::string name;
      inner.string("name", name);
      if (inner.ok() && name.empty()) inner.fail("name", "is missing.");
      if (!inner.ok()) tool.fail_with(inner.status().error());
    }
    if (!tool.ok()) return fields.fail_with(tool.status().error());
  }
  if (!use || tools->empty()) return;
  if (!has_own_template && model.chat_template != nullptr && !model.chat_template->mentions("tools")) {
    return fields.fail("tools", "cannot be used: this model's chat template has no place for them.",
                       ErrorCode::kUnsupported);
  }
  context["tools"] = *tools;
}

void read_template_kwargs(FieldReader& fields, Json& context) {
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) return fields.fail_type("chat_template_kwargs", "an object", *kwargs);
  for (const auto& [key, value] : kwargs->items()) {
    for (const char* reserved : {"messages", "tools", "documents", "bos_token", "eos_token", "chat_template",
                                 "add_generation_prompt", "continue_final_message", "tokenize"}) {
      if (key == reserved) {
        return fields.fail("chat_template_kwargs", fmt::format("must not set \"{}\".", key));
      }
    }
    context[key] = value;
  }
}

}  // namespace

bool template_wants_argument_text(const std::string& source) {
  // Looks for `+ NAME.arguments` or `+ NAME['arguments']` that no filter follows.
  for (std::size_t at = source.find("arguments"); at != std::string::npos;
       at = source.find("arguments", at + 1)) {
    std::size_t begin = at;
    const auto in_name = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             c == '.' || c == '[' || c == ']' || c == '\'' || c == '"';
    };
    while (begin > 0 && in_name(source[begin - 1])) --begin;
    while (begin > 0 && source[begin - 1] == ' ') --begin;
    if (begin == 0 || source[begin - 1] != '+') continue;
    std::size_t end = at + std::string_view("arguments").size();
    while (end < source.size() &&
           (source[end] == '\'' || source[end] == '"' || source[end] == ']' || source[end] == ' ')) {
      ++end;
    }
    if (end >= source.size() || source[end] != '|') return true;
  }
  return false;
}

ChatPrompt read_chat_prompt(FieldReader& fields, const ServedModel& model, const ApiOptions& options) {
  ChatPrompt prompt;
  fields.string("chat_template", prompt.template_override);
  if (fields.find("chat_template") != nullptr && !options.trust_request_chat_template) {
    fields.fail("chat_template",
                "is not accepted from requests unless the server runs with --trust-request-chat-template.",
                ErrorCode::kUnsupported);
  }
  const bool own_template = !prompt.template_override.empty();
  const std::string source = own_template                     ? prompt.template_override
                             : model.chat_template != nullptr ? model.chat_template->source()
                                                              : std::string();
  const TemplateTraits traits{source.find("developer") != std::string::npos,
                              template_wants_argument_text(source)};

  const Json* messages = fields.find("messages");
  if (messages == nullptr) {
    fields.fail("messages", "is missing.");
    return prompt;
  }
  if (!messages->is_array()) {
    fields.fail_type("messages", "an array of messages", *messages);
    return prompt;
  }
  if (messages->empty() || messages->size() > kMaxMessages) {
    fields.fail("messages", messages->empty() ? std::string("must not be empty.")
                                              : fmt::format("must not hold more than {}.", kMaxMessages));
    return prompt;
  }
  Json& context = prompt.context = Json::object();
  Json list = Json::array();
  for (std::size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    list.push_back(read_message((*messages)[i], fmt::format("messages[{}]", i), traits, fields));
  }
  if (!fields.ok()) return prompt;
  prompt.final_text = list.back()["content"].get<std::string>();
  context["messages"] = std::move(list);

  read_tools(fields, model, own_template, context);
  if (const Json* documents = fields.find("documents")) {
    if (!documents->is_array()) {
      fields.fail_type("documents", "an array", *documents);
    } else if (!own_template && model.chat_template != nullptr &&
               !model.chat_template->mentions("documents")) {
      fields.fail("documents", "cannot be used: this model's chat template has no place for them.",
                  ErrorCode::kUnsupported);
    }
    context["documents"] = *documents;
  }

  bool add_generation_prompt = true;
  fields.boolean("add_generation_prompt", add_generation_prompt);
  fields.boolean("continue_final_message", prompt.continue_final_message);
  if (prompt.continue_final_message) {
    if (fields.find("add_generation_prompt") != nullptr && add_generation_prompt) {
      fields.fail("continue_final_message", "and 'add_generation_prompt' exclude each other.");
    }
    if (prompt.final_text.empty()) {
      fields.fail("continue_final_message", "needs a last message with some content.");
    }
    add_generation_prompt = false;
  }
  read_template_kwargs(fields, context);
  std::string effort;
  fields.string("reasoning_effort", effort);
  if (!effort.empty()) {
    bool known = false;
    for (const char* level : {"none", "minimal", "low", "medium", "high", "xhigh"}) known |= effort == level;
    if (!known) fields.fail("reasoning_effort", "must be none, minimal, low, medium, high or xhigh.");
    context["reasoning_effort"] = effort;
  }
  context["add_generation_prompt"] = add_generation_prompt;
  return prompt;
}

}  // namespace quire
