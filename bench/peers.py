#!/usr/bin/env python3
"""The same work on Quire and on the engines that people use today, in one run on this machine.

    bench/peers.py                       everything: installs the peers (first run: long), about 25 minutes after that
    bench/peers.py --only prefill_512,quire-int8,llama-q4_0 --models qwen2.5-coder-0.5b --rounds 1
    bench/peers.py --list                items and engines that --only knows

Peers, from the Python package index: llama.cpp (llama-cpp-python built here for this CPU, and its llama-server), OpenVINO
GenAI (INT4), vLLM for CPUs (bf16). For each item the engines take turns, --rounds times; only one process runs at a time.
Writes peers.md, peers.json and peers.png into --output. docs/benchmarks.md defines every item.

Exit codes: 0 all engines measured; 1 some engine or item failed (the table says which); 2 wrong arguments or nothing measured.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import peers_engines as engines
import peers_report
from peers_install import HERE, Installation, PeerError, Step, cpu_list

ROOT = HERE.parent
# key -> (text, what is computed). output: tokens behind the first one; 0 = only the prompt. rounds: at most so many;
# limit: an engine whose expected time is longer (seconds, from its prefill_512) is left out.
ITEMS = {
    "prefill_512": {"text": "prefill of 512 tokens", "input": 512, "output": 0, "batch": 1},
    "decode_1": {"text": "decode, 1 sequence", "input": 128, "output": 32, "batch": 1},
    "decode_32": {"text": "decode, 32 sequences", "input": 16, "output": 24, "batch": 32},
    "prefill_8192": {"text": "prefill of 8,192 tokens", "input": 8192, "output": 0, "batch": 1, "rounds": 1, "limit": 40},
    "decode_4096": {"text": "decode at 4,096 tokens of context", "input": 4096, "output": 32, "batch": 1, "rounds": 1,
                    "limit": 30},
}
OTHER_ITEMS = {"served": "32 clients, 128 tokens in, 64 out, over HTTP", "start": "first and second start to the first token",
               "accuracy": "difference of the best logprob from the references"}
LONG_MODEL, SERVED_MODEL, START_MODEL = "qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
ENGINES = {
    "quire-bf16": "Quire bf16, Q4_K_M", "quire-int8": "Quire int8, Q4_K_M", "quire-bf16-q4_0": "Quire bf16, Q4_0",
    "quire-int8-q4_0": "Quire int8, Q4_0", "llama-q4_k_m": "llama.cpp, Q4_K_M", "llama-q4_0": "llama.cpp, Q4_0",
    "openvino-int4": "OpenVINO GenAI, INT4", "vllm-bf16": "vLLM CPU, bf16"}
CHECKED_TOKENS = 16


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Run:
    def __init__(self, args):
        self.args, self.begin = args, time.monotonic()
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        self.install = Installation(args.envs or cache / "quire" / "peers", args.jobs, not args.skip_install)
        self.rows, self.failures, self.facts, self.peaks = [], [], {}, []
        self.golden_file = ROOT / "tests" / "data" / "golden" / "logits.jsonl"
        self.golden = [json.loads(line) for line in self.golden_file.read_text(encoding="utf-8").splitlines()]
        greedy = (ROOT / "tests" / "data" / "golden" / "greedy.jsonl").read_text(encoding="utf-8")
        self.greedy = {}
        for row in map(json.loads, greedy.splitlines()):
            self.greedy.setdefault(row["model"], row)
        self.gguf = {}

    def wants(self, name, among):
        chosen = [each for each in self.args.only if each in among]
        return not chosen or name in chosen

    def wants_item(self, item):
        return self.wants(item, {**ITEMS, **OTHER_ITEMS})

    def wants_engine(self, key):
        return self.wants(key, ENGINES)

    def late(self):
        return time.monotonic() - self.begin > 60 * self.args.max_minutes

    def failed(self, model, engine, item, error):
        say(f"FAILED {model} {engine} {item}: {error}")
        self.failures.append({"model": model, "engine": engine, "item": item, "error": str(error)})

    def guarded(self, model, engine, item, work, *arguments):
        """The result of the work, or None when the peer failed, which is reported and does not end the run."""
        try:
            return work(*arguments)
        except Exception as error:  # whatever one peer does, the others are measured
            self.failed(model, engine, item, error if isinstance(error, PeerError) else f"{type(error).__name__}: {error}")
            return None

    def add(self, model, engine, item, unit, values):
        if values:
            self.rows.append({"model": model, "engine": engine, "item": item, "unit": unit, "values": values,
                              "median": statistics.median(values), "min": min(values), "max": max(values)})

    # Preparation

    def prepare(self):
        """Installs what the chosen engines need and finds the model files."""
        steps = {"llama": ("llama-q4_k_m", "llama-q4_0", "quire-bf16-q4_0", "quire-int8-q4_0"), "openvino": ("openvino-int4",),
                 "vllm": ("vllm-bf16",)}
        self.usable = {"quire"}
        self.install.tools()
        for env, keys in steps.items():
            if any(map(self.wants_engine, keys)):
                if self.guarded("", env, "install", lambda env=env: (getattr(self.install, env)(), True)):
                    self.usable.add(env)
        for model in self.args.models:
            with Step(f"fetching {model}"):
                done = subprocess.run([self.args.quire, "pull", model, "--json"], capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerError(f"quire pull {model}: {done.stderr.strip()[-300:]}")
            self.gguf[model] = json.loads(done.stdout.splitlines()[-1])["path"]

    def engines_of(self, model):
        """The engines that can run this model, each with its file written."""
        install, threads, gguf, out = self.install, self.args.threads, self.gguf[model], []

        def q4_0():
            return install.q4_0(model, gguf)

        def peer(key, env, kind, file_of, environment):
            def make():
                path, log = file_of(), install.logs / f"{model}-{key}.log"
                log.unlink(missing_ok=True)
                out.append(engines.Peer(key, ENGINES[key], kind, lambda: engines.Worker(
                    key, install.python(env), kind, path, threads, environment, log)))
                out[-1].path = path
            if self.wants_engine(key) and env in self.usable:
                self.guarded(model, key, "model file", make)

        def quire(key, compute, file_of):
            if self.wants_engine(key) and (file_of is not q4_0 or "llama" in self.usable):
                self.guarded(model, key, "model file", lambda: out.append(engines.Quire(
                    self.args.quire, key, ENGINES[key], file_of(), compute, threads, install.logs)))

        quire("quire-bf16", "bf16", lambda: gguf)
        quire("quire-int8", "int8", lambda: gguf)
        quire("quire-bf16-q4_0", "bf16", q4_0)
        quire("quire-int8-q4_0", "int8", q4_0)
        peer("llama-q4_k_m", "llama", "llama", lambda: gguf, install.llama_environment())
        peer("llama-q4_0", "llama", "llama", q4_0, install.llama_environment())
        peer("openvino-int4", "openvino", "openvino", lambda: install.openvino_int4(model, gguf), {})
        peer("vllm-bf16", "vllm", "vllm", lambda: install.checkpoint(model, gguf), install.vllm_environment())
        return out

    # Measurement

    def check(self, model, engine):
        """The continuation of a known prompt: its first token must be the reference's, or no speed of it counts."""
        row = self.greedy[model]
        ids = engine.greedy(row["prompt_ids"], CHECKED_TOKENS)
        same = next((i for i, (a, b) in enumerate(zip(ids, row["output_ids"])) if a != b), len(ids))
        facts = self.facts.setdefault(model, {}).setdefault(engine.key, {})
        facts.update({"continuation_ids": ids, "prompt": row["prompt"], "tokens_as_reference": same})
        if same < 1:
            raise PeerError(f"continues {row['prompt']!r} with {ids[:4]}, the reference with {row['output_ids'][:4]}")

    def measure_model(self, model):
        alive = []
        for engine in self.engines_of(model):
            with Step(f"{model}: starting {engine.key}"):
                seconds = self.guarded(model, engine.key, "start", lambda engine=engine: (engine.load(),))
                if seconds is None:
                    continue
                if seconds[0] is not None:
                    self.facts.setdefault(model, {}).setdefault(engine.key, {})["load_seconds"] = seconds[0]
                if self.guarded(model, engine.key, "answer check", lambda engine=engine: (self.check(model, engine),)) is None:
                    engine.close()
                    continue
            alive.append(engine)
        try:
            if self.wants_item("accuracy"):
                for engine in alive:
                    with Step(f"{model}: accuracy of {engine.key}"):
                        source = str(self.golden_file) if engine.kind == "quire" else self.golden
                        self.facts[model][engine.key]["accuracy"] = self.guarded(
                            model, engine.key, "accuracy", engine.accuracy, model, source)
            rates = {}
            for item, shape in ITEMS.items():
                if self.wants_item(item) and not ("limit" in shape and model != LONG_MODEL):
                    self.measure_item(model, alive, item, shape, rates)
        finally:
            for engine in alive:
                self.facts[model].setdefault(engine.key, {}).update(engine.info)
                self.peaks += getattr(engine, "peaks", [])
                engine.close()
            self.guarded(model, "", "texts", self.describe, model, alive)

    def describe(self, model, alive):
        """The continuations as text; bytes a token reads, where the engine does not tell them itself."""
        for engine in alive:
            facts = self.facts[model][engine.key]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as lists:
                json.dump([facts.get("continuation_ids", [])], lists)
                lists.flush()
                path = engine.path if str(engine.path).endswith(".gguf") else self.gguf[model]
                done = subprocess.run([self.install.python("tools"), str(HERE / "peers_models.py"), "facts", path, lists.name],
                                      capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerError(done.stderr.strip()[-300:])
            told = json.loads(done.stdout)
            facts["continuation"] = told["texts"][0]
            if engine.kind == "llama":
                facts["weight_bytes"] = told["weight_bytes"]

    def measure_item(self, model, alive, item, shape, rates):
        values, broken, skipped = {engine.key: [] for engine in alive}, set(), set()
        rounds = min(self.args.rounds, shape.get("rounds", self.args.rounds))
        if "limit" not in shape:  # once unmeasured: caches, first-use compilation, clock
            for engine in alive:
                if engine.kind != "quire":
                    with Step(f"{model}: {item}: warming up {engine.key}"):
                        few = {**shape, "output": min(4, shape["output"])}
                        warm = self.guarded(model, engine.key, item, engine.measure, few)
                    if warm is None:
                        broken.add(engine.key)
                    elif item == "prefill_512":
                        rates[engine.key] = warm
        try:
            for number in range(rounds):
                if number and self.late():
                    say(f"{item}: {number} of {rounds} rounds, the time is up")
                    break
                for engine in alive:
                    if engine.key in broken or engine.key in skipped:
                        continue
                    expected = shape["input"] / rates[engine.key] if engine.key in rates else 0
                    if expected > shape.get("limit", 1e9):
                        skipped.add(engine.key)
                        say(f"{model}: {item}: {engine.key} left out, it would take over {expected:.0f} s")
                        continue
                    with Step(f"{model}: {item}: {engine.key}, round {number + 1} of {rounds}"):
                        value = self.guarded(model, engine.key, item, engine.measure, shape)
                    if value is None:
                        broken.add(engine.key)
                    else:
                        values[engine.key].append(value)
        finally:  # an interrupted item keeps its finished rounds
            for key, found in values.items():
                self.add(model, key, item, "tok/s", found)
                if item == "prefill_512" and found:
                    rates[key] = statistics.median(found)

    def servers_of(self, model):
        """key -> function that starts that engine's server."""
        install, threads, logs, gguf, out = self.install, self.args.threads, self.install.logs, self.gguf[model], {}

        def add(key, environment, command):
            log = logs / f"{model}-{key}-server.log"
            out[key] = lambda more=None: engines.Server(key, command, {**environment, **(more or {})}, log)

        for key in ("quire-bf16", "quire-int8"):
            if self.wants_engine(key):
                quire = engines.Quire(self.args.quire, key, "", gguf, key[6:], threads, logs)
                add(key, {}, quire.serve_command)
        if "llama" in self.usable and (self.wants_engine("llama-q4_0") or self.wants_engine("llama-q4_k_m")):
            binary = self.guarded(model, "llama-server", "install", install.llama_server)
            for key in ("llama-q4_k_m", "llama-q4_0") if binary else ():
                if self.wants_engine(key):
                    path = gguf if key == "llama-q4_k_m" else install.q4_0(model, gguf)
                    add(key, install.llama_environment(), lambda port, path=path: [
                        binary, "-m", path, "-c", 32 * 256, "-np", 32, "-t", threads, "-tb", threads, "--port", port,
                        "--host", "127.0.0.1", "--alias", "peer"])
        if "vllm" in self.usable and self.wants_engine("vllm-bf16"):
            path = self.guarded(model, "vllm-bf16", "model file", install.checkpoint, model, gguf)
            environment = {k: v for k, v in install.vllm_environment().items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
            if path:
                add("vllm-bf16", environment, lambda port: [
                    install.python("vllm"), "-m", "vllm.entrypoints.openai.api_server", "--model", path, "--port", port,
                    "--host", "127.0.0.1", "--served-model-name", "peer", "--dtype", "bfloat16", "--max-model-len", 8320,
                    "--max-num-batched-tokens", 8320, "--max-num-seqs", 64, "--no-enable-prefix-caching"])
        return out

    def measure_served(self, model):
        running = {}
        try:
            for key, start in self.servers_of(model).items():
                with Step(f"{model}: starting the server of {key}"):
                    def begin(key=key, start=start):
                        running[key] = start()
                        running[key].wait(400)
                    if self.guarded(model, key, "served", lambda: (begin(),)) is None:
                        if key in running:
                            running.pop(key).close()
                    else:
                        running[key].pause()
            found = {key: [] for key in running}
            for number in range(self.args.rounds):
                if number and self.late():
                    say(f"served: {number} of {self.args.rounds} rounds, the time is up")
                    break
                for key, server in list(running.items()):
                    with Step(f"{model}: served: {key}, round {number + 1} of {self.args.rounds}"):
                        answer = self.guarded(model, key, "served", self.client, server, number)
                    if answer is None:
                        running.pop(key).close()
                    else:
                        found[key].append(answer)
            for key, answers in found.items():
                self.add(model, key, "served_throughput", "tok/s", [a["output_tokens_per_second"] for a in answers])
                self.add(model, key, "served_tpot", "ms", [1e3 * a["tpot"] for a in answers])
                self.add(model, key, "served_ttft", "ms", [1e3 * a["ttft"] for a in answers])
        finally:
            for server in running.values():
                server.close()

    def client(self, server, number):
        server.resume()
        try:
            done = subprocess.run([self.install.python("tools"), str(HERE / "peers_client.py"), server.url, "peer", "--seed",
                                   str(number + 1)], capture_output=True, text=True, timeout=400)
        finally:
            server.pause()
        answer = json.loads(done.stdout) if done.stdout else {"error": done.stderr.strip()[-300:]}
        if "error" in answer:
            raise PeerError(f"{server.name}: {answer['error']}")
        return answer

    def measure_start(self, model):
        """Servers of Quire, llama.cpp and vLLM; the library of OpenVINO GenAI, which has none. First: with that engine's
        caches empty; second: again with what the first left. The file system's cache is warm in both."""
        for key, start in self.servers_of(model).items():
            with tempfile.TemporaryDirectory() as cache:
                for which in ("first", "second"):
                    with Step(f"{model}: {which} start of {key}"):
                        def once(start=start, cache=cache):
                            server = start({"XDG_CACHE_HOME": cache, "VLLM_CACHE_ROOT": cache + "/vllm",
                                            "TORCHINDUCTOR_CACHE_DIR": cache + "/inductor"})
                            try:
                                return server.wait(400)
                            finally:
                                server.close()
                        seconds = self.guarded(model, key, "start", once)
                    if seconds is None:
                        break
                    self.add(model, key, f"start_{which}", "s", [seconds])
        loaded = self.facts.get(model, {}).get("openvino-int4", {}).get("load_seconds")
        if loaded:
            self.add(model, "openvino-int4", "start_second", "s", [loaded])

    def everything(self):
        speeds = any(map(self.wants_item, [*ITEMS, "accuracy"]))
        for model in self.args.models:
            if speeds:
                self.measure_model(model)
            if model == SERVED_MODEL and self.wants_item("served"):
                self.measure_served(model)
            if model == START_MODEL and self.wants_item("start"):
                self.measure_start(model)

    def document(self):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
        name = re.search(r"model name\s*: (.*)", text)
        machine = {"cpu": name.group(1) if name else os.uname().machine, "cpus": cpu_list(), "threads": self.args.threads,
                   "memory_gib": round(memory / 2**20), "system": f"{os.uname().sysname} {os.uname().release}",
                   "date": time.strftime("%Y-%m-%d"),
                   "read_gb_per_second": statistics.median(p["read_gb_per_second"] for p in self.peaks) if self.peaks else None,
                   "peaks": sorted({(p["instruction"], p["operand"]) for p in self.peaks})}
        for instruction, operand in machine["peaks"]:
            machine[f"tops_{operand}"] = max(p["tops"] for p in self.peaks if p["instruction"] == instruction)
        return {"machine": machine, "engines": ENGINES, "items": {**{k: v["text"] for k, v in ITEMS.items()}, **OTHER_ITEMS},
                "rounds": self.args.rounds, "minutes": round((time.monotonic() - self.begin) / 60, 1), "rows": self.rows,
                "facts": self.facts, "failures": self.failures}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="items and engines, separated by commas (--list)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine per item (default 3)")
    parser.add_argument("--models", default="qwen2.5-coder-0.5b,qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: the CPUs of this process")
    parser.add_argument("--quire", default=str(ROOT / "build" / "release" / "quire"), help="the program to compare")
    parser.add_argument("--envs", help="folder of the peers' environments (default: quire/peers in $XDG_CACHE_HOME)")
    parser.add_argument("--skip-install", action="store_true", help="use only peers that are installed already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once while llama.cpp is built")
    parser.add_argument("--output", default=str(HERE / "results"), help="folder for peers.md, peers.json and peers.png")
    parser.add_argument("--max-minutes", type=float, default=20, help="after this only first rounds are run")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    parser.add_argument("--install-only", action="store_true", help="install, write the models' other forms, and stop")
    parser.add_argument("--list", action="store_true", help="print the items and engines")
    args = parser.parse_args()
    args.only = [name for name in args.only.split(",") if name]
    args.models = args.models.split(",")
    known = {**ITEMS, **OTHER_ITEMS, **ENGINES}
    for name in args.only:
        if name not in known:
            parser.error(f"--only {name}: neither an item nor an engine; there are {', '.join(known)}")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main():
    args = parse()
    if args.list:
        for name, text in {**{k: v["text"] for k, v in ITEMS.items()}, **OTHER_ITEMS, **ENGINES}.items():
            print(f"{name:18} {text}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(args)
    try:
        run.prepare()
        if args.install_only:
            for model in args.models:
                run.engines_of(model)
            if run.wants_item("served") or run.wants_item("start"):
                run.guarded("", "llama-server", "install", run.install.llama_server)
            return 1 if run.failures else 0
        run.begin = time.monotonic()
        run.everything()
    except PeerError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted; what was measured is written")
    document = run.document()
    document["ratios"] = peers_report.ratios(document)
    if not run.rows and not run.facts:
        say("error: nothing was measured")
        return 2
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    (output / "peers.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    table = peers_report.markdown(document)
    (output / "peers.md").write_text(table, encoding="utf-8")
    if peers_report.panels(document):
        run.guarded("", "picture", "matplotlib", run.install.run, "tools", "picture", [
            run.install.python("tools"), HERE / "peers_report.py", output / "peers.json", output / "peers.png"])
    print(json.dumps(document) if args.json else table)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
