"""The server around the model: keys, health, models, metrics, tokenize, start and stop."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time

import pytest

import fixtures
from conftest import BINARY, running


def test_keys(chain_path):
    with running(chain_path, "--api-key", "alpha", "beta-key") as server:
        def status(value):
            return server.get("/v1/models", headers={} if value is None else {"Authorization": value})

        for good in ("Bearer alpha", "bearer beta-key", "BEARER   alpha"):
            assert status(good).status == 200, good
        for bad in (None, "", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer alphaalpha", "Bearer Alpha",
                    "Basic alpha", "alpha", "Bearer beta"):
            answer = status(bad)
            assert answer.status == 401, bad
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.error["code"] == "invalid_api_key" and answer.error["type"] == "authentication_error"
        assert server.post("/v1/completions", {"prompt": "A"}).status == 401
        assert server.get("/no/such/path").status == 401
        for path in ("/health", "/v1/health", "/ping", "/metrics", "/version"):
            assert server.get(path).status == 200
        assert "alpha" not in "".join(server.log)


def test_keys_from_the_environment(chain_path):
    with running(chain_path, env={"QUIRE_API_KEY": "one,two"}) as server:
        assert server.get("/v1/models").status == 401
        assert server.get("/v1/models", headers={"Authorization": "Bearer two"}).status == 200


def test_models(chain_path):
    with running(chain_path, "--served-model-name", "one", "org/two") as server:
        listed = server.get("/v1/models").json
        assert listed["object"] == "list" and [m["id"] for m in listed["data"]] == ["one", "org/two"]
        item = listed["data"][0]
        assert item["object"] == "model" and item["max_model_len"] == 256 and item["root"] == "chain"
        assert server.get("/v1/models/org/two").json["id"] == "org/two"
        assert server.get("/v1/models/three").status == 404
        assert server.complete("A", max_tokens=1, model="org/two")["model"] == "one"
        assert str(chain_path.parent) not in server.get("/v1/models").text


def test_health_while_loading(models):
    """The listener answers before the model is there: a slow tokenizer pipe holds the loading back."""
    path = fixtures.write_chain(models / "slow")
    (path / "tokenizer.json").rename(path / "real.json")
    os.mkfifo(path / "tokenizer.json")
    process = None
    try:
        with running(path, wait=False) as server:
            process = server.process
            time.sleep(0.3)
            if process.poll() is not None:
                pytest.skip("the loader refuses a pipe in place of a file")
            answer = server.get("/health")
            assert answer.status == 503 and answer.error["message"] == "Loading model"
            assert answer.error["type"] == "unavailable_error" and answer.error["code"] == 503
            assert server.post("/v1/completions", {"prompt": "A"}).status == 503
            assert server.get("/v1/models").headers["retry-after"] == "1"
            assert server.get("/version").status == 200 and server.get("/metrics").status == 200
    finally:
        if process is not None and process.poll() is None:
            process.kill()


def test_health_and_version(chain):
    assert chain.get("/health").json == {"status": "ok"}
    assert chain.request("HEAD", "/health").status == 200
    assert set(chain.get("/version").json) == {"version"}


def test_engine_report(chain):
    info = chain.get("/v1/engine").json
    assert info["compute"]["mode"] in ("f32", "bf16", "int8") and info["compute"]["reason"]
    assert info["limits"]["max_model_len"] == 256 and info["kv_cache"]["num_blocks"] > 0 and info["kv_cache"]["reason"]
    assert info["report"]["threads"] and info["report"]["backend"] and info["report"]["chat template"]


def test_tokenize_both_forms(chain):
    assert chain.post("/tokenize", {"prompt": "AB\u00e9"}).json["tokens"] == [65, 66, 0xC3, 0xA9]
    answer = chain.post("/tokenize", {"prompt": "AB", "return_token_strs": True}).json
    assert answer == {"count": 2, "max_model_len": 256, "tokens": [65, 66], "token_strs": ["A", "B"]}
    pieces = chain.post("/tokenize", {"content": "A\u00e9", "with_pieces": True}).json["tokens"]
    assert pieces == [{"id": 65, "piece": "A"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
    assert chain.post("/tokenize", {"content": "<eos>"}).json["tokens"] == [257]
    assert chain.post("/tokenize", {"content": "<eos>", "parse_special": False}).json["tokens"] == list(b"<eos>")
    assert chain.post("/tokenize", {"content": ""}).json["tokens"] == []
    answer = chain.post("/detokenize", {"tokens": [65, 0xC3, 0xA9, 257]}).json
    assert answer["prompt"] == answer["content"] == "A\u00e9<eos>"
    for body in ({}, {"prompt": 5}, {"content": 5}, {"messages": []}, {"prompt": "A", "model": "other"}):
        assert chain.post("/tokenize", body).status in (400, 404)
    for tokens in (None, 5, ["a"], [-1], [10**6]):
        assert chain.post("/detokenize", {"tokens": tokens}).status == 400


@pytest.mark.parametrize("text", ["a\u0000b", "\ufeff", "\U0010ffff", "a\\nb", "   ", "a\r\n\r\nb", "\u202e", "\U0001f468\u200d\U0001f469"])
def test_text_survives_the_round_trip(chain, text):
    tokens = chain.post("/tokenize", {"prompt": text}).json["tokens"]
    assert tokens == list(text.encode())
    assert chain.post("/detokenize", {"tokens": tokens}).json["prompt"] == text


def test_metrics(chain):
    before = chain.metrics()
    chain.complete("ABC", max_tokens=50)
    chain.complete("A", max_tokens=3)
    chain.chat("A", max_tokens=50, stop=["D"])
    labels = '{engine="0",model_name="chain"'

    def grown(name, extra=""):
        key = name + labels + extra + "}"
        return chain.metrics()[key] - before.get(key, 0)

    assert grown("vllm:prompt_tokens_total") == 5
    assert grown("vllm:generation_tokens_total") >= 34 + 3 + 3
    success = {k.split('finished_reason="')[1].split('"')[0]: v - before[k]
               for k, v in chain.metrics().items() if k.startswith("vllm:request_success_total")}
    assert success["stop"] == 2 and success["length"] == 1 and success["abort"] == 0 and success["error"] == 0
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
                 "request_generation_tokens"):
        assert grown(f"vllm:{name}_count") == 3, name
    assert grown("vllm:inter_token_latency_seconds_count") == 33 + 2 + 2
    assert grown("vllm:iteration_tokens_total_count") >= 34
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"):
        assert chain.metric(f"vllm:{name}") == 0
    assert chain.metric("vllm:cache_config_info", block_size="16") == 1
    page = chain.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'le="2560"' in page.text and "# TYPE vllm:request_success_total counter" in page.text


def test_generation_config_gives_defaults_and_ends(models):
    path = fixtures.write_chain(models / "defaults", eos=[257, 258], overrides={ord("C"): 258},
                                generation={"temperature": 0.0, "top_k": 1})
    with running(path) as server:
        answer = server.post("/v1/completions", {"prompt": "A", "max_tokens": 20}).json
        assert answer["choices"][0]["text"] == "BC" and answer["choices"][0]["finish_reason"] == "stop"


def test_a_seed_for_all(random_path):
    texts = []
    for _ in range(2):
        with running(random_path, "--seed", "7") as server:
            texts.append(server.complete("A", temperature=1, max_tokens=16, return_token_ids=True)["choices"][0]["token_ids"])
    assert texts[0] == texts[1]


def test_flags_that_cannot_work(chain_path, tmp_path):
    def fails(*flags, model=chain_path):
        done = subprocess.run([BINARY, "serve", str(model), "--port", "0", *map(str, flags)], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode not in (0, -6, -11), done.stderr
        return done.stderr

    assert "100000" in fails("--max-model-len", "100000") and "256" in fails("--max-model-len", "100000")
    assert "max-model-len" in fails("--max-model-len", "many")
    assert "--kv-cache-memory-bytes" in fails("--max-model-len", "256", "--kv-blocks", "2")
    assert "nonsense" in fails("--nonsense")
    assert "chat-template" in fails("--chat-template", "/no/such/file")
    assert "chat-template" in fails("--chat-template", "{% if %}")
    assert "--dtype int4" in fails("--dtype", "int4")
    assert fails(model=tmp_path)
    assert fails(model="no-such-model")


def test_lengths_in_thousands(chain_path):
    with running(chain_path, "--max-model-len", "0.2k") as server:
        assert server.get("/v1/models").json["data"][0]["max_model_len"] == 200
    with running(chain_path, "--kv-blocks", "4") as server:
        assert server.get("/v1/models").json["data"][0]["max_model_len"] == 64


def test_the_last_of_a_flag_given_twice_counts(chain_path):
    with running(chain_path, "--threads", "1", "--served-model-name", "x", "y", "--api-key", "k") as server:
        info = server.get("/v1/engine", headers={"Authorization": "Bearer k"}).json
        assert info["threads"] == 1 and info["served_model_names"] == ["x", "y"]


def test_a_port_in_use(chain, chain_path):
    done = subprocess.run([BINARY, "serve", str(chain_path), "--port", str(chain.port)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1 and str(chain.port) in done.stderr


def test_unix_socket(chain_path, tmp_path):
    import socket

    path = str(tmp_path / "quire.sock")
    process = subprocess.Popen([BINARY, "serve", str(chain_path), "--uds", path], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if " serving " in line:
                break
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(path)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.wait(20) == 0 and not os.path.exists(path)


def test_sigterm_lets_streams_end(models):
    path = fixtures.write_chain(models / "long", context=100_000)
    with running(path, "--shutdown-timeout", "20") as server:
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "A", "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": True}))
        answer = connection.getresponse()
        first = answer.read1(100)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(OSError):
            server.get("/health")
        rest = first + answer.read()
        assert rest.rstrip().endswith(b"data: [DONE]")
        assert server.process.wait(20) == 0


def test_sigterm_cuts_streams_after_the_grace_time(models):
    path = fixtures.write_chain(models / "longer", context=1_000_000)
    with running(path, "--shutdown-timeout", "1", "--kv-blocks", "60000") as server:
        texts = []

        def stream():
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "A", "max_tokens": 900_000, "ignore_eos": True, "temperature": 0, "stream": True}))
            try:
                texts.append(connection.getresponse().read())
            except http.client.HTTPException as error:
                texts.append(repr(error).encode())

        thread = threading.Thread(target=stream)
        thread.start()
        time.sleep(0.5)
        started = time.monotonic()
        assert server.stop() == 0
        assert 0.5 < time.monotonic() - started < 10
        thread.join(10)
        assert b'"unavailable_error"' in texts[0] and b"[DONE]" not in texts[0]


def test_generate(chain_path):
    def run(*flags, **kwargs):
        return subprocess.run([BINARY, "generate", str(chain_path), *flags], capture_output=True, text=True, timeout=60,
                              **kwargs)

    done = run("-p", "ABC", "--temperature", "0")
    assert (done.returncode, done.stdout) == (0, "DEFGHIJKLMNOPQRSTUVWXYZ\U0001f999\u00e9\u732b!\n"), done.stderr
    assert run("-p", "-", "--raw", "--temperature", "0", "--max-tokens", "2", input="XY").stdout == "Z\n"
    answer = json.loads(run("-p", "ABC", "--temperature", "0", "--max-tokens", "2", "--json").stdout)
    assert answer == {"model": "chain", "text": "DE", "finish_reason": "length", "prompt_tokens": 3,
                      "completion_tokens": 2}
    assert run("-p", "A" * 300).returncode == 2
    assert run("-p", "", "--raw").returncode == 2


def test_chat_from_a_pipe(models):
    template = "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}{% endfor %}"
    path = fixtures.write_chain(models / "repl", template=template)
    done = subprocess.run([BINARY, "chat", str(path), "--temperature", "0", "--max-tokens", "3"],
                          input="A\nM\n/clear\nX\\\nY\n/nothing\n/exit\nZ\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "BCD\nNOP\nZ\n"
    assert "/nothing" in done.stderr


def test_an_answer_in_the_terminal_can_be_interrupted(models):
    import pty
    import select

    path = fixtures.write_chain(models / "terminal", context=100_000)
    child, terminal = pty.fork()
    if child == 0:
        os.execv(BINARY, [BINARY, "chat", str(path), "--temperature", "0", "--ignore-eos"])

    seen = bytearray()

    def read_until(text, seconds=20):
        """What comes behind the text stays for the next call."""
        deadline = time.monotonic() + seconds
        while text not in seen:
            assert time.monotonic() < deadline, bytes(seen)
            if select.select([terminal], [], [], 0.1)[0]:
                seen.extend(os.read(terminal, 65536))
        del seen[:seen.index(text) + len(text)]

    read_until(b"> ")
    os.write(terminal, b"A\n")
    read_until(b"BCDEFGH")
    os.write(terminal, b"\x03")  # Ctrl-C ends the answer
    read_until(b"(interrupted)")
    read_until(b"> ")
    os.write(terminal, b"\x03")  # and does not leave at the prompt
    read_until(b"/exit to leave")
    os.write(terminal, b"\x04")
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)
