#!/usr/bin/env python3
"""Records docs/session.svg: what a terminal shows of a first session with Quire. Everything in it is run, not typed in:
the server starts, curl streams an answer, `quire chat` answers a question. Needs: pip install rich.

    make build && tools/record_session.py
"""
import pathlib
import re
import subprocess
import urllib.request

from rich.console import Console
from rich.text import Text

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUIRE = ROOT / "build" / "release" / "quire"
MODEL = "qwen2.5-coder-0.5b"
PORT = 8123
BODY = '{"messages": [{"role": "user", "content": "你好"}], "temperature": 0, "stream": true}'

console = Console(record=True, width=118, force_terminal=True)


def prompt(command):
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))


def show(text, keep=None):
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()
    lines = [line for line in lines if line.strip()]
    for line in lines if keep is None else keep(lines):
        console.print(Text(line[:116]))


prompt(f"make serve MODEL={MODEL}")
server = subprocess.Popen([QUIRE, "serve", MODEL, "--port", str(PORT)], stderr=subprocess.PIPE, text=True)
log = []
for line in server.stderr:
    log.append(line)
    if " serving " in line:
        break
wanted = ("  model ", "tokenizer", "compute", "threads", "weights", "kv cache", " serving ")
show("".join(log), lambda lines: [line for line in lines if any(word in line for word in wanted)])

prompt(f"curl -N localhost:8000/v1/chat/completions -d '{BODY}'")
request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/chat/completions", BODY.encode())
events = urllib.request.urlopen(request).read().decode().split("\n\n")
show("\n".join(events[:5]), lambda lines: [re.sub(r'"id".*?("delta":\{.*?\}).*', r'… \1 …', line) for line in lines])
console.print(Text("…"))
show(events[-2] if events[-1] == "" else events[-1])
server.terminate()
server.wait()

prompt(f"quire chat {MODEL}")
question = "Write a C++ one-liner that sums a std::vector<int> v."
chat = subprocess.run([QUIRE, "chat", MODEL, "--temperature", "0", "--max-tokens", "120"], input=question + "\n", text=True,
                      capture_output=True)
console.print(Text.assemble(("> ", "bold cyan"), question))
show(chat.stdout)
console.save_svg(str(ROOT / "docs" / "session.svg"), title="quire")
