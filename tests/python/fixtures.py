"""Tiny checkpoints whose answers are known, written with the standard library only.

write_chain(path): a Llama in the Hugging Face layout whose next token depends on the last one alone (behaviour of the
project's CHAIN fixture): the outputs of attention and MLP are zero and the embedding is one-hot, so the hidden state
names the last token and lm_head is a table of successors. A..Z, then the bytes of a llama, an e acute, a cat and '!',
then <eos>; every other token leads to A. Token id = byte value; 256 <bos>, 257 <eos>, 258 <|im_end|>. RMSNorm scales a
one-hot vector of length H to sqrt(H), so the right logit is sqrt(H) and all others are 0.

write_random(path): a Llama with random weights from a seed, of the same vocabulary: for what attention and the KV cache
do, where the chain proves nothing.
"""

import array
import json
import os
import random
import struct

BOS, EOS, IM_END = 256, 257, 258
VOCAB = 264
HIDDEN = 512
CONTEXT = 256
TAIL = "\U0001f999\u00e9\u732b!"
CHAIN = list(range(ord("A"), ord("Z") + 1)) + list(TAIL.encode()) + [EOS]


def successors(overrides=None):
    table = [ord("A")] * VOCAB
    for token, following in zip(CHAIN, CHAIN[1:]):
        table[token] = following
    for token, following in (overrides or {}).items():
        table[token] = following
    return table


def floats(values):
    out = array.array("f", values)
    return out.tobytes()


def zeros(*shape):
    count = 1
    for size in shape:
        count *= size
    return shape, bytes(4 * count)


def ones(size):
    return (size,), floats([1.0] * size)


def normal(rng, scale, *shape):
    count = 1
    for size in shape:
        count *= size
    return shape, floats(rng.gauss(0.0, scale) for _ in range(count))


def one_hot_rows(columns, width):
    """A matrix whose row r is 1 at columns[r]; None gives a row of NaN, a dict gives {column: value}."""
    data = array.array("f", bytes(4 * len(columns) * width))
    for row, column in enumerate(columns):
        if column is None:
            data[row * width : (row + 1) * width] = array.array("f", [float("nan")] * width)
        elif isinstance(column, dict):
            for at, value in column.items():
                data[row * width + at] = value
        else:
            data[row * width + column] = 1.0
    return (len(columns), width), data.tobytes()


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)


def byte_alphabet():
    """The printable stand-in of each byte in byte-level BPE vocabularies (GPT-2's table)."""
    plain = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    out, spare = {}, 0
    for byte in range(256):
        if byte in plain:
            out[byte] = chr(byte)
        else:
            out[byte] = chr(0x100 + spare)
            spare += 1
    return out


def write_side_files(folder, *, layers, hidden, heads, intermediate, context=CONTEXT, eos=EOS, template=None,
                     add_bos=False, generation=None, head_dim=64):
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "vocab_size": VOCAB, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": head_dim,
        "hidden_act": "silu", "max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": EOS})
    alphabet = byte_alphabet()
    specials = [(BOS, "<bos>"), (EOS, "<eos>"), (IM_END, "<|im_end|>")]
    vocabulary = {alphabet[byte]: byte for byte in range(256)} | {text: number for number, text in specials}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    post = None
    if add_bos:
        post = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                         {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<bos>": {"id": "<bos>", "ids": [BOS], "tokens": ["<bos>"]}}}
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for number, text in specials],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": post, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []}})
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>",
        "add_bos_token": add_bos, "model_max_length": context,
        "chat_template": template or "{% for m in messages %}{{ m['content'] }}{% endfor %}"})
    write_json(folder, "generation_config.json",
               {"bos_token_id": BOS, "eos_token_id": eos} | (generation or {}))


def write_chain(folder, *, overrides=None, nan_rows=(), context=CONTEXT, **side):
    """nan_rows: rows of lm_head that are NaN: every logit row has a NaN. nan_after: only after this token."""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(7)
    heads, head_dim, intermediate = 8, 64, 64
    nan_after = side.pop("nan_after", None)
    table = successors(overrides)
    head = [table[token] for token in range(VOCAB)]
    # lm_head[j] . h(token) must be 1 where j follows the token: column = token, row = its successor.
    rows = [{} for _ in range(VOCAB)]
    for token, following in enumerate(head):
        rows[following][token] = 1.0
    if nan_after is not None:
        # The embedding of this token is NaN, so every logit after it is: only sequences that hold it fail.
        embedding = one_hot_rows([None if token == nan_after else token for token in range(VOCAB)], HIDDEN)
    else:
        embedding = one_hot_rows(list(range(VOCAB)), HIDDEN)
    lm_head = one_hot_rows([None if row in nan_rows else rows[row] for row in range(VOCAB)], HIDDEN)
    prefix = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": embedding,
        prefix + "input_layernorm.weight": ones(HIDDEN),
        prefix + "self_attn.q_proj.weight": normal(rng, 0.02, heads * head_dim, HIDDEN),
        prefix + "self_attn.k_proj.weight": normal(rng, 0.02, heads * head_dim, HIDDEN),
        prefix + "self_attn.v_proj.weight": normal(rng, 0.02, heads * head_dim, HIDDEN),
        prefix + "self_attn.o_proj.weight": zeros(HIDDEN, heads * head_dim),
        prefix + "post_attention_layernorm.weight": ones(HIDDEN),
        prefix + "mlp.gate_proj.weight": normal(rng, 0.02, intermediate, HIDDEN),
        prefix + "mlp.up_proj.weight": normal(rng, 0.02, intermediate, HIDDEN),
        prefix + "mlp.down_proj.weight": zeros(HIDDEN, intermediate),
        "model.norm.weight": ones(HIDDEN),
        "lm_head.weight": lm_head,
    }
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    write_side_files(folder, layers=1, hidden=HIDDEN, heads=heads, intermediate=intermediate, context=context, **side)
    return folder


def write_random(folder, *, seed=1, layers=2, hidden=128, heads=4, context=512, **side):
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    intermediate = 2 * hidden
    tensors = {"model.embed_tokens.weight": normal(rng, 1.0, VOCAB, hidden)}
    scale = hidden ** -0.5
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": ones(hidden),
            prefix + "self_attn.q_proj.weight": normal(rng, 2 * scale, hidden, hidden),
            prefix + "self_attn.k_proj.weight": normal(rng, 2 * scale, hidden, hidden),
            prefix + "self_attn.v_proj.weight": normal(rng, scale, hidden, hidden),
            prefix + "self_attn.o_proj.weight": normal(rng, scale, hidden, hidden),
            prefix + "post_attention_layernorm.weight": ones(hidden),
            prefix + "mlp.gate_proj.weight": normal(rng, scale, intermediate, hidden),
            prefix + "mlp.up_proj.weight": normal(rng, scale, intermediate, hidden),
            prefix + "mlp.down_proj.weight": normal(rng, scale, hidden, intermediate),
        }
    tensors |= {"model.norm.weight": ones(hidden), "lm_head.weight": normal(rng, 3 * scale, VOCAB, hidden)}
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    write_side_files(folder, layers=layers, hidden=hidden, heads=heads, intermediate=intermediate, context=context,
                     head_dim=hidden // heads, **side)
    return folder
