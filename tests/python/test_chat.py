"""Chat: templates, roles, control tokens, tools (cases TPL-01 to TPL-14, TOK-01, TOK-12), over HTTP."""

import concurrent.futures
import json
import time

import pytest

import fixtures
from conftest import running

CHAT = "/v1/chat/completions"
SHOW = "{% for m in messages %}[{{ m['role'] }}:{{ m['content'] }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
TOOLS = ("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% for m in messages %}"
         "{{ m['content'] }}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ {'name': c.function.name, 'arguments': "
         "c.function.arguments} | tojson }}{% endfor %}{% endif %}{% endfor %}")


def rendered(server, messages, **fields):
    """The prompt that messages make, read back through /tokenize and /detokenize."""
    answer = server.post("/tokenize", {"messages": messages} | fields)
    assert answer.status == 200, answer.text
    return server.post("/detokenize", {"tokens": answer.json["tokens"]}).json["prompt"]


@pytest.fixture(scope="module")
def show(models):
    path = fixtures.write_chain(models / "show", template=SHOW, context=4096)
    with running(path, "--enable-log-requests") as server:
        yield server


@pytest.fixture(scope="module")
def tools(models):
    with running(fixtures.write_chain(models / "tools", template=TOOLS, context=4096)) as server:
        yield server


def user(text):
    return [{"role": "user", "content": text}]


def test_a_control_token_in_a_message_is_text(chain):
    message = "<|im_end|>"
    assert chain.chat(message, max_tokens=1)["usage"]["prompt_tokens"] == len(message)
    # A raw prompt is the caller's own: there it is the token.
    assert chain.complete(message, max_tokens=1)["usage"]["prompt_tokens"] == 1
    assert chain.post("/tokenize", {"prompt": message}).json["tokens"] == [258]


def test_control_tokens_in_messages_can_be_switched_on(chain_path):
    with running(chain_path, "--control-tokens-in-messages") as server:
        assert server.chat("<|im_end|>", max_tokens=1)["usage"]["prompt_tokens"] == 1


def test_bos_stands_once(models):
    path = fixtures.write_chain(models / "bos", add_bos=True,
                                template="{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}")
    with running(path) as server:
        assert server.chat("A", max_tokens=1)["usage"]["prompt_tokens"] == 2
        assert server.complete("A", max_tokens=1)["usage"]["prompt_tokens"] == 2
        assert server.complete("A", max_tokens=1, add_special_tokens=False)["usage"]["prompt_tokens"] == 1
        assert server.chat("A", max_tokens=1, add_special_tokens=True)["usage"]["prompt_tokens"] == 2
        assert server.post("/tokenize", {"prompt": "A"}).json["tokens"] == [256, 65]
        assert server.post("/tokenize", {"content": "A"}).json["tokens"] == [65]
        assert server.post("/tokenize", {"content": "A", "add_special": True}).json["tokens"] == [256, 65]


def test_a_template_may_refuse(models):
    template = ("{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
                "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m['content'] }}{% endfor %}")
    with running(fixtures.write_chain(models / "refusing", template=template)) as server:
        for messages, text in (([{"role": "system", "content": "x"}] + user("A"), "System role not supported"),
                               (user("A") + user("B"), "Roles must alternate")):
            for stream in (False, True):
                answer = server.post(CHAT, {"messages": messages, "stream": stream})
                assert answer.status == 400 and text in answer.error["message"]
        assert server.chat("A", max_tokens=1)["choices"][0]["message"]["content"] == "B"


def test_content_forms(show):
    assert rendered(show, user("Hi")) == "[user:Hi]>"
    assert rendered(show, [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]) == "[user:Hi]>"
    two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert rendered(show, [{"role": "user", "content": two}]) == "[user:a\nb]>"
    assert rendered(show, user("")) == "[user:]>"


def test_the_developer_is_a_system_for_older_templates(show):
    assert rendered(show, [{"role": "developer", "content": "x"}] + user("A")) == "[system:x][user:A]>"


def test_continuing_the_last_message(show):
    messages = user("Q") + [{"role": "assistant", "content": "The answer is"}]
    fields = {"add_generation_prompt": False, "continue_final_message": True}
    assert rendered(show, messages, **fields) == "[user:Q][assistant:The answer is"
    assert rendered(show, messages, add_generation_prompt=False) == "[user:Q][assistant:The answer is]"
    answer = show.post(CHAT, {"messages": messages, "add_generation_prompt": True, "continue_final_message": True})
    assert answer.status == 400 and answer.error["param"] == "continue_final_message"
    echoed = show.chat(user("Q") + [{"role": "assistant", "content": "AB"}], max_tokens=2, echo=True, **fields)
    assert echoed["choices"][0]["message"]["content"] == "ABCD"


def test_tools_and_arguments(tools):
    tool = {"type": "function", "function": {"name": "f", "description": "a<b & 'c' \u00e9\u732b",
                                             "parameters": {"b": 1, "a": 2}}}
    text = rendered(tools, user("x"), tools=[tool])
    assert text == json.dumps(tool, ensure_ascii=False) + "x"
    assert rendered(tools, user("x"), tools=[tool], tool_choice="none") == "x"
    expected = '{"name": "f", "arguments": {"x": "1"}}'
    for content in ({"content": None}, {"content": ""}, {}):
        for arguments in ('{"x": "1"}', {"x": "1"}):
            call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
            message = {"role": "assistant", "tool_calls": [call]} | content
            assert rendered(tools, user("q") + [message]) == "q" + expected
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "not json"}}
    assert '"arguments": "not json"' in rendered(tools, [{"role": "assistant", "tool_calls": [call]}])


def test_tools_need_a_template_with_a_place_for_them(chain):
    answer = chain.post(CHAT, {"messages": user("A"), "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert answer.status == 400 and answer.error["param"] == "tools"


def test_template_switches(models):
    template = "{% if enable_thinking is defined and not enable_thinking %}off{% else %}on{% endif %}"
    with running(fixtures.write_chain(models / "switch", template=template)) as server:
        assert rendered(server, user("x")) == "on"
        assert rendered(server, user("x"), chat_template_kwargs={"enable_thinking": False}) == "off"


LOOPS = "{% for a in range(25000) %}{% for b in range(25000) %}{% endfor %}{% endfor %}"


def test_a_template_that_does_not_end_is_cut(chain_path, models):
    with running(chain_path, "--trust-request-chat-template") as server:
        assert server.chat("A", max_tokens=1, chat_template="{{ 'XY' }}")["choices"][0]["message"]["content"] == "Z"
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            started = time.monotonic()
            slow = pool.submit(server.post, CHAT, {"messages": user("A"), "chat_template": LOOPS})
            other = [pool.submit(server.chat, "A", max_tokens=4) for _ in range(8)]
            assert all(f.result()["choices"] for f in other)
            assert slow.result().status == 400 and slow.result().error["message"]
            assert time.monotonic() - started < 4
        for bad in ("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "(" * 100000, "{{" + "(" * 100000,
                    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"):
            assert server.post(CHAT, {"messages": user("A"), "chat_template": bad, "max_tokens": 1}).status in (200, 400)
    with running(fixtures.write_chain(models / "endless", template=LOOPS)) as server:
        assert server.post(CHAT, {"messages": user("A")}).status == 400
        assert server.complete("A", max_tokens=1)


def test_a_model_without_a_template(models):
    import os

    path = fixtures.write_chain(models / "bare")
    config = json.load(open(path / "tokenizer_config.json", encoding="utf-8"))
    del config["chat_template"]
    fixtures.write_json(path, "tokenizer_config.json", config)
    with running(path) as server:
        answer = server.post(CHAT, {"messages": user("A")})
        assert answer.status == 400 and "chat template" in answer.error["message"]
        assert server.complete("A", max_tokens=1)
    with running(path, "--chat-template", "{{ messages[0].content }}") as server:
        assert server.chat("A", max_tokens=1)["choices"][0]["message"]["content"] == "B"
    assert os.path.exists(path)


def test_prompts_do_not_reach_the_log(show):
    show.chat("my secret words", max_tokens=1)
    show.post(CHAT, {"messages": user("my secret words"), "temperature": "my secret words"})
    time.sleep(0.1)
    log = "".join(show.log)
    assert "prompt tokens" in log and "secret" not in log


def test_whole_chat_answer(chain):
    answer = chain.chat("Y")
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Z\U0001f999\u00e9\u732b!", "refusal": None}
    assert choice["finish_reason"] == "stop" and choice["logprobs"] is None and choice["index"] == 0
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
