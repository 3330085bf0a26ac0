"""The official client, as users use it."""

import concurrent.futures

import openai
import pytest


@pytest.fixture(scope="module")
def client(chain):
    return openai.OpenAI(base_url=chain.url + "/v1", api_key="unused", max_retries=0)


def test_chat(client):
    answer = client.chat.completions.create(model="chain", messages=[{"role": "user", "content": "Y"}], temperature=0)
    assert answer.choices[0].message.content == "Z\U0001f999\u00e9\u732b!"
    assert answer.usage.completion_tokens == 12


def test_streamed_chat(client):
    stream = client.chat.completions.create(model="chain", messages=[{"role": "user", "content": "Y"}], temperature=0,
                                            stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Z\U0001f999\u00e9\u732b!"
    assert chunks[-1].usage.completion_tokens == 12


def test_thirty_two_streams_at_once(client):
    def run(letter):
        stream = client.completions.create(model="chain", prompt=letter, temperature=0, max_tokens=50, stream=True)
        return "".join(c.choices[0].text for c in stream)

    letters = [chr(ord("A") + i % 26) for i in range(32)]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        texts = list(pool.map(run, letters))
    whole = "ABCDEFGHIJKLMNOPQRSTUVWXYZ\U0001f999\u00e9\u732b!"
    assert texts == [whole[whole.index(letter) + 1:] for letter in letters]


def test_logprobs(client):
    answer = client.chat.completions.create(model="chain", messages=[{"role": "user", "content": "Y"}], temperature=0,
                                            max_tokens=1, logprobs=True, top_logprobs=2)
    [token] = answer.choices[0].logprobs.content
    assert token.token == "Z" and len(token.top_logprobs) == 2


def test_errors_have_their_classes(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nothing", messages=[{"role": "user", "content": "A"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="chain", messages=[{"role": "user", "content": "A" * 300}])
    assert bad.value.code == "context_length_exceeded"


def test_models(client):
    assert [m.id for m in client.models.list()] == ["chain"]


def test_extra_body(client):
    answer = client.completions.create(model="chain", prompt="A", temperature=0, max_tokens=9,
                                       extra_body={"stop_token_ids": [70], "ignore_eos": True})
    assert answer.choices[0].text == "BCDE"
