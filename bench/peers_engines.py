"""The engines of peers.py as processes: workers of the peers (peers_worker.py), runs of `quire bench`, and HTTP servers.

Every process, with its children, is stopped (SIGSTOP) while another one is measured, so that no engine pays for the
idle spinning of another.
"""
import ctypes
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

from peers_install import HERE, PeerError


PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent():
    """A stopped engine would outlive a peers.py that was killed, with all its memory."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    def __init__(self, name, command, environment, log, **pipes):
        self.name, self.log = name, log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([str(part) for part in command], env={**os.environ, **environment},
                                            stderr=errors, start_new_session=True, preexec_fn=die_with_parent, **pipes)

    def family(self):
        """The process and all below it; vLLM's workers leave the process group."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        found = [self.process.pid]
        for pid in found:
            found += parents.get(pid, [])
        return found

    def signal(self, number, family=None):
        for pid in family or self.family():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def close(self):
        self.resume()
        family = self.family()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        self.signal(signal.SIGKILL, family)  # also what an engine left behind
        self.process.wait()

    def died(self):
        text = pathlib.Path(self.log).read_text(errors="replace").strip().splitlines()
        wrong = [line for line in text if "rror" in line][-1:] or text[-1:]
        return PeerError(f"{self.name}: ended with {self.process.poll()}: {' '.join(wrong)[:300]} (see {self.log})")


class Worker(Process):
    """A peer's library in a process of its own environment."""

    def __init__(self, name, python, kind, model, threads, environment, log):
        self.started = time.monotonic()
        super().__init__(name, [python, HERE / "peers_worker.py", kind, model, "--threads", threads], environment, log,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rest = b""

    def ask(self, op, limit=600, **arguments):
        self.resume()
        try:
            self.process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
            answer = json.loads(self.line(limit))
        except BrokenPipeError:
            raise self.died() from None
        finally:
            self.pause()
        if "error" in answer:
            raise PeerError(f"{self.name}: {op}: {answer['error'][:300]} (see {self.log})")
        return answer

    def line(self, limit):
        until = time.monotonic() + limit
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise PeerError(f"{self.name}: no answer within {limit} s (see {self.log})")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                self.process.wait()
                raise self.died()
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line


def random_ids(length, seed):
    """Ordinary token ids, the same for every engine; no prompt shares a beginning with another."""
    return [(seed * 7919 + i * 104729) % 30000 + 100 for i in range(length)]


class Peer:
    """One peer with one model file; `measure` gives tokens per second."""

    def __init__(self, key, label, kind, start):
        self.key, self.label, self.kind, self.start_worker = key, label, kind, start
        self.worker, self.info, self.seed = None, {}, 0

    def load(self):
        """Starts the process; seconds until it has answered a first token."""
        self.worker = self.start_worker()
        try:
            self.info = self.worker.ask("load", limit=900)
            self.worker.ask("greedy", ids=random_ids(4, 1), steps=1)
        except PeerError:
            self.close()
            raise
        return time.monotonic() - self.worker.started

    def close(self):
        if self.worker:
            self.worker.close()
            self.worker = None

    def measure(self, shape):
        self.seed += 40
        if shape["batch"] > 1:
            prompts = [random_ids(shape["input"], self.seed + i) for i in range(shape["batch"])]
            answer = self.worker.ask("batch_decode", prompts=prompts, steps=shape["output"])
            return answer["tokens"] / answer["seconds"]
        ids = random_ids(shape["input"], self.seed)
        if shape["output"] == 0:
            return shape["input"] / self.worker.ask("prefill", ids=ids)["seconds"]
        return shape["output"] / self.worker.ask("decode", ids=ids, steps=shape["output"])["seconds"]

    def greedy(self, ids, steps):
        return self.worker.ask("greedy", ids=ids, steps=steps)["ids"]

    def accuracy(self, name, golden):
        """Mean absolute difference of the best logprob of the references, and how often the best token is theirs."""
        total = agree = count = missing = 0
        for row in golden:
            if row["model"] != name:
                continue
            best = [top[0] for top in row["top5"]]
            rows = self.worker.ask("logprobs", ids=row["ids"], wanted=[[i] for i, _ in best])["rows"]
            for (mine, _, logprobs), (wanted, logprob) in zip(rows, best):
                agree += mine == wanted
                if str(wanted) in logprobs:
                    total, count = total + abs(logprobs[str(wanted)] - logprob), count + 1
                else:
                    missing += 1  # outside the best 20 that the engine tells
        return {"mean": total / count, "agree": agree / (count + missing), "positions": count + missing}


class Quire:
    """`quire bench latency`, a fresh process for each figure."""

    def __init__(self, binary, key, label, path, compute, threads, logs):
        self.key, self.label, self.kind, self.path, self.compute = key, label, "quire", path, compute
        self.binary, self.threads, self.log, self.peaks = binary, threads, logs / f"{key}.log", []
        self.info = {"precision": {"bf16": "bf16 activations, f32 sums",
                                   "int8": "int8 activations (groups), int32 sums"}[compute]}

    def load(self):
        return None

    def close(self):
        pass

    def measure(self, shape):
        long = shape["input"] > 2048
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [self.binary, "bench", "latency", self.path, "--compute", self.compute, "--threads", self.threads,
                       "--input-len", shape["input"], "--output-len", shape["output"] + 1, "--batch-size", shape["batch"],
                       "--num-iters-warmup", 0 if long else 1, "--num-iters", 1, "--check", "none" if long else "repeat",
                       "--output-json", out.name]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
            with open(self.log, "a") as log:
                log.write(done.stdout + done.stderr)
            if done.returncode != 0:
                last = done.stderr.strip().splitlines()[-1:] or ["no message"]
                raise PeerError(f"{self.key}: quire bench latency ended with {done.returncode}: {last[0][:300]}")
            answer = json.load(open(out.name))
        self.peaks.append(answer["peaks"])
        self.info["version"] = answer["machine"]["version"] + ", " + answer["machine"]["isa"]
        self.info["weight_bytes"] = answer["cost"]["weight_bytes_per_step"]
        return answer["decode" if shape["output"] else "prefill"]["tokens_per_second"]

    def greedy(self, ids, steps):
        server = Server(self.key, self.serve_command, {}, self.log)
        try:
            server.wait(120)
            answer = server.complete(ids, steps, return_token_ids=True)
            return answer["choices"][0]["token_ids"]
        finally:
            server.close()

    def serve_command(self, port):
        return [self.binary, "serve", self.path, "--compute", self.compute, "--threads", self.threads, "--port", port,
                "--max-model-len", 2048, "--served-model-name", "peer"]

    def accuracy(self, name, golden):
        tool = pathlib.Path(self.binary).parent / "golden_logits"
        if not tool.exists():
            return None
        done = subprocess.run([str(tool), self.path, name, "--golden", golden, "--threads", str(self.threads), "--compute",
                               self.compute], capture_output=True, text=True, timeout=600)
        found = re.search(r"(\d+) positions .*best mean (\S+), agree (\S+)", done.stdout)
        if not found:
            return None
        return {"mean": float(found.group(2)), "agree": float(found.group(3)), "positions": int(found.group(1))}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server(Process):
    """An OpenAI-compatible server on a free port; `wait` gives the seconds from its start to its first token."""

    def __init__(self, name, command_of_port, environment, log):
        self.port, self.started = free_port(), time.monotonic()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(name, command_of_port(self.port), environment, log, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL)

    def complete(self, ids, steps, **more):
        body = {"model": "peer", "prompt": ids, "max_tokens": steps, "temperature": 0, "ignore_eos": True, **more}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        finally:
            connection.close()
        if response.status == 503:
            raise ConnectionRefusedError  # still loading
        if response.status != 200:
            raise PeerError(f"{self.name}: HTTP {response.status}: {text[:300]}")
        return json.loads(text)

    def wait(self, limit):
        while time.monotonic() - self.started < limit:
            if self.process.poll() is not None:
                raise self.died()
            try:
                self.complete(random_ids(4, 1), 1)
                return time.monotonic() - self.started
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.01)
        raise PeerError(f"{self.name}: not ready within {limit} s (see {self.log})")
