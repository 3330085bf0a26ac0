#!/usr/bin/env python3
"""How fast `quire serve` is on this machine, in three figures per model and compute mode: prefill of 512 tokens, decode of
one sequence, and output tokens per second of 32 streams at once (128 tokens in, 64 out). Medians of --runs runs.

    make build && bench/serve_speed.py qwen2.5-coder-0.5b smollm2-135m
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="+")
parser.add_argument("--compute", default="bf16,int8")
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--quire", default=str(ROOT / "build" / "release" / "quire"))
args = parser.parse_args()


def complete(url, prompt, max_tokens):
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    start = time.perf_counter()
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    answer = json.load(urllib.request.urlopen(request, timeout=600))
    assert answer["usage"]["completion_tokens"] == max_tokens, answer
    return time.perf_counter() - start


def prompt_of(length, seed):
    return [(seed * 7919 + i * 104729) % 30000 + 100 for i in range(length)]


cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
print(f"{cpu}, {time.strftime('%Y-%m-%d')}")
print(f"{'model':24} {'compute':8} {'prefill tok/s':>14} {'decode tok/s':>13} {'32 streams tok/s':>17}")
for model in args.models:
    for compute in args.compute.split(","):
        server = subprocess.Popen([args.quire, "serve", model, "--port", "0", "--compute", compute, "--max-model-len",
                                   "2048"], stderr=subprocess.PIPE, text=True)
        url = None
        for line in server.stderr:
            if found := re.search(r"listening on (http://\S+:\d+)", line):
                url = found.group(1)
            if " serving " in line:
                break
        prefill, decode, streams = [], [], []
        for run in range(args.runs + 1):  # the first one warms up
            first = complete(url, prompt_of(512, run), 1)
            prefill.append(512 / first)
            short = complete(url, prompt_of(8, run), 1)
            decode.append(64 / (complete(url, prompt_of(8, run), 65) - short))
            start = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                list(pool.map(lambda i: complete(url, prompt_of(128, 100 * run + i), 64), range(32)))
            streams.append(32 * 64 / (time.perf_counter() - start))
        server.terminate()
        server.wait()
        figures = [statistics.median(values[1:]) for values in (prefill, decode, streams)]
        print(f"{model:24} {compute:8} {figures[0]:14.0f} {figures[1]:13.1f} {figures[2]:17.0f}", flush=True)
