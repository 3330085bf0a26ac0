"""quire eval ppl: each token scored once, in its first window; the same logprobs as the server's; bad input refused."""

import json
import math
import os
import subprocess

import pytest

from conftest import BINARY

TEXT = "The cache holds what was said; the window moves on, and the first words stay. " * 5


def ppl(*args, code=0):
    done = subprocess.run([BINARY, "eval", "ppl", *map(str, args)], capture_output=True, text=True, timeout=120,
                          env=os.environ)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def text_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("eval") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def whole(random_path, text_path):
    """All in one window, with its logprobs."""
    saved = text_path.parent / "whole.json"
    out = json.loads(ppl(random_path, "--text", text_path, "--context", 500, "--json", "--save-logprobs", saved))
    return out, json.loads(saved.read_text())["logprobs"], saved


def server_logprobs(server, text):
    """Of each token but the first."""
    choice = server.complete(text, max_tokens=1, echo=True, logprobs=0)["choices"][0]
    return choice["logprobs"]["token_logprobs"][1:-1]


def test_one_window_is_what_the_server_says(whole, rnd):
    out, logprobs, _ = whole
    expected = server_logprobs(rnd, TEXT)
    assert out["num_tokens"] == len(expected) + 1 and out["num_scored"] == len(logprobs) == len(expected)
    assert logprobs == pytest.approx(expected, abs=1e-6)
    mean = sum(logprobs) / len(logprobs)
    assert out["mean_logprob"] == pytest.approx(mean, rel=1e-9)
    assert out["perplexity"] == pytest.approx(math.exp(-mean), rel=1e-9)
    variance = sum((value - mean) ** 2 for value in logprobs) / (len(logprobs) - 1)
    assert out["mean_logprob_error"] == pytest.approx(math.sqrt(variance / len(logprobs)), rel=1e-6)
    assert out["perplexity_error"] == pytest.approx(out["perplexity"] * out["mean_logprob_error"], rel=1e-9)
    assert out["tokens_per_second"] > 0


def test_windows_score_each_token_once(random_path, text_path, rnd, whole):
    saved = text_path.parent / "windows.json"
    text = ppl(random_path, "--text", text_path, "--context", 100, "--stride", 30, "--save-logprobs", saved,
               "--against", whole[2])
    assert "windows of 100, stride 30" in text and "ratio" in text
    logprobs = json.loads(saved.read_text())["logprobs"]
    expected = []
    begin = 0
    while len(expected) < len(TEXT) - 1:  # one token per byte
        window = server_logprobs(rnd, TEXT[begin:begin + 100])
        expected += window[len(expected) - begin:]
        begin += 30
    assert logprobs == pytest.approx(expected, abs=1e-6)


def test_against_itself_and_another_cache_type(random_path, text_path, whole):
    same = json.loads(ppl(random_path, "--text", text_path, "--context", 500, "--json", "--against", whole[2]))
    assert same["against"]["largest_difference"] == 0 and same["against"]["perplexity_ratio"] == 1
    other = json.loads(ppl(random_path, "--text", text_path, "--context", 500, "--json", "--kv-cache-dtype", "bf16",
                           "--compare-kv-cache-dtype", "f32"))["against"]
    assert 0 < other["mean_absolute_difference"] < other["largest_difference"] < 1
    assert other["perplexity_ratio"] == pytest.approx(math.exp(-other["mean_logprob_difference"]), rel=1e-9)


def test_streaming_eviction(random_path, text_path, whole):
    """A window as long as the text forgets nothing; a short one is another distribution, in far fewer blocks."""
    def score(*args):
        return json.loads(ppl(random_path, "--text", text_path, "--context", 500, "--json", "--kv-eviction", "streaming",
                              "--against", whole[2], *args))

    # The sinks are summed apart, so the last bits differ.
    assert score("--kv-window", 400)["against"]["largest_difference"] < 1e-4
    short = score("--kv-window", 32, "--kv-sinks", 2, "--kv-blocks", 8)
    assert short["num_scored"] == len(whole[1]) and "streaming (2 sinks, window 32)" in short["settings"]
    assert short["against"]["largest_difference"] > 1e-2


@pytest.mark.parametrize("args, message", [
    (["--kv-eviction", "streaming", "--kv-window", "8"], "kv_window must be at least one block"),
    (["--kv-eviction", "streaming", "--kv-window", "60", "--kv-blocks", "4"], "need 6 KV blocks"),
    (["--context", "1"], "--context 1"),
    (["--context", "50", "--stride", "50"], "choose 1 to 49"),
    (["--max-tokens", "1"], "at least 2"),
    (["--against", "/nowhere"], "--against /nowhere"),
    (["--against", "{text}"], "not a file that --save-logprobs wrote"),
    (["--max-tokens", "50", "--against", "{saved}"], "other tokens"),
    (["--save-logprobs", "/nowhere/at/all"], "/nowhere/at/all"),
    (["--compare-kv-cache-dtype", "f99"], "f99"),
    (["--compare-kv-cache-dtype", "f32", "--against", "{saved}"], "give one of them"),
])
def test_bad_input(random_path, text_path, whole, args, message):
    args = [arg.format(text=text_path, saved=whole[2]) for arg in args]
    assert message in ppl(random_path, "--text", text_path, *args, code=2)


def test_bad_text(random_path, tmp_path):
    assert "cannot open" in ppl(random_path, "--text", tmp_path / "none", code=2)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert "UTF-8" in ppl(random_path, "--text", tmp_path / "latin", code=2)
