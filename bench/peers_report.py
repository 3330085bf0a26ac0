#!/usr/bin/env python3
"""Table and picture of what peers.py measured.

    peers_report.py peers.json peers.png     the picture (needs matplotlib); an ending .svg works too
"""
import json
import math
import sys

SMALL, LARGE = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
NAMES = {SMALL: "Qwen2.5-Coder-0.5B", LARGE: "Qwen2.5-Coder-1.5B"}
SPEEDS = ["prefill_512", "prefill_8192", "decode_1", "decode_4096", "decode_32"]
SHORT = {"prefill_512": "prefill 512", "prefill_8192": "prefill 8,192", "decode_1": "decode, 1 seq.",
         "decode_4096": "decode at 4,096", "decode_32": "decode, 32 seqs.", "served_throughput": "32 clients, output",
         "served_tpot": "32 clients, TPOT", "served_ttft": "32 clients, TTFT"}
QUIRE = {"bf16": ["quire-bf16", "quire-bf16-q4_0"], "int8": ["quire-int8", "quire-int8-q4_0"]}
# What is compared: (text, model, item, peers or None for the best of all, Quire's files, at least or at most this).
TARGETS = [
    ("prefill 512, 1.5B, by the best peer", LARGE, "prefill_512", None, "q4_k_m", ">=", 1.5),
    ("prefill 512, 0.5B, by the best peer", SMALL, "prefill_512", None, "q4_k_m", ">=", 2.0),
    ("decode 1 sequence, 1.5B, Q4_0 file, by llama.cpp on it", LARGE, "decode_1", "llama-q4_0", "q4_0", ">=", 1.0),
    ("decode 1 sequence, 1.5B, Q4_K_M file, by llama.cpp on it", LARGE, "decode_1", "llama-q4_k_m", "q4_k_m", ">=", 2.0),
    ("decode 32 sequences, 0.5B, by the best peer", SMALL, "decode_32", None, "q4_k_m", ">=", 6.0),
    ("decode 32 sequences, 1.5B, by the best peer", LARGE, "decode_32", None, "q4_k_m", ">=", 4.0),
    ("served output tok/s, 0.5B, by the best server", SMALL, "served_throughput", None, "q4_k_m", ">=", 8.0),
    ("served TPOT, 0.5B, by the best server", SMALL, "served_tpot", None, "q4_k_m", "<=", 0.2),
    ("served TTFT, 0.5B, by the best server", SMALL, "served_ttft", None, "q4_k_m", "<=", 0.2),
]


def value(document, model, engine, item):
    found = [row["median"] for row in document["rows"] if (row["model"], row["engine"], row["item"]) == (model, engine, item)]
    return found[0] if found else None


def best_peer(document, model, item, smaller):
    found = [(row["median"], row["engine"]) for row in document["rows"]
             if row["model"] == model and row["item"] == item and not row["engine"].startswith("quire")]
    return (min if smaller else max)(found) if found else (None, None)


def ratios(document):
    """[{text, compute, ratio, target, reached, against}], one for each target and compute mode with both figures."""
    out = []

    def add(text, compute, ratio, relation, target, against):
        reached = ratio >= target if relation == ">=" else ratio <= target
        out.append({"text": text, "compute": compute, "ratio": ratio, "target": f"{relation} {target:g}", "reached": reached,
                    "against": against})

    peak = document["machine"].get("read_gb_per_second")
    for compute, (k_quant, q4_0) in QUIRE.items():
        for text, model, item, peer, file, relation, target in TARGETS:
            mine = value(document, model, k_quant if file == "q4_k_m" else q4_0, item)
            if peer:
                theirs, against = value(document, model, peer, item), peer
            else:
                theirs, against = best_peer(document, model, item, relation == "<=")
            if mine and theirs:
                add(text, compute, mine / theirs, relation, target, f"{document['engines'][against]}: {theirs:.4g}")
        for engine, file in ((k_quant, "Q4_K_M"), (q4_0, "Q4_0")):
            rate = bandwidth(document, LARGE, engine)
            if rate and peak:
                add(f"decode 1 sequence, 1.5B, {file}: weights read, by the measured bandwidth", compute, rate / peak, ">=", 0.9,
                    f"{peak:.1f} GB/s")
        second = value(document, LARGE, k_quant, "start_second")
        if second:
            add("second start of the 1.5B to the first token, seconds", compute, second, "<=", 0.3, "")
        for text, a, b, target in (("prefill 8,192 by prefill 512, 0.5B", "prefill_8192", "prefill_512", 0.6),
                                   ("decode at 4,096 by decode at 128, 0.5B", "decode_4096", "decode_1", 0.8)):
            first, then = value(document, SMALL, k_quant, a), value(document, SMALL, k_quant, b)
            if first and then:
                add(text, compute, first / then, ">=", target, "Quire itself")
    return out


def bandwidth(document, model, engine):
    """GB/s of weights that decoding one sequence reads."""
    rate = value(document, model, engine, "decode_1")
    size = document["facts"].get(model, {}).get(engine, {}).get("weight_bytes")
    return rate * size / 1e9 if rate and size else None


def cell(document, model, engine, item):
    for row in document["rows"]:
        if (row["model"], row["engine"], row["item"]) == (model, engine, item):
            digits = 0 if row["median"] >= 100 else 1 if row["median"] >= 10 else 2
            text = f"{row['median']:,.{digits}f}"
            spread = (row["max"] - row["min"]) / row["median"] if len(row["values"]) > 1 else 0
            return text + (f" ±{50 * spread:.0f}%" if spread else "")
    return "–"


def title(document):
    machine = document["machine"]
    text = f"{machine['cpu']}, {machine['threads']} threads, {machine['memory_gib']} GiB"
    if machine.get("read_gb_per_second"):
        text += f", read bandwidth {machine['read_gb_per_second']:.1f} GB/s"
    return f"{text}; {machine['date']}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def markdown(document):
    out = ["# Quire and its peers on one machine\n", title(document) + ".", "Written by `bench/peers.py`, "
           f"{document['rounds']} rounds in turn, median ± half the spread; tok/s unless said otherwise.\n"]
    present = {(row["model"], row["engine"]) for row in document["rows"]}
    for model in dict.fromkeys([*document["facts"], *[model for model, _ in present]]):
        facts = document["facts"].get(model, {})
        keys = [key for key in document["engines"] if (model, key) in present or key in facts]
        items = [item for item in SPEEDS if any(row["model"] == model and row["item"] == item for row in document["rows"])]
        out.append(f"\n## {NAMES.get(model, model)}\n")
        rows = []
        for key in keys:
            fact, rate = facts.get(key, {}), bandwidth(document, model, key)
            accuracy = fact.get("accuracy")
            size = fact.get("weight_bytes")
            rows.append([document["engines"][key], *[cell(document, model, key, item) for item in items],
                         f"{size / 1e9:.2f}" if size else "–", f"{rate:.1f}" if rate else "–",
                         f"{accuracy['mean']:.4f} ({100 * accuracy['agree']:.1f}%)" if accuracy else "not available"])
        if items or any(fact.get("accuracy") for fact in facts.values()):
            out.append(table(["engine", *[SHORT[item] for item in items], "GB a token", "GB/s, 1 seq.",
                              "logprob diff. (agree)"], rows))
        for item, heading in (("served", "Served: 32 clients, 128 tokens in, 64 out"), ("start", "Start to the first token, s")):
            parts = [("served_throughput", "output tok/s"), ("served_tpot", "TPOT ms"), ("served_ttft", "TTFT ms")] \
                if item == "served" else [("start_first", "first"), ("start_second", "second")]
            found = [key for key in document["engines"] if any(value(document, model, key, part) for part, _ in parts)]
            if found:
                out.append(f"\n{heading}\n")
                out.append(table(["engine", *[text for _, text in parts]],
                                 [[document["engines"][key], *[cell(document, model, key, part) for part, _ in parts]]
                                  for key in found]))
    if document["ratios"]:
        out.append("\n## Ratios\n")
        out.append(table(["what", "Quire's mode", "ratio", "to reach", "reached", "against"],
                         [[each["text"], each["compute"], f"{each['ratio']:.2f}", each["target"],
                           "yes" if each["reached"] else "no", each["against"]] for each in document["ratios"]]))
    seen = {}
    for facts in document["facts"].values():
        for key, fact in facts.items():
            if fact.get("version"):
                seen.setdefault(key, f"- {document['engines'][key]}: {fact['version']}; {fact.get('precision', '')}")
    if seen:
        out += ["\n## What each engine is\n", *seen.values()]
    if document["failures"]:
        out.append("\n## Not measured\n")
        for each in document["failures"]:
            where = " ".join(part for part in (each["model"], each["engine"], each["item"]) if part)
            out.append(f"- **{where}**: {each['error']}")
    return "\n".join(out) + "\n"


# One hue for Quire, greys and muted hues for the peers, so that the eye finds Quire first.
COLOURS = {"quire-int8": "#0b6e4f", "quire-bf16": "#58b08a", "quire-int8-q4_0": "#0b6e4f", "quire-bf16-q4_0": "#58b08a",
           "llama-q4_k_m": "#c9a66b", "llama-q4_0": "#e0c99c", "openvino-int4": "#7d97c4", "vllm-bf16": "#b5b5bd"}


def panels(document):
    wanted = [(model, item) for model in (SMALL, LARGE) for item in ("prefill_512", "decode_1", "decode_32")]
    wanted += [(SMALL, item) for item in ("served_throughput", "served_tpot", "served_ttft")]
    shown = []
    for model, item in wanted:
        bars = [(key, value(document, model, key, item)) for key in document["engines"]]
        if item != "decode_1":  # the second file matters where its size decides
            bars = [(key, v) for key, v in bars if not (key.startswith("quire") and key.endswith("q4_0"))]
        bars = [(key, v) for key, v in bars if v]
        if bars:
            shown.append((model, item, bars))
    return shown


def picture(document, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    shown = panels(document)
    if not shown:
        sys.exit("no speeds to draw")
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9.5, "axes.edgecolor": "#cccccc"})
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    height = max(len(bars) for _, _, bars in shown)
    figure, axes = plt.subplots(lines, columns, figsize=(3.9 * columns + 0.4, lines * (0.27 * height + 0.75) + 0.9),
                                squeeze=False, facecolor="white")
    for axis in axes.flat[len(shown):]:
        axis.set_axis_off()
    for axis, (model, item, bars) in zip(axes.flat, shown):
        peak = max(v for _, v in bars)
        for place, (key, v) in enumerate(bars):
            mine = key.startswith("quire")
            axis.barh(place, v, color=COLOURS[key], height=0.74)
            axis.text(v + 0.015 * peak, place, f"{v:,.0f}" if v >= 20 else f"{v:.1f}", va="center", ha="left", fontsize=9,
                      fontweight="bold" if mine else "normal", color="#222222")
        axis.set_yticks(range(len(bars)), [document["engines"][key] for key, _ in bars], fontsize=8.5)
        for label, (key, _) in zip(axis.get_yticklabels(), bars):
            if key.startswith("quire"):
                label.set_fontweight("bold")
        axis.invert_yaxis()
        axis.set_xlim(0, 1.17 * peak)
        axis.set_xticks([])
        axis.tick_params(length=0)
        for side in ("top", "right", "bottom"):
            axis.spines[side].set_visible(False)
        unit = "ms, shorter is better" if item in ("served_tpot", "served_ttft") else "tok/s"
        short = NAMES[model].rsplit("-", 1)[-1]
        axis.set_title(f"{short}: {SHORT[item]} ({unit})", fontsize=10.5, fontweight="bold", loc="left", color="#222222")
    machine = document["machine"]
    figure.suptitle(f"Quire and its peers: {machine['cpu']}, {machine['threads']} threads, {machine['date']}",
                    fontsize=12.5, fontweight="bold", x=0.012, ha="left", color="#111111")
    figure.text(0.012, 0.008, "Qwen2.5-Coder, each engine's form of the same weights. Medians of interleaved rounds; "
                "precision and accuracy of each engine are in peers.md.", fontsize=8.5, color="#555555")
    figure.tight_layout(rect=(0, 0.03, 1, 0.97), h_pad=1.4, w_pad=1.2)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as source:
        picture(json.load(source), sys.argv[2])
