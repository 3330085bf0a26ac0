#!/usr/bin/env python3
"""Writes one GGUF file's weights in the other forms that peers read.

    peers_models.py f16 MODEL.gguf OUT.gguf          the same file with every matrix dequantized to float16
    peers_models.py checkpoint MODEL.gguf FOLDER     a bfloat16 safetensors checkpoint with configuration and tokenizer
    peers_models.py facts MODEL.gguf IDS.json        prints {weight_bytes, texts}: bytes that a token reads, and the
                                                     texts of the lists of token ids in the file

Runs in the environment `tools` of peers.py (packages gguf, numpy). The checkpoint is written for the qwen2 family only, which
is what the models of the comparison are.
"""
import json
import pathlib
import struct
import sys

import gguf
import numpy as np


def field(reader, name, default=None):
    found = reader.fields.get(name)
    return default if found is None else found.contents()


def write_f16(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, field(reader, "general.architecture"))
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = entry.types[0]
        writer.add_key_value(name, entry.contents(), kind, entry.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

    def values(tensor):
        plain = gguf.dequantize(tensor.data, tensor.tensor_type)
        return plain.astype(np.float32 if len(tensor.shape) == 1 else np.float16)

    for tensor in reader.tensors:
        vector = len(tensor.shape) == 1
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32 if vector else np.float16),
                               int(np.prod(shape)) * (4 if vector else 2))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(values(tensor))
    writer.close()


NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name):
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.{parts[3]}"
    return f"{NAMES[parts[0]]}.{parts[1]}"


def bf16_bits(values):
    """Round to nearest even; the weights are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(reader, path):
    """The format: 8 bytes of header length, a JSON header, the data."""
    header, offset, tensors = {"__metadata__": {"format": "pt"}}, 0, list(reader.tensors)
    for tensor in tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        size = 2 * int(np.prod(shape))
        header[hugging_face_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            out.write(bf16_bits(gguf.dequantize(tensor.data, tensor.tensor_type)).tobytes())


def tokenizer_files(reader, folder):
    tokens, merges = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.merges")
    kinds = field(reader, "tokenizer.ggml.token_type")
    control = {i for i, kind in enumerate(kinds) if kind in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)}
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": kinds[i] == gguf.TokenType.CONTROL} for i in sorted(control)]
    # The pattern is the one of the qwen2 tokenizer, as published with the models.
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+")
    split = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": False,
             "vocab": {token: i for i, token in enumerate(tokens) if i not in control}, "merges": merges}
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                "normalizer": {"type": "NFC"}, "pre_tokenizer": split, "post_processor": bytes_of,
                "decoder": bytes_of, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                "eos_token": tokens[field(reader, "tokenizer.ggml.eos_token_id")],
                "pad_token": tokens[field(reader, "tokenizer.ggml.padding_token_id")],
                "model_max_length": 32768, "chat_template": field(reader, "tokenizer.chat_template")}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")


def write_checkpoint(source, target):
    reader, folder = gguf.GGUFReader(source), pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    arch = field(reader, "general.architecture")
    if arch != "qwen2":
        sys.exit(f"{source}: a checkpoint can be written for qwen2, not for {arch}")
    shapes = {tensor.name: [int(n) for n in reversed(tensor.shape)] for tensor in reader.tensors}
    vocab, hidden = shapes["token_embd.weight"]
    heads = field(reader, f"{arch}.attention.head_count")
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": arch,
        "hidden_size": hidden, "vocab_size": vocab, "num_attention_heads": heads,
        "num_key_value_heads": field(reader, f"{arch}.attention.head_count_kv"),
        "num_hidden_layers": field(reader, f"{arch}.block_count"),
        "intermediate_size": field(reader, f"{arch}.feed_forward_length"),
        "max_position_embeddings": field(reader, f"{arch}.context_length"),
        "rms_norm_eps": field(reader, f"{arch}.attention.layer_norm_rms_epsilon"),
        "rope_theta": field(reader, f"{arch}.rope.freq_base"), "hidden_act": "silu", "torch_dtype": "bfloat16",
        "tie_word_embeddings": "output.weight" not in shapes, "use_sliding_window": False,
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    tokenizer_files(reader, folder)
    write_safetensors(reader, folder / "model.safetensors")


def byte_of_character():
    """The characters of a byte-level BPE's tokens: printable bytes stand for themselves, the rest for 256 and up in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}


def facts(source, lists):
    reader = gguf.GGUFReader(source)
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
    size = sum(sizes.values()) - (sizes["token_embd.weight"] if "output.weight" in sizes else 0)
    tokens, table = field(reader, "tokenizer.ggml.tokens"), byte_of_character()
    with open(lists, encoding="utf-8") as file:
        texts = [bytes(table[c] for i in ids for c in tokens[i] if c in table).decode(errors="replace")
                 for ids in json.load(file)]
    print(json.dumps({"weight_bytes": size, "texts": texts}))


if __name__ == "__main__":
    commands = {"f16": write_f16, "checkpoint": write_checkpoint, "facts": facts}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](sys.argv[2], sys.argv[3])
