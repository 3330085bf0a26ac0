#!/usr/bin/env python3
"""Writes tests/data/decoder_cases.jsonl: logits of tiny random models by Hugging Face transformers, in float32.

The weights are not stored: both sides make them from the tensor's name and SplitMix64 (Steele et al. 2014), see
value_of(). Needs: pip install torch transformers numpy.

    tools/make_decoder_cases.py > tests/data/decoder_cases.jsonl
"""
import json

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

BASE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
LONG = {"max_position_embeddings": 96}
CASES = {
    "llama": {"model_type": "llama"} | LONG,
    "llama attention_bias": {"model_type": "llama", "attention_bias": True, "mlp_bias": True} | LONG,
    "llama linear": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama dynamic": {"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}},
    "llama llama3": {"model_type": "llama", "max_position_embeddings": 256, "head_dim": 32, "rope_theta": 500000.0,
                     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 32}},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0} | LONG,
    "qwen2 yarn": {"model_type": "qwen2", "rope_scaling": {"type": "yarn", "factor": 4.0,
                                                           "original_max_position_embeddings": 32}},
    "qwen2 window": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9,
                     "max_window_layers": 1} | LONG,
    "qwen3": {"model_type": "qwen3", "head_dim": 24, "tie_word_embeddings": True, "rope_theta": 1000000.0} | LONG,
    "mistral": {"model_type": "mistral", "sliding_window": 12, "head_dim": 16} | LONG,
}
NUM_TOKENS = 90
KEEP = [0, 1, 8, 9, 12, 31, 32, 33, 60, 89]
MASK = (1 << 64) - 1


def value_of(name, count):
    """count values in (-0.5, 0.5), multiples of 2^-24, from the name's FNV-1a hash."""
    seed = 14695981039346656037
    for byte in name.encode():
        seed = ((seed ^ byte) * 1099511628211) & MASK
    z = (np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2.0**24 - 0.5


def tensor(name, shape):
    values = value_of(name, int(np.prod(shape))).reshape(shape)
    return values + 1.0 if name.endswith("norm.weight") else values * 0.5


with np.errstate(over="ignore"):
    for case, changes in CASES.items():
        settings = BASE | changes
        config = AutoConfig.for_model(**settings)
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(tensor(name, parameter.shape), dtype=torch.float32))
            ids = [(7 * i * i + 3 * i + 5) % settings["vocab_size"] for i in range(NUM_TOKENS)]
            logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        print(json.dumps({"case": case, "config": settings, "ids": ids, "positions": KEEP,
                          "logits": [[float(f"{v:.7g}") for v in logits[p].tolist()] for p in KEEP]}))
