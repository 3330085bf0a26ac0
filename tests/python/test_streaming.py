"""What streams look like: characters, stop strings, usage, order of chunks (cases STR-01 to STR-09)."""

import json

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def joined(events):
    return "".join(event["choices"][0]["text"] for event in events if event != "[DONE]" and event["choices"])


def test_characters_arrive_whole(chain):
    body = {"prompt": "Y", "max_tokens": 50, "temperature": 0, "stream_options": {"include_usage": True}}
    events = chain.events(TEXT, body)
    assert joined(events) == "Z\U0001f999\u00e9\u732b!"
    assert all("\ufffd" not in json.dumps(event, ensure_ascii=False) for event in events)
    assert events[-2]["usage"]["completion_tokens"] == 12
    assert events[-1] == "[DONE]" and events.count("[DONE]") == 1


def test_the_whole_answer_equals_the_stream(chain):
    body = {"prompt": "ABC", "max_tokens": 50, "temperature": 0}
    whole = chain.complete("ABC", max_tokens=50)
    assert whole["choices"][0]["text"] == "DEFGHIJKLMNOPQRSTUVWXYZ\U0001f999\u00e9\u732b!"
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 3, "completion_tokens": 34, "total_tokens": 37, "prompt_tokens_details": None}
    assert joined(chain.events(TEXT, body)) == whole["choices"][0]["text"]


@pytest.mark.parametrize("limit,text", [(1, "Z"), (2, "Z"), (4, "Z"), (5, "Z\U0001f999"), (6, "Z\U0001f999"),
                                        (7, "Z\U0001f999\u00e9")])
def test_a_character_cut_by_the_limit_is_left_out(chain, limit, text):
    assert chain.complete("Y", max_tokens=limit)["choices"][0]["text"] == text
    assert joined(chain.events(TEXT, {"prompt": "Y", "max_tokens": limit, "temperature": 0})) == text


@pytest.mark.parametrize("prompt,stop,text,reason", [
    ("Y", ["\U0001f999"], "Z", "\U0001f999"),
    ("ABC", ["HI", "GH"], "DEF", "GH"),
    ("ABC", ["FGHI", "G"], "DEF", "G"),
    ("ABC", "D", "", "D"),
    ("ABC", ["QQQQQQQQQQ"], "DEFGHIJKLMNOPQRSTUVWXYZ\U0001f999\u00e9\u732b!", None),
    ("X", ["Z\U0001f999\u00e9"], "Y", "Z\U0001f999\u00e9"),
])
def test_stop_strings(chain, prompt, stop, text, reason):
    whole = chain.complete(prompt, stop=stop, max_tokens=50)["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (text, "stop", reason)
    events = chain.events(TEXT, {"prompt": prompt, "stop": stop, "max_tokens": 50, "temperature": 0})
    assert joined(events) == text
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_the_stop_string_is_kept_if_asked(chain):
    answer = chain.complete("ABC", stop=["GH"], include_stop_str_in_output=True)["choices"][0]
    assert answer["text"] == "DEFGH"


def test_only_what_may_become_a_stop_string_is_held_back(chain):
    events = chain.events(TEXT, {"prompt": "ABC", "stop": ["QQQQQQQQQQ", "FX"], "max_tokens": 5, "temperature": 0})
    assert [e["choices"][0]["text"] for e in events[:-1]][:3] == ["D", "E", "FG"]


def test_usage_comes_only_if_asked(chain):
    body = {"messages": [{"role": "user", "content": "Y"}], "temperature": 0, "max_tokens": 5}
    for event in chain.events(CHAT, body)[:-1]:
        assert event["choices"] and "usage" not in event
    events = chain.events(CHAT, body | {"stream_options": {"include_usage": True}})
    assert events[-2]["choices"] == [] and events[-2]["usage"]["total_tokens"] == 6
    assert all(event["choices"] and event["usage"] is None for event in events[:-2])
    continuous = chain.events(CHAT, body | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}})
    counts = [event["usage"]["completion_tokens"] for event in continuous[:-1]]
    assert counts == sorted(counts) and counts[-1] == 5 and counts[0] >= 1


def test_stream_options_need_stream(chain):
    for path, prompt in ((TEXT, {"prompt": "A"}), (CHAT, {"messages": [{"role": "user", "content": "A"}]})):
        answer = chain.post(path, prompt | {"stream_options": {"include_usage": True}})
        assert answer.status == 400 and answer.error["param"] == "stream_options"


def test_order_of_chat_chunks(chain):
    body = {"messages": [{"role": "user", "content": "Y"}], "temperature": 0}
    events = chain.events(CHAT, body)
    assert events.pop() == "[DONE]"
    first, *middle, last = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [e["choices"][0]["delta"] for e in middle] == [{"content": c} for c in "Z\U0001f999\u00e9\u732b!"]
    assert last["choices"][0]["delta"] == {} and last["choices"][0]["finish_reason"] == "stop"
    assert all(e["choices"][0]["finish_reason"] is None for e in events[:-1])
    assert {e["object"] for e in events} == {"chat.completion.chunk"}
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    assert first["id"].startswith("chatcmpl-")


def test_the_role_leaves_with_the_first_token(chain):
    """Both events must come in one piece, or the time to first token would be a fiction."""
    connection = chain.connect()
    connection.request("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "Y"}], "stream": True,
                                                 "temperature": 0}))
    answer = connection.getresponse()
    piece = answer.read1(65536).decode()
    assert '"role":"assistant"' in piece and '"content":"Z"' in piece
    answer.read()
    connection.close()


def test_several_prompts_and_choices_are_numbered(chain):
    whole = chain.complete(["A", "M"], n=2, max_tokens=2)
    assert [(c["index"], c["text"]) for c in whole["choices"]] == [(0, "BC"), (1, "BC"), (2, "NO"), (3, "NO")]
    assert whole["usage"]["prompt_tokens"] == 2 and whole["usage"]["completion_tokens"] == 8
    texts = {}
    for event in chain.events(TEXT, {"prompt": ["A", "M"], "n": 2, "max_tokens": 2, "temperature": 0})[:-1]:
        choice = event["choices"][0]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "BC", 1: "BC", 2: "NO", 3: "NO"}


def test_return_token_ids(chain):
    whole = chain.complete("XY", max_tokens=3, return_token_ids=True)["choices"][0]
    assert whole["token_ids"] == [90, 0xF0, 0x9F] and whole["prompt_token_ids"] == [88, 89]
    events = chain.events(TEXT, {"prompt": "XY", "max_tokens": 3, "temperature": 0, "return_token_ids": True})[:-1]
    assert [i for e in events for i in e["choices"][0]["token_ids"]] == [90, 0xF0, 0x9F]
