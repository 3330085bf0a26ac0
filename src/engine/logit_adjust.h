// Purpose: what a request's parameters do to its logits before temperature: masks, bias, penalties; in the
// order of vLLM's sampler. Thread: pure functions; many sequences at once.
#pragma once

#include <cstdint>
#include <span>

#include "engine/sequence.h"

namespace quire {

// Does the next token of this sequence need adjust_logits()?
bool wants_adjusting(const Sequence& sequence);

// 1. allowed_token_ids: all others become -inf. 2. bad_words: the last token of one whose others end the
// output becomes -inf. 3. Below min_tokens, what would stop becomes -inf. 4. logit_bias is added. 5.
// Penalties: of the tokens of prompt and output, positive logits are divided and others multiplied by
// repetition_penalty; of those of the output, frequency_penalty * count + presence_penalty is subtracted.
void adjust_logits(const Sequence& sequence, std::span<float> row);

// For commit: is this token an end of the output? (Below min_tokens it cannot have been chosen.)
bool is_stop_token(const Sequence& sequence, std::int32_t token);

}  // namespace quire
