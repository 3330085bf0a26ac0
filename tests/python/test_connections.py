"""Clients that leave, stall, dribble or come all at once (cases CON-01 to CON-09)."""

import concurrent.futures
import json
import os
import socket
import threading
import time

import pytest

import fixtures
from conftest import running

TEXT = "/v1/completions"


def raw_request(body):
    text = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(text)) + text


@pytest.fixture(scope="module")
def long_chain(models):
    """A chain with a long context, so that answers last."""
    return fixtures.write_chain(models / "endless_chain", context=200_000)


@pytest.fixture(scope="module")
def slots(long_chain):
    with running(long_chain, "--max-num-seqs", "4", "--kv-blocks", "20000", "--max-num-batched-tokens", "64",
                 "--http-write-timeout", "1", "--http-header-timeout", "1.5") as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["A", "A" * 20_000])
def test_clients_that_leave_free_their_blocks(slots, stream, prompt):
    slots.wait_idle()
    for _ in range(10):
        connection = slots.socket()
        connection.sendall(raw_request({"prompt": prompt, "max_tokens": 100_000, "ignore_eos": True, "stream": stream}))
        time.sleep(0.05)
        connection.close()
    slots.wait_idle(2)
    assert slots.complete("A", max_tokens=2)["choices"][0]["text"] == "BC"


def test_aborted_connections_leave_nothing(slots):
    def descriptors():
        return len(os.listdir(f"/proc/{slots.process.pid}/fd"))

    slots.complete("A", max_tokens=1)
    before = descriptors()
    for i in range(200):
        connection = slots.socket()
        if i % 3 == 1:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"pro")
        elif i % 3 == 2:
            connection.sendall(raw_request({"prompt": "A", "max_tokens": 1000, "ignore_eos": True, "stream": True}))
            connection.recv(100)
        connection.close()
    slots.complete("A", max_tokens=1)
    slots.wait_idle(3)
    deadline = time.monotonic() + 5
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors() <= before


def test_a_reader_that_stalls_is_dropped_and_hinders_nobody(slots):
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.connect(("127.0.0.1", slots.port))
    stalled.sendall(raw_request({"prompt": "A", "max_tokens": 150_000, "ignore_eos": True, "stream": True,
                                 "logprobs": 20, "temperature": 0}))
    for _ in range(3):
        assert slots.complete("A", max_tokens=20)["choices"][0]["text"] == "BCDEFGHIJKLMNOPQRSTU"
    # 1 s without progress, after the kernel's buffers are full.
    slots.wait_idle(20)
    stalled.close()


def test_a_burst_is_answered(tiny):
    statuses, problems = [], []
    gate = threading.Barrier(100)

    def five(index):
        try:
            gate.wait(30)
            sockets = [tiny.socket() for _ in range(5)]
            for one in sockets:
                one.sendall(raw_request({"prompt": "ABC", "max_tokens": 5, "temperature": 0})
                            .replace(b"Host: x", b"Host: x\r\nConnection: close"))
            for one in sockets:
                data = b""
                while piece := one.recv(65536):
                    data += piece
                status = int(data.split()[1])
                statuses.append(status)
                if status == 200:
                    assert b'"text":"DEFGH"' in data
                else:
                    assert status in (429, 503) and b"retry-after" in data.lower()
        except Exception as error:  # noqa: BLE001
            problems.append(repr(error))

    threads = [threading.Thread(target=five, args=(i,)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not problems and len(statuses) == 500
    assert statuses.count(200) > 400
    tiny.wait_idle()


def test_a_full_queue_refuses_with_retry_after(long_chain):
    with running(long_chain, "--max-num-seqs", "1", "--max-num-queued-reqs", "2", "--kv-blocks", "20000") as server:
        busy = [server.socket() for _ in range(3)]
        for one in busy:
            one.sendall(raw_request({"prompt": "A", "max_tokens": 100_000, "ignore_eos": True, "stream": True}))
            time.sleep(0.1)
        for stream in (False, True):
            answer = server.post(TEXT, {"prompt": "A", "stream": stream})
            assert answer.status == 503 and answer.headers["retry-after"]
            assert answer.error["type"] == "unavailable_error"
        assert server.metric("vllm:admission_rejections_total") == 2
        assert server.metric("vllm:num_requests_running") == 1 and server.metric("vllm:num_requests_waiting") == 2
        for one in busy:
            one.close()
        server.wait_idle(3)
        assert server.complete("A", max_tokens=1)


def test_too_many_connections(chain_path):
    with running(chain_path, "--max-connections", "8") as server:
        held = [server.socket() for _ in range(8)]
        time.sleep(0.2)
        answer = server.get("/health")
        assert answer.status == 503 and answer.headers["retry-after"] == "1" and answer.error["message"]
        for one in held:
            one.close()
        time.sleep(0.2)
        assert server.get("/health").status == 200


def test_slow_headers_end(slots):
    sockets = [slots.socket() for _ in range(300)]
    started = time.monotonic()
    for byte in b"GET /he":
        for one in sockets:
            try:
                one.sendall(bytes([byte]))
            except OSError:
                pass
        assert slots.get("/health", timeout=5).status == 200
        time.sleep(0.25)
    for one in sockets:
        one.settimeout(10)
        data = one.recv(65536)
        assert data == b"" or data.startswith(b"HTTP/1.1 408")
        one.close()
    assert time.monotonic() - started < 15


def test_an_error_of_one_request_is_its_own(models):
    # 'q' has an embedding of NaN: only a sequence that reads it has logits that are no numbers.
    path = fixtures.write_chain(models / "poisoned", nan_after=ord("q"))
    with running(path) as server:
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            good = [pool.submit(server.complete, "ABC", max_tokens=50) for _ in range(8)]
            bad = pool.submit(server.post, TEXT, {"prompt": "q", "max_tokens": 5, "temperature": 0})
            assert all(g.result()["choices"][0]["text"].startswith("DEFG") for g in good)
        answer = bad.result()
        assert answer.status == 500 and answer.error["type"] == "server_error"
        streamed = server.post(TEXT, {"prompt": "q", "max_tokens": 5, "stream": True})
        assert streamed.status == 500 or (b'"error"' in streamed.body and b"[DONE]" not in streamed.body)
        assert server.metric("vllm:request_success_total", finished_reason="error") == 2
        assert server.get("/health").status == 200
        server.wait_idle()


def test_a_small_pool_preempts_and_changes_nothing(rnd, random_path):
    prompts = [[(7 * i + j) % 256 for j in range(40)] for i in range(12)]
    fields = dict(max_tokens=40, ignore_eos=True, return_token_ids=True, logprobs=1)
    alone = [rnd.complete(p, **fields)["choices"][0] for p in prompts]
    with running(random_path, "--kv-blocks", "20", "--max-num-batched-tokens", "32", "--max-num-seqs", "8") as small:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            packed = [f.result()["choices"][0] for f in [pool.submit(small.complete, p, **fields) for p in prompts]]
        assert small.metric("vllm:num_preemptions_total") > 0
        small.wait_idle()
    assert [(c["token_ids"], c["logprobs"]) for c in packed] == [(c["token_ids"], c["logprobs"]) for c in alone]
