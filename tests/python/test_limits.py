"""Refusals: lengths, types, ranges, malformed bodies (cases LIM-01 to LIM-12, SMP-02, SMP-04)."""

import json
import socket

import pytest

import fixtures
from conftest import running

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def refused(server, path, body, param=None, status=400):
    answer = server.post(path, body)
    assert answer.status == status, (answer.status, answer.text)
    error = answer.error
    if param is not None:
        assert error["param"] == param or (error["param"] or "").startswith(param), error
        assert param.split("[")[0] in error["message"], error
    return error


@pytest.fixture(autouse=True)
def alive(chain):
    yield
    assert chain.complete("A", max_tokens=1)["choices"][0]["text"] == "B"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("length", [256, 5000])
def test_a_prompt_over_the_context(chain, length, stream):
    for path, prompt in ((TEXT, {"prompt": "A" * length}),
                         (CHAT, {"messages": [{"role": "user", "content": "A" * length}]})):
        error = refused(chain, path, prompt | {"stream": stream})
        assert error["code"] == "context_length_exceeded"
        assert str(length) in error["message"] and "256" in error["message"]


@pytest.mark.parametrize("limit", [6, 10, 10**12, 2**63, 10**30, None])
def test_max_tokens_is_cut_to_what_fits(chain, limit):
    fields = {} if limit is None else {"max_tokens": limit}
    answer = chain.complete("A" * 250, ignore_eos=True, **fields)
    assert answer["usage"]["completion_tokens"] == 6 and answer["choices"][0]["finish_reason"] == "length"


def test_eviction_lifts_the_bounds_of_context_and_cache(rnd, random_path):
    """As a request's field and as the server's default, which another request may switch off: the same answer."""
    fields = {"prompt": "The window moves on. " * 15, "max_tokens": 600, "ignore_eos": True, "seed": 3}
    want = rnd.post(TEXT, fields | {"kv_eviction": "streaming", "kv_window": 32, "kv_sinks": 2})
    assert want.json["usage"]["completion_tokens"] == 600
    with running(random_path, "--kv-eviction", "streaming", "--kv-window", "32", "--kv-sinks", "2",
                 "--kv-blocks", "8", "--max-num-batched-tokens", "16") as server:  # 128 tokens of cache
        got = server.post(TEXT, fields)
        assert got.json["choices"] == want.json["choices"] and got.json["usage"] == want.json["usage"]
        refused(server, TEXT, fields | {"kv_eviction": "none"}, "prompt")


def test_max_tokens_zero(chain):
    refused(chain, TEXT, {"prompt": "A", "max_tokens": 0}, "max_tokens")
    refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], "max_tokens": 0}, "max_tokens")
    refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], "max_completion_tokens": 0},
            "max_completion_tokens")


def test_empty_prompts(chain):
    for prompt in ("", [], [[]], [""]):
        refused(chain, TEXT, {"prompt": prompt}, "prompt")
    refused(chain, TEXT, {}, "prompt")
    refused(chain, CHAT, {"messages": []}, "messages")
    refused(chain, CHAT, {}, "messages")


@pytest.mark.parametrize("body", [
    b"", b"{:", b"[]", b"5", b'{"prompt": "A"} x', b'{"prompt": NaN}', b'{"temperature": Infinity, "prompt": "A"}',
    b'{"prompt": "A", "prompt": "B"}', b'{"x":' + b"[" * 100000, b'{"prompt":"A","x":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"x":' * 1000, b'{"prompt": "A", "temperature": 1e999}', b"{'prompt': 'A'}", b'{"prompt": "A",}',
])
def test_malformed_json(chain, body):
    answer = chain.post(TEXT, body)
    assert answer.status == 400 and answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [
    b'{"prompt": "\xc4\xe3\xba\xc3"}',  # GBK
    b'{"prompt": "\xc0\x80"}', b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\xff"}',
    b'{"prompt": "\\ud83d"}', b'{"prompt": "\\udc00\\ud800"}', b'{"\xff": 1, "prompt": "A"}',
])
def test_text_that_is_not_unicode(chain, body):
    answer = chain.post(TEXT, body)
    assert answer.status == 400
    assert answer.error["message"]


@pytest.mark.parametrize("field,values", [
    ("temperature", ["hot", -1, 101, [], True]),
    ("top_p", ["x", -0.1, 1.5]),
    ("top_k", ["x", 1.5, -2]),
    ("min_p", [-1, 2, "x"]),
    ("presence_penalty", [-3, 3, "x"]),
    ("frequency_penalty", [-3, 3, {}]),
    ("repetition_penalty", [0, -1, 11, "x"]),
    ("max_tokens", ["5", 1.5, -1, []]),
    ("min_tokens", ["5", 1.5, -1]),
    ("n", [0, -1, 10**6, "1", 1.5]),
    ("best_of", [2, 0, "x"]),
    ("seed", [2**70, "x", 1.5]),
    ("stop", [5, [1], [""], "", ["a"] * 100, "x" * 10**6, {}]),
    ("stop_token_ids", [5, [-1], [10**6], ["a"], [1.5]]),
    ("stream", ["yes", 1, []]),
    ("logit_bias", [[], "x", {"additionalProp1": 0}, {"5": 101}, {"5": -101}, {"5": "x"}, {"99999": 1}, {"-1": 1},
                    {"1.5": 1}]),
    ("ignore_eos", [1, "true"]),
    ("skip_special_tokens", ["x"]),
    ("include_stop_str_in_output", ["x"]),
    ("allowed_token_ids", [[], [-1], [10**9], 5]),
    ("bad_words", ["x", [1], [""]]),
    ("prompt_logprobs", [-1, 21, "x"]),
    ("priority", ["x", 1.5]),
    ("request_id", [5, "x" * 1000]),
    ("stream_options", [{}]),
    ("model", [5]),
    ("add_special_tokens", [5]),
    ("return_token_ids", [5]),
])
def test_wrong_types_and_ranges(chain, field, values):
    for value in values:
        refused(chain, TEXT, {"prompt": "A", field: value}, field)
        refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], field: value}, field)


@pytest.mark.parametrize("messages", [
    "x", [5], [[]], [{}], [{"role": "wizard", "content": "A"}], [{"role": 5, "content": "A"}], [{"content": "A"}],
    [{"role": "user"}], [{"role": "user", "content": 5}], [{"role": "user", "content": [5]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}]}],
    [{"role": "assistant", "content": "A", "tool_calls": 5}],
    [{"role": "assistant", "content": "A", "tool_calls": [{"id": "x"}]}],
])
def test_wrong_messages(chain, messages):
    refused(chain, CHAT, {"messages": messages}, "messages")


@pytest.mark.parametrize("field,values", [
    ("logprobs", [-1, 21, "x", 1.5, True]),
    ("echo", [1]),
    ("suffix", ["x"]),
    ("prompt", [5, {}, [1.5], [True], [-1], [999999], [264], ["a", 5], [[1], "a"], [["a"]], [[1], [-1]]]),
])
def test_wrong_completion_fields(chain, field, values):
    for value in values:
        refused(chain, TEXT, {"prompt": "A"} | {field: value}, field)


@pytest.mark.parametrize("field,values", [
    ("logprobs", [5, "x"]),
    ("top_logprobs", [2, 21, -1, "x"]),
    ("tools", [5, [5], [{}], [{"type": "function"}], [{"type": "function", "function": {}}]]),
    ("tool_choice", ["required", {"type": "function", "function": {"name": "f"}}, 5]),
    ("chat_template_kwargs", [5, {"messages": []}]),
    ("chat_template", ["x", "{% for a in range(25000) %}{% endfor %}"]),
    ("reasoning_effort", ["maximal", 5]),
    ("documents", [5]),
    ("modalities", [["audio"]]),
])
def test_wrong_chat_fields(chain, field, values):
    for value in values:
        refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], field: value}, field)
    refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], "logprobs": True, "top_logprobs": 21},
            "top_logprobs")


@pytest.mark.parametrize("field,value", [
    ("response_format", {"type": "json_object"}), ("response_format", {"type": "json_schema", "json_schema": {}}),
    ("response_format", 5), ("structured_outputs", {"json": {}}), ("guided_json", {}), ("guided_regex", "a"),
    ("use_beam_search", True), ("truncate_prompt_tokens", 5), ("logits_processors", ["x"]),
    ("repetition_detection", {"max_pattern_size": 2}), ("thinking_token_budget", 5), ("length_penalty", 2.0),
])
def test_what_is_not_offered_is_refused_by_name(chain, field, value):
    refused(chain, TEXT, {"prompt": "A", field: value}, field)
    refused(chain, CHAT, {"messages": [{"role": "user", "content": "A"}], field: value}, field)


def test_harmless_fields_are_accepted(chain):
    fields = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True,
              "cache_salt": "s", "response_format": {"type": "text"}, "use_beam_search": False, "best_of": 1,
              "request_id": "abc", "stop": None, "logit_bias": None, "seed": None}
    assert chain.complete("A", max_tokens=1, **fields)["id"].endswith("abc")
    chain.chat("A", max_tokens=1, tool_choice="none", reasoning_effort="low", **fields)


def test_unknown_fields_do_not_fail(chain):
    body = {"prompt": "A", "max_tokens": 1, "temperature": 0, "no_such_field": [1, {"a": None}], "bad\r\nname": 1}
    answer = chain.post(TEXT, body)
    assert answer.json["choices"][0]["text"] == "B"
    assert answer.headers["x-quire-ignored-fields"] == "no_such_field"


def test_huge_bodies(chain_path):
    from conftest import running

    with running(chain_path, "--max-request-bytes", "100000") as server:
        answer = server.post(TEXT, b'{"prompt": "' + b"A" * 200_000 + b'"}')
        assert answer.status == 413 and "100000" in answer.error["message"]
        # Chunked, without a length, far over the limit.
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                connection.sendall(b"10000\r\n" + b"A" * 0x10000 + b"\r\n")
                sent += 0x10000
        except OSError:
            pass
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1])
        connection.close()
        assert server.complete("A", max_tokens=1)
        assert peak < 600_000, f"{peak} KiB"


def test_methods_paths_and_models(chain):
    answer = chain.get(TEXT)
    assert answer.status == 405 and answer.headers["allow"] == "POST" and answer.error["code"] == 405
    assert chain.get("/nothing").status == 404
    assert chain.get("/v1/models/%2e%2e%2fetc").status == 404
    for name in ("other", "../../etc/passwd", "/etc", "a\u0000b", "x" * 5000):
        error = refused(chain, TEXT, {"model": name, "prompt": "A"}, "model", 404)
        assert error["code"] == "model_not_found" and "/work" not in error["message"]
        assert len(error["message"]) < 1000


def test_no_content_type_is_accepted(chain):
    connection = socket.create_connection(("127.0.0.1", chain.port), timeout=20)
    body = json.dumps({"prompt": "A", "max_tokens": 1, "temperature": 0}).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    data = b""
    while piece := connection.recv(65536):
        data += piece
    assert data.startswith(b"HTTP/1.1 200") and b'"text":"B"' in data


def test_padded_ids_are_readable(chain):
    """Ids without a token, but inside the embedding, are refused: the tokenizer does not know them."""
    refused(chain, TEXT, {"prompt": [fixtures.VOCAB - 1]}, "prompt")
