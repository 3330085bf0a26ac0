"""Servers for the tests: built binary, tiny models, free ports. QUIRE names the binary (default: the release build)."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import fixtures

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Engine files of tests stay out of the user's cache; so every model is packed once and mapped afterwards.
os.environ.setdefault("QUIRE_ENGINE_CACHE", tempfile.mkdtemp(prefix="quire-engines-"))
BINARY = os.environ.get("QUIRE", str(ROOT / "build" / "release" / "quire"))


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        """The error object; checks the shape that every error has."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"]
        return error


class Server:
    """A running `quire serve`."""

    def __init__(self, process, port, log):
        self.process, self.port, self.log = process, port, log

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def request(self, method, path, body=None, headers=None, timeout=60):
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            return Response(answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def complete(self, prompt, **fields):
        """One completion, which must succeed: its whole JSON."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0} | fields)
        assert answer.status == 200, answer.text
        return answer.json

    def chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        answer = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields)
        assert answer.status == 200, answer.text
        return answer.json

    def events(self, path, body):
        """The events of a stream, [DONE] included as the string; checks the framing."""
        answer = self.post(path, body | {"stream": True})
        assert answer.status == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return parse_events(answer.text)

    def metrics(self):
        """Every sample of /metrics: name{labels} -> value."""
        out = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def metric(self, name, **labels):
        for key, value in self.metrics().items():
            if key.split("{")[0] == name and all(f'{k}="{v}"' in key for k, v in labels.items()):
                return value
        raise AssertionError(f"no metric {name} {labels}")

    def state(self):
        return self.get("/v1/engine").json["state"]

    def wait_idle(self, seconds=5):
        """Until nothing runs and every KV block is free; the state then."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            if (state["num_requests_running"] == 0 and state["num_requests_waiting"] == 0
                    and state["num_free_blocks"] == state["num_blocks"]):
                return state
            assert time.monotonic() < deadline, f"not idle after {seconds} s: {state}"
            time.sleep(0.02)

    def stop(self, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def parse_events(text):
    events = []
    assert text.endswith("\n\n") or text == ""
    for block in text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        assert block.startswith("data: ") and "\n" not in block, block
        data = block[len("data: "):]
        events.append(data if data == "[DONE]" else json.loads(data))
    return events


@contextlib.contextmanager
def running(model, *flags, wait=True, env=None):
    """Starts a server on a free port; stops it at the end and checks that it went well."""
    command = [BINARY, "serve", str(model), "--port", "0", "--threads", "2", *map(str, flags)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                               env=os.environ | (env or {}))
    lines, ready, listening = [], threading.Event(), threading.Event()
    port = [0]

    def read():
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"listening on http://[^ ]*:(\d+)", line)
            if found:
                port[0] = int(found.group(1))
                listening.set()
            if " serving " in line:
                ready.set()
        ready.set()
        listening.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert (ready if wait else listening).wait(60), "the server did not start:\n" + "".join(lines)
    server = Server(process, port[0], lines)
    if wait and process.poll() is not None:
        raise AssertionError("the server ended:\n" + "".join(lines))
    try:
        yield server
        if wait:
            assert process.poll() in (None, 0), "the server died:\n" + "".join(lines)
    finally:
        try:
            code = server.stop()
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the server did not stop:\n" + "".join(lines))
        reader.join(5)
        if wait:
            assert code == 0, f"exit code {code}:\n" + "".join(lines)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folder for fixture models, each written once."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def chain_path(models):
    return fixtures.write_chain(models / "chain")


@pytest.fixture(scope="session")
def random_path(models):
    return fixtures.write_random(models / "random")


@pytest.fixture(scope="session")
def chain(chain_path):
    with running(chain_path) as server:
        yield server


@pytest.fixture(scope="session")
def rnd(random_path):
    with running(random_path, "--max-num-batched-tokens", "64", "--max-num-seqs", "16") as server:
        yield server


@pytest.fixture(scope="session")
def tiny(chain_path):
    """Few sequences at once, so that requests queue."""
    with running(chain_path, "--max-num-seqs", "4", "--kv-blocks", "64") as server:
        yield server
