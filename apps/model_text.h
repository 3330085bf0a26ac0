// Purpose: the text side of a model: its tokenizer and its chat template, from the checkpoint or from flags.
// In: a checkpoint (its tensors are not read). Out: both, with lines for the start-up report. Thread: any
// one; serving starts do this beside the loading of weights.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loader/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

struct ModelText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: there is none, or it was refused
  std::string chat_template_problem;            // then why
  std::vector<std::pair<std::string, std::string>> report;
};

// tokenizer_flag, template_flag: --tokenizer and --chat-template, or "".
Result<ModelText> load_model_text(const std::string& tokenizer_flag, const std::string& template_flag,
                                  const Checkpoint& checkpoint);

}  // namespace quire
