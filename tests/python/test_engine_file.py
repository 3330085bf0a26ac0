"""Engine files: a second start maps what the first one packed and answers the same; wrong files are told and replaced;
`quire build` writes one that needs no checkpoint."""

import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import BINARY, running

PROMPT = {"max_tokens": 12, "logprobs": 5, "ignore_eos": True}


def report(server, key):
    return server.get("/v1/engine").json["report"][key]


def answers(server):
    """Text and every logprob, in full precision."""
    return json.dumps([server.complete(prompt, **PROMPT)["choices"][0] for prompt in ("A", "Hello, world", "xyz" * 20)])


def start(model, cache, *flags):
    return running(model, "--engine-cache", cache, *flags)


@pytest.fixture
def model(random_path, tmp_path):
    return shutil.copytree(random_path, tmp_path / "model")


def files(cache):
    return sorted(os.listdir(cache)) if os.path.isdir(cache) else []


def test_the_second_start_maps_and_answers_the_same(model, tmp_path):
    cache = tmp_path / "cache"
    with start(model, "off") as server:
        plain = answers(server)
        assert report(server, "engine file") == ["none: --engine-cache off"]
    assert files(cache) == []
    with start(model, cache) as server:
        first = answers(server)
        assert report(server, "engine file")[0].startswith("written: ")
    (name,) = files(cache)
    assert re.fullmatch(r"model-[0-9a-f]{16}\.qengine", name)
    before = os.stat(cache / name)
    with start(model, cache) as server:
        second = answers(server)
        assert report(server, "engine file")[0].startswith(f"mapped: {cache / name}")
        assert server.get("/v1/engine").json["engine_file"] == str(cache / name)
    assert os.stat(cache / name).st_ino == before.st_ino and files(cache) == [name]
    assert plain == first == second
    # Another compute mode has a file of its own.
    with start(model, cache, "--compute", "f32", "--dtype", "bfloat16") as server:
        assert report(server, "engine file")[0].startswith("written: ")
    assert len(files(cache)) == 2


def test_a_changed_checkpoint_is_packed_again(model, tmp_path):
    cache = tmp_path / "cache"
    with start(model, cache) as server:
        before = answers(server)
    (name,) = files(cache)
    (weights,) = (path for path in model.iterdir() if path.suffix == ".safetensors")
    content = bytearray(weights.read_bytes())
    content[-4096:] = bytes(4096)
    weights.write_bytes(content)
    with start(model, cache) as server:
        after = answers(server)
        assert any("is out of date" in line and "has changed" in line for line in server.log), server.log
        assert report(server, "engine file")[0].startswith("written: ")
    assert files(cache) == [name]
    with start(model, cache) as server:
        assert report(server, "engine file")[0].startswith("mapped: ")
        assert answers(server) == after
    assert after != before


@pytest.mark.parametrize("damage, said", [
    (lambda bytes_: bytes_[:len(bytes_) // 2], "cut short"),
    (lambda bytes_: b"something else" * 1000, "not an engine file"),
    (lambda bytes_: bytes_[:-20] + b"x" + bytes_[-19:], "table is damaged"),
    (lambda bytes_: b"", "cut short"),
])
def test_a_damaged_file_is_named_and_replaced(model, tmp_path, damage, said):
    cache = tmp_path / "cache"
    with start(model, cache) as server:
        good = answers(server)
    (name,) = files(cache)
    (cache / name).write_bytes(damage((cache / name).read_bytes()))
    with start(model, cache) as server:
        assert any(name in line and said in line for line in server.log), server.log
        assert answers(server) == good
    assert files(cache) == [name]
    assert subprocess.run([BINARY, "inspect", "--verify", cache / name], capture_output=True).returncode == 0


def test_a_cache_that_cannot_be_written(model, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    with start(model, blocked / "cache") as server:
        assert report(server, "engine file")[0].startswith("none: cannot create")
        assert any("no engine file" in line for line in server.log)
        server.complete("A", max_tokens=1)


def test_a_full_disk(model, tmp_path):
    """A limit on the size of files stands for it: the write fails in the middle."""
    cache = tmp_path / "cache"
    command = ["bash", "-c", 'ulimit -f 64; exec "$0" generate "$1" --engine-cache "$2" -p A -n 2 --temperature 0', BINARY,
               model, cache]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no engine file: cannot write" in done.stderr and files(cache) == []
    done = subprocess.run(command[:2] + ['ulimit -f 64; exec "$0" build "$1" -o "$2"', BINARY, model, tmp_path / "e"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "cannot write" in done.stderr, done.stderr
    assert files(tmp_path / "e") == []


def build(*arguments):
    return subprocess.run([BINARY, "build", *map(str, arguments)], capture_output=True, text=True)


def test_build_and_serve_without_the_checkpoint(model, tmp_path):
    with start(model, "off") as server:
        wanted = answers(server)
        chat = server.get("/v1/engine").json["report"]["tokenizer"]
    out = tmp_path / "engine"
    done = build(model, "-o", out, "--max-batch-size", 3, "--max_input_len", 100, "--max-output-len", 50, "--threads",
                 2, "--json")
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    assert built["path"] == str(out / "model.qengine") and files(out) == ["model.qengine"]
    assert [measured["what"] for measured in built["tuning"]["measurements"]] == [
        "decode, 1 sequence", "decode, 3 sequences", "prompt of 100 tokens"]
    shutil.rmtree(model)
    with running(f"--engine-dir={out}") as server:
        assert answers(server) == wanted
        info = server.get("/v1/engine").json
        assert info["limits"]["max_num_seqs"] == 3 and info["limits"]["max_model_len"] == 150
        assert info["report"]["tokenizer"] == chat and info["model"] == "model"
    with running(out, "--max-num-seqs", "8", "--max-model-len", "200") as server:
        assert server.get("/v1/engine").json["limits"]["max_num_seqs"] == 8
    shown = json.loads(subprocess.run([BINARY, "inspect", "--json", "--verify", out], capture_output=True).stdout)
    assert shown["verified"] is True and shown["needs_checkpoint"] is False and shown["max_batch_size"] == 3

    def refused(*flags, **env):
        run = subprocess.run([BINARY, "generate", *map(str, flags), "-n", "1", "--prompt", "A"], capture_output=True,
                             text=True, env=os.environ | env)
        assert run.returncode == 2, (run.returncode, run.stderr)
        return run.stderr

    assert "is for (cpu" in refused("--engine-dir", out, QUIRE_ISA="generic")
    assert "is for (cpu" in refused("--engine-dir", out, "--compute", "f32" if built["compute"] != "f32" else "bf16")
    assert "leave out" in refused("some-model", "--engine-dir", out)
    assert "quire build" in refused("--engine-dir", tmp_path / "none")
    content = (out / "model.qengine").read_bytes()
    (out / "model.qengine").write_bytes(content[:-1])
    assert "cut short" in refused("--engine-dir", out)
    assert files(out) == ["model.qengine"], "a named file is not replaced"


def test_build_refuses(model, tmp_path):
    for arguments, said in (((model, "-o", tmp_path / "e", "--max-input-len", 100000, "--max-output-len", 100), "context"),
                            ((tmp_path / "none", "-o", tmp_path / "e"), "none"),
                            ((model,), "output"),
                            ((model, "-o", tmp_path / "e", "--max-batch-size", 0), "max-batch-size")):
        done = build(*arguments)
        assert done.returncode == 2 and said in done.stderr, (done.returncode, done.stderr)
    assert not (tmp_path / "e").exists()
