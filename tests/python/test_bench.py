"""quire bench: flags and JSON as users of vllm bench know them, exit codes, answers checked, bad input refused."""

import json
import os
import subprocess

import pytest

import fixtures
from conftest import BINARY


def bench(*args, code=0, env=None):
    done = subprocess.run([BINARY, "bench", *map(str, args)], capture_output=True, text=True, timeout=120,
                          env=os.environ | (env or {}))
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def refused(*args, code=2, env=None):
    """The message of a refusal: on stderr, one line."""
    done = bench(*args, code=code, env=env)
    assert done.stdout == ""
    return done.stderr


def approx(value):
    return pytest.approx(value, rel=1e-6)


def check_machine(out):
    machine = out["machine"]
    assert machine["threads"] == 2 and machine["cpu"] and machine["isa"]
    assert machine["date"].endswith("Z") and machine["version"]
    peaks = out["peaks"]
    assert peaks["read_gb_per_second"] > 0.1 and peaks["gmac_per_second"] > 0.1
    assert peaks["tops"] == approx(peaks["gmac_per_second"] * 2e-3) and peaks["instruction"]


@pytest.fixture(scope="module")
def latency(random_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "latency.json"
    done = bench("latency", random_path, "--input-len", 40, "--output-len", 12, "--batch-size", 3, "--n", 2,
                 "--num-iters-warmup", 1, "--num-iters", 4, "--threads", 2, "--max-num-batched-tokens", 64,
                 "--output-json", path)
    return done.stdout, json.loads(path.read_text())


def test_latency_json(latency):
    _, out = latency
    assert len(out["latencies"]) == 4 and min(out["latencies"]) > 0
    assert out["avg_latency"] == approx(sum(out["latencies"]) / 4)
    assert list(out["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert min(out["latencies"]) <= out["percentiles"]["10"] <= out["percentiles"]["99"] <= max(out["latencies"])
    settings = {"input_len": 40, "output_len": 12, "batch_size": 3, "n": 2, "num_iters": 4, "num_iters_warmup": 1}
    assert {key: out[key] for key in settings} == settings
    assert out["compute"] in ("f32", "bf16", "int8")
    check_machine(out)


def test_latency_takes_prefill_and_decode_apart(latency):
    _, out = latency
    prefill, decode = out["prefill"], out["decode"]
    assert prefill["num_tokens"] == 3 * 2 * 40
    assert prefill["tokens_per_second"] == approx(240 / prefill["seconds"])
    # 240 prompt tokens at 64 a step: the last steps of the early sequences share a step with late prompts.
    assert prefill["num_steps"] >= 4
    assert decode["num_steps"] >= 11 and decode["num_tokens"] <= 6 * 11
    assert prefill["seconds"] < out["percentiles"]["99"]
    assert prefill["ttft"]["mean"] <= prefill["seconds"] * 2
    assert decode["time_per_output_token"]["mean"] > 0
    # Two layers of 128: q, k, v, o, and three of 128 x 256; the output layer has 264 rows.
    assert out["cost"]["linear_macs_per_token"] == 2 * (4 * 128 * 128 + 3 * 128 * 256)
    assert out["cost"]["output_layer_macs_per_row"] == 264 * 128
    for figure in (prefill["linear"], decode["linear"]):
        assert figure["share_of_peak"] == approx(figure["gmac_per_second"] / out["peaks"]["gmac_per_second"])
    assert decode["weights"]["gb_per_second"] < decode["weights_and_kv"]["gb_per_second"]
    assert decode["weights"]["share_of_peak"] == approx(
        decode["weights"]["gb_per_second"] / out["peaks"]["read_gb_per_second"])


def test_latency_table(latency):
    text, out = latency
    lines = text.splitlines()
    assert f"Avg latency: {out['avg_latency']:.4f} seconds" in lines
    assert [line.split("%")[0] for line in lines if "percentile latency" in line] == ["10", "25", "50", "75", "90", "99"]
    assert [line.split()[0] for line in lines if line.startswith(("prefill ", "decode "))] == ["prefill", "decode"]
    assert [line.split()[0] for line in lines if "outside linear and attention" in line] == ["prefill:", "decode:"]
    assert lines[-1] == "Answers: 5 iterations gave the same tokens, and so did the last sequence alone"


def test_latency_of_a_prompt_alone(random_path, tmp_path):
    """One output token: there is no decode. A single sequence is checked beside another."""
    path = tmp_path / "out.json"
    done = bench("latency", random_path, "--input-len", 8, "--output-len", 1, "--batch-size", 1, "--num-iters-warmup", 0,
                 "--num-iters", 1, "--threads", 2, "--temperature", 1, "--output-json", path)
    out = json.loads(path.read_text())
    assert "decode" not in out and out["prefill"]["num_tokens"] == 8
    assert "Time per output token" not in done.stdout
    assert out["checked"] == "1 iterations gave the same tokens, and so did the sequence beside another"


def test_throughput_random(random_path, tmp_path):
    path = tmp_path / "out.json"
    done = bench("throughput", random_path, "--num-prompts", 20, "--input-len", 24, "--output-len", 6,
                 "--random-range-ratio", 0.5, "--prefix-len", 3, "--threads", 2, "--check", 2, "--output-json", path)
    out = json.loads(path.read_text())
    assert out["num_requests"] == 20
    assert 20 * (12 + 3) <= out["num_prompt_tokens"] <= 20 * (36 + 3) and out["num_prompt_tokens"] != 20 * 27
    assert 20 * 3 <= out["num_output_tokens"] <= 20 * 9
    assert out["total_num_tokens"] == out["num_prompt_tokens"] + out["num_output_tokens"]
    assert out["requests_per_second"] == approx(20 / out["elapsed_time"])
    assert out["tokens_per_second"] == approx(out["total_num_tokens"] / out["elapsed_time"])
    assert out["checked"] == "2 of 20 requests gave the same tokens alone"
    check_machine(out)
    assert (f"Throughput: {out['requests_per_second']:.2f} requests/s, {out['tokens_per_second']:.2f} total tokens/s, "
            f"{out['output_tokens_per_second']:.2f} output tokens/s") in done.stdout.splitlines()


def test_throughput_sharegpt(random_path, tmp_path):
    """One token per byte. Too short, too long, or no conversation: left out, as vLLM does."""
    def talk(prompt, answer):
        return {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": answer}]}
    data = [talk("What is it?", "A llama."), talk("abc", "too short a prompt"), talk("no answer", "abc"),
            {"conversations": [{"value": "a single turn"}]}, talk("x" * 1025, "too long"), {}, 7,
            talk("And what is that?", "Another."), {"conversations": [{"value": 1}, {"value": 2}]}]
    dataset, path = tmp_path / "talks.json", tmp_path / "out.json"
    dataset.write_text(json.dumps(data))
    bench("throughput", random_path, "--dataset-path", dataset, "--num-prompts", 100, "--threads", 2, "--n", 2,
          "--output-json", path)
    out = json.loads(path.read_text())
    assert out["dataset_name"] == "sharegpt" and out["num_requests"] == 4
    assert out["num_prompt_tokens"] == 2 * (len("What is it?") + len("And what is that?"))
    assert out["num_output_tokens"] == 2 * (len("A llama.") + len("Another."))


def test_kernels(tmp_path):
    problems, path = tmp_path / "problems.txt", tmp_path / "out.json"
    problems.write_text("# comment\nq4_0 n=64 k=96 : 1 3\nint4 g64 min f16 n=33 k=128 : 2  # another\nbf16 n=17 k=70 : 1\n")
    done = bench("kernels", "--problems", problems, "--threads", 2, "--min-time", 0.001, "--filter", "linear/|peak/read",
                 "--json", path)
    out = json.loads(path.read_text())
    assert [peak["name"] for peak in out["peaks"]] == ["peak/read/1 thread", "peak/read/2 threads"]
    results = out["results"]
    assert len(results) == 3 * 4
    assert {result["compute"] for result in results} == {"f32", "bf16", "int8"}
    assert [result["m"] for result in results[:4]] == [1, 3, 2, 1]
    for result in results:
        assert result["right"] and result["error"] < 1e-4
        assert result["gops"] == approx(2 * result["m"] * result["n"] * result["k"] / result["seconds"] / 1e9)
        assert result["gb_per_second"] == approx(result["weight_bytes"] / result["seconds"] / 1e9)
        assert result["name"] in done.stdout


def test_kernels_of_a_model(random_path, tmp_path):
    """Every shape once; attention of the model's heads, checked against the reference."""
    names = bench("kernels", random_path, "--list", "--compute", "f32", "-m", 1, "--isa", "generic").stdout.split()
    assert sorted(names[:4]) == [f"linear/f32/{shape}/f32/generic/m1" for shape in ("128x128", "128x256", "256x128", "264x128")]
    assert names[4:] == [f"attention/{work}/4x4x32/f16/generic" for work in (
        "prefill/512", "prefill/8192", "decode/128x1", "decode/128x32", "decode/4096x1", "decode/4096x32")]
    path = tmp_path / "out.json"
    bench("kernels", random_path, "--filter", "attention/(prefill/512|decode/128x32)", "--min-time", 0.001, "--threads", 2,
          "--json", path)
    results = json.loads(path.read_text())["results"]
    assert [result["work"] for result in results] == ["prefill", "decode"]
    assert all(result["right"] and result["error"] < 0.02 for result in results)
    # Keys and values are two bytes each; a prompt of 512 sees 512 * 513 / 2 positions, two multiply-adds a value.
    assert results[0]["gops"] == approx(2 * 2 * 128 * (512 * 513 // 2) / results[0]["seconds"] / 1e9)
    assert results[1]["gb_per_second"] == approx(2 * 128 * 128 * 32 * 2 / results[1]["seconds"] / 1e9)


def test_a_failed_answer_is_an_error(models, tmp_path):
    broken = fixtures.write_chain(models / "bench-nan", nan_rows=[5])
    path = tmp_path / "out.json"
    done = bench("latency", broken, "--input-len", 4, "--output-len", 2, "--num-iters-warmup", 0, "--num-iters", 1,
                 "--output-json", path, code=1)
    assert "error" in done.stderr and not path.exists()


def test_help():
    for command in ("latency", "throughput", "kernels"):
        assert command in bench("--help").stdout
    text = bench("latency", "--help").stdout
    for flag in ("--input-len", "--output-len", "--batch-size", "--n ", "--num-iters", "--num-iters-warmup",
                 "--output-json", "--check", "--compute", "--threads", "--kv-cache-dtype"):
        assert flag in text
    for flag in ("--dataset-name", "--dataset-path", "--num-prompts", "--seed", "--output-json"):
        assert flag in bench("throughput", "--help").stdout
    for flag in ("--filter", "--min-time", "--json", "--threads", "--problems", "--shapes"):
        assert flag in bench("kernels", "--help").stdout


@pytest.mark.parametrize("args, said", [
    (["latency"], "which model"),
    (["latency", "no-such-model"], "no-such-model"),
    (["latency", "MODEL", "--input-len", "0"], "--input-len"),
    (["latency", "MODEL", "--batch-size", "-1"], "--batch-size"),
    (["latency", "MODEL", "--num-iters", "0"], "--num-iters"),
    (["latency", "MODEL", "--input-len", "500", "--output-len", "13"], "--input-len 500 and --output-len 13 need 513"),
    (["latency", "MODEL", "--input-len", "60", "--output-len", "5", "--max-model-len", "64"], "need 65 tokens"),
    (["latency", "MODEL", "--output-json", "/no/such/folder/x.json"], "/no/such/folder/x.json"),
    (["latency", "MODEL", "--check", "maybe"], "--check"),
    (["latency", "MODEL", "--use-beam-search"], "--use-beam-search"),
    (["throughput", "MODEL", "--dataset-name", "sharegpt"], "--dataset-path"),
    (["throughput", "MODEL", "--dataset-name", "sonnet"], "--dataset-name"),
    (["throughput", "MODEL", "--dataset-path", "/no/such/file"], "/no/such/file"),
    (["throughput", "MODEL", "--dataset-path", "THIS"], "not a JSON list"),
    (["throughput", "MODEL", "--dataset-name", "random", "--dataset-path", "THIS"], "takes no --dataset-path"),
    (["throughput", "MODEL", "--random-range-ratio", "1"], "--random-range-ratio"),
    (["throughput", "MODEL", "--num-prompts", "1"], "up to 1152 tokens"),
    (["kernels", "--filter", "("], "--filter"),
    (["kernels", "--filter", "no such name"], "no name matches"),
    (["kernels", "--shapes", "gpt-9"], "gpt-9"),
    (["kernels", "--layouts", "q9_9"], "q9_9"),
    (["kernels", "--isa", "avx9"], "avx9"),
    (["kernels", "-m", "0"], "--num-rows"),
    (["kernels", "--problems", "/no/such/file"], "/no/such/file"),
    (["kernels", "--problems", "THIS"], "line 1"),
    (["kernels", "no-such-model"], "no-such-model"),
    ([], "subcommand"),
])
def test_bad_input(random_path, args, said):
    args = [str(random_path) if arg == "MODEL" else __file__ if arg == "THIS" else arg for arg in args]
    assert said in refused(*args)


def test_problem_files_name_what_is_wrong(tmp_path):
    path = tmp_path / "problems.txt"
    for line, said in [("q4_0 n=8 k=32", "':'"), ("q4_0 n=8 k=33 : 1", "whole groups"), ("n=8 k=32 : 1", "no layout"),
                       ("q4_0 n=8 : 1", "no n or k"), ("q4_0 n=8 k=32 :", "no row counts"), ("q4_0 n=8 k=32 : x", "'x'"),
                       ("int9 g32 f16 n=8 k=32 : 1", "cannot be"), ("int4 g32 zero16 f16 n=8 k=32 : 1", "cannot be"),
                       ("int4 g32 what f16 n=8 k=32 : 1", "'what'"), ("", "no problems")]:
        path.write_text("# first\n" + line + "\n")
        message = refused("kernels", "--problems", path)
        assert said in message and "problems.txt" in message, message
