"""What chooses the tokens (cases SMP-01 to SMP-13)."""

import concurrent.futures
import math

import pytest

# The right logit: RMSNorm makes 1 / sqrt(1 / 512 + eps) of a one-hot vector; all others are 0.
RIGHT = 1 / math.sqrt(1 / 512 + 1e-6)
LOGPROB = -math.log1p(263 * math.exp(-RIGHT))


@pytest.mark.parametrize("temperature", [0, 1e-5, 1e-30, 5e-324])
def test_tiny_temperatures_are_greedy(chain, temperature):
    assert chain.complete("ABC", temperature=temperature, seed=1, max_tokens=5)["choices"][0]["text"] == "DEFGH"


@pytest.mark.parametrize("fields", [{"top_p": 1e-9}, {"top_k": 1}, {"top_p": 0}])
def test_one_token_left_is_greedy(rnd, fields):
    greedy = rnd.complete("Hello", max_tokens=16, return_token_ids=True)["choices"][0]["token_ids"]
    assert len(greedy) > 1
    sampled = rnd.complete("Hello", max_tokens=16, temperature=1, seed=3, return_token_ids=True, **fields)
    assert sampled["choices"][0]["token_ids"] == greedy


@pytest.mark.parametrize("fields", [{"top_p": 1}, {"top_k": 0}, {"top_k": -1}, {"top_k": 10**9}, {"min_p": 0}])
def test_values_that_switch_a_filter_off(rnd, fields):
    plain = rnd.complete("Hello", max_tokens=16, temperature=1, seed=3)
    assert rnd.complete("Hello", max_tokens=16, temperature=1, seed=3, **fields)["choices"] == plain["choices"]


def test_bias_holds_at_every_step(chain):
    answer = chain.complete("A", logit_bias={"88": 100}, max_tokens=4)["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("XXXX", "length")


def test_empty_bias_is_none(chain):
    assert chain.complete("A", logit_bias={}, max_tokens=2)["choices"][0]["text"] == "BC"
    assert chain.complete("A", logit_bias=None, max_tokens=2)["choices"][0]["text"] == "BC"


def test_min_tokens_holds_stop_strings_off(chain):
    answer = chain.complete("A", stop=["C"], min_tokens=4, max_tokens=50)["choices"][0]
    assert answer["text"].startswith("BCDEF") and answer["text"].endswith("!") and answer["finish_reason"] == "stop"


def test_min_tokens_holds_the_end_off(chain):
    answer = chain.complete("\u732b", min_tokens=6, max_tokens=8)
    assert answer["usage"]["completion_tokens"] >= 6


def test_ignore_eos_runs_to_the_limit(chain):
    answer = chain.complete("A", ignore_eos=True, max_tokens=40)
    assert answer["usage"]["completion_tokens"] == 40 and answer["choices"][0]["finish_reason"] == "length"


def test_stop_token_ids_stop_also_with_ignore_eos(chain):
    answer = chain.complete("A", ignore_eos=True, stop_token_ids=[70], max_tokens=40)["choices"][0]
    assert (answer["text"], answer["finish_reason"], answer["stop_reason"]) == ("BCDE", "stop", 70)


def test_eos_is_no_stop_reason_and_is_counted(chain):
    answer = chain.complete("\u732b", max_tokens=9)
    assert answer["choices"][0]["text"] == "!" and answer["choices"][0]["stop_reason"] is None
    assert answer["usage"]["completion_tokens"] == 2


def test_allowed_and_bad_tokens(chain):
    assert chain.complete("A", allowed_token_ids=[88, 89], max_tokens=3, logit_bias={"89": 1})["choices"][0]["text"] == "YYY"
    assert "C" not in chain.complete("A", bad_words=["C"], max_tokens=5)["choices"][0]["text"]


def test_seeded_text_does_not_depend_on_neighbours(rnd):
    fields = dict(temperature=0.8, max_tokens=24, return_token_ids=True)
    alone = rnd.complete("Once", seed=42, **fields)["choices"][0]["token_ids"]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        same = [pool.submit(rnd.complete, "Once", seed=42, **fields) for _ in range(8)]
        other = [pool.submit(rnd.complete, "Other " + "x" * i, **fields | ({"seed": i} if i % 2 else {})) for i in range(8)]
        assert all(f.result()["choices"][0]["token_ids"] == alone for f in same)
        assert all(f.result() for f in other)


def test_without_a_seed_answers_differ(rnd):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(rnd.complete, "Once", temperature=1, max_tokens=32, return_token_ids=True) for _ in range(8)]
        assert len({tuple(j.result()["choices"][0]["token_ids"]) for j in jobs}) > 1


def test_choices_differ_and_repeat_with_a_seed(rnd):
    fields = dict(n=4, temperature=1, max_tokens=16, return_token_ids=True)
    texts = [c["token_ids"] for c in rnd.complete("Once", seed=5, **fields)["choices"]]
    assert len({tuple(t) for t in texts}) == 4
    assert [c["token_ids"] for c in rnd.complete("Once", seed=5, **fields)["choices"]] == texts
    # Choice i of seed s is what seed s + i gives alone.
    alone = [rnd.complete("Once", seed=5 + i, **fields | {"n": 1})["choices"][0]["token_ids"] for i in range(4)]
    assert alone == texts


def test_chat_logprobs_shape(chain):
    def content(**fields):
        return chain.chat("Y", max_tokens=1, logprobs=True, **fields)["choices"][0]["logprobs"]["content"]

    [plain] = content()
    assert plain["token"] == "Z" and plain["bytes"] == [90] and plain["top_logprobs"] == []
    [with_two] = content(top_logprobs=2)
    top = with_two["top_logprobs"]
    assert len(top) == 2 and top[0]["token"] == "Z" and top[0]["logprob"] == with_two["logprob"]
    assert abs(top[0]["logprob"] - LOGPROB) < 1e-9
    assert abs(top[1]["logprob"] - (LOGPROB - RIGHT)) < 1e-4
    assert content(top_logprobs=0)[0]["top_logprobs"] == []


def test_tokens_inside_a_character(chain):
    content = chain.chat("Z", max_tokens=4, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [c["bytes"] for c in content] == [[240], [159], [166], [153]]
    assert bytes(b for c in content for b in c["bytes"]).decode() == "\U0001f999"
    streamed = chain.events("/v1/chat/completions", {"messages": [{"role": "user", "content": "Z"}], "max_tokens": 4,
                                                     "logprobs": True, "temperature": 0})
    parts = [c for e in streamed[:-1] if e["choices"][0]["logprobs"] for c in e["choices"][0]["logprobs"]["content"]]
    assert parts == content


def test_completion_logprobs_shape(chain):
    block = chain.complete("Y", max_tokens=6, logprobs=2, echo=True)["choices"][0]["logprobs"]
    assert block["tokens"] == ["Y", "Z", "bytes:\\xf0", "bytes:\\x9f", "bytes:\\xa6", "bytes:\\x99", "bytes:\\xc3"]
    assert block["text_offset"] == [0, 1, 2, 2, 2, 2, 3]
    assert block["token_logprobs"][0] is None and block["top_logprobs"][0] is None
    assert all(abs(value) < 1e-3 for value in block["token_logprobs"][1:])
    assert all(len(top) == 2 for top in block["top_logprobs"][1:])
    as_ids = chain.complete("Y", max_tokens=1, logprobs=0, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
    assert as_ids["tokens"] == ["token_id:90"]


def test_prompt_logprobs_are_the_same_each_time(rnd):
    prompt = [(7 * i) % 256 for i in range(33)]
    fields = dict(echo=True, logprobs=3, max_tokens=2)
    first = rnd.complete(prompt, **fields)["choices"][0]["logprobs"]
    assert len(first["tokens"]) == 35 and first["token_logprobs"][0] is None
    assert all(value < 0 for value in first["token_logprobs"][1:])
    rnd.complete(prompt[::-1], **fields)
    assert rnd.complete(prompt, **fields)["choices"][0]["logprobs"] == first


def test_prompt_logprobs_do_not_depend_on_chunks(rnd, random_path):
    from conftest import running

    prompt = [(7 * i) % 256 for i in range(33)]
    fields = dict(echo=True, logprobs=3, max_tokens=2)
    expected = rnd.complete(prompt, **fields)["choices"][0]["logprobs"]
    with running(random_path, "--max-num-batched-tokens", "8", "--max-num-seqs", "8") as chunked:
        assert chunked.complete(prompt, **fields)["choices"][0]["logprobs"] == expected


def test_vllm_prompt_logprobs(chain):
    answer = chain.chat("AB", max_tokens=1, prompt_logprobs=1)
    first, second = answer["prompt_logprobs"]
    assert first is None and second["66"]["rank"] == 1 and second["66"]["decoded_token"] == "B"


def test_scoring_only(chain):
    answer = chain.complete("ABD", echo=True, logprobs=1, max_tokens=0)
    choice = answer["choices"][0]
    assert choice["text"] == "ABD" and choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    none, right, wrong = choice["logprobs"]["token_logprobs"]
    assert none is None and right > -1e-3 and wrong < -20


def test_repetition_penalty_covers_the_prompt(chain):
    # After A comes B with 22.6, and X has 20 by its bias. B / 1.3 is less than that, if B has been seen.
    fields = dict(max_tokens=1, logit_bias={"88": 20}, repetition_penalty=1.3)
    assert chain.complete("BA", **fields)["choices"][0]["text"] == "X"
    assert chain.complete("CA", **fields)["choices"][0]["text"] == "B"


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_other_penalties_cover_the_output_only(chain, penalty):
    fields = {"max_tokens": 3, "logit_bias": {"88": 21.5}, penalty: 2}
    # B stands in the prompt, and costs nothing; X in the output loses 2 and Y (22.6 after X) is unseen.
    assert chain.complete("BA", **fields)["choices"][0]["text"] == "BCD"
    # Of a and b, both 0 and a with a bias of 1, the one just written loses 2 each time.
    pair = {"max_tokens": 3, "allowed_token_ids": [97, 98], "logit_bias": {"97": 1}}
    assert chain.complete("A", **pair)["choices"][0]["text"] == "aaa"
    assert chain.complete("A", **pair, **{penalty: 2})["choices"][0]["text"] == "aba"


def test_logprobs_are_those_of_the_model_itself(chain):
    plain = chain.complete("BA", max_tokens=1, logprobs=1)["choices"][0]["logprobs"]
    changed = chain.complete("BA", max_tokens=1, logprobs=1, repetition_penalty=1.05, temperature=0.5, seed=1,
                             logit_bias={"88": 5})["choices"][0]["logprobs"]
    assert changed == plain and abs(plain["token_logprobs"][0] - LOGPROB) < 1e-9
