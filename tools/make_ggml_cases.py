#!/usr/bin/env python3
"""Writes tests/data/ggml_blocks.jsonl: random blocks of each GGUF type and the numbers they stand for, as the Python
package gguf (MIT, from the llama.cpp project) dequantizes them. Needs: pip install gguf numpy.

    tools/make_ggml_cases.py > tests/data/ggml_blocks.jsonl
"""
import json

import gguf
import numpy as np

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Byte offsets of the float16 fields in a block, so that random bytes never make a NaN or an infinity.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

rng = np.random.default_rng(7)
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (256 // values * 2, size), dtype=np.uint8)
    for offset in HALVES[name]:
        scale = rng.normal(0, 0.02, len(blocks)).astype(np.float16)
        blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    rows = blocks.reshape(2, -1)
    expected = gguf.quants.dequantize(rows, kind)
    print(json.dumps({"type": name, "shape": list(expected.shape), "bytes": rows.tobytes().hex(),
                      "values": [float(f"{v:.9g}") for v in expected.ravel()]}))
