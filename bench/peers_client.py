#!/usr/bin/env python3
"""Load on one HTTP server: N clients at once, each streams one completion of random token ids; prints one JSON line.

    peers_client.py URL MODEL --clients 32 --input-len 128 --output-len 64 --seed 1

TTFT is the time from sending to the first streamed token, TPOT the rest of the time by the rest of the tokens, as in
`vllm bench serve`. Runs in the environment `tools` of peers.py (package aiohttp); the same client for every engine.
"""
import argparse
import asyncio
import json
import statistics
import time

import aiohttp


async def one(session, args, index):
    ids = [(args.seed * 7919 + index * 611953 + i * 104729) % 30000 + 100 for i in range(args.input_len)]
    body = {"model": args.model, "prompt": ids, "max_tokens": args.output_len, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
    start = time.perf_counter()
    first = last = tokens = None
    async with session.post(args.url + "/v1/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {(await response.text())[:300]}")
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event.get("choices"):
                last = time.perf_counter()
                first = first or last
    if first is None or not tokens:
        raise RuntimeError("a stream without tokens or usage")
    return {"ttft": first - start, "tpot": (last - first) / max(tokens - 1, 1), "tokens": tokens}


async def load(args):
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=args.timeout)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        start = time.perf_counter()
        done = await asyncio.gather(*[one(session, args, i) for i in range(args.clients)])
        seconds = time.perf_counter() - start
    tokens = sum(each["tokens"] for each in done)
    if tokens != args.clients * args.output_len:
        raise RuntimeError(f"{tokens} tokens came instead of {args.clients * args.output_len}")
    return {"seconds": seconds, "output_tokens_per_second": tokens / seconds,
            "ttft": statistics.mean(each["ttft"] for each in done), "tpot": statistics.mean(each["tpot"] for each in done)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    args = parser.parse_args()
    try:
        print(json.dumps(asyncio.run(load(args))))
    except (RuntimeError, aiohttp.ClientError, asyncio.TimeoutError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
