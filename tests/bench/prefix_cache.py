"""What a rollout's home is worth: the prefix caches of two real vLLMs, with and without affinity.

    python tests/models/vllm/server.py DIR --port 18081 &
    python tests/models/vllm/server.py DIR --port 18082 &
    python tests/bench/prefix_cache.py --url http://127.0.0.1:18081/v1 --url http://127.0.0.1:18082/v1

Conversations of several turns go through the `vllm` adapter, exact tokens on. With affinity every call says
whose it is, as the runtime does; without, every call is a rollout of its own, so that its engine is any. The
hit rate is the engines' own count: prompt tokens found in the prefix cache, of those looked up.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from urllib.request import urlopen

import anyio
from gym_models.vllm import Adapter
from gym_models.wire import load
from gym_runtime.messages.calls import ModelCall, prefix_after
from gym_runtime.messages.responses import decode_response
from gym_runtime.workers.adapter import CallContext, ModelSettings
from measure import print_table
from msgspec import Raw
from msgspec.structs import replace

LIMIT_S = 600.0


def cached(urls: Sequence[str]) -> tuple[int, int]:
    """Tokens found in the engines' caches and tokens looked up, since they started."""
    hits = queries = 0
    for url in urls:
        with urlopen(url.removesuffix("/v1") + load.PATH) as answer:
            said = load.read(answer.read())
        assert said is not None
        hits, queries = hits + said.prefix_hits, queries + said.prefix_queries
    return hits, queries


def user(text: str) -> Raw:
    return Raw(json.dumps({"role": "user", "content": text}).encode())


async def converse(adapter: Adapter, name: str, said: argparse.Namespace, affinity: bool) -> None:
    """One conversation; ``name`` begins it, so that no other shares a prefix with it."""
    params = Raw(b'{"max_output_tokens":%d}' % said.output)
    first = user(f"{name} {'word ' * said.words}")
    call = ModelCall(params=params, input=[first], return_tokens=True)
    for turn in range(said.turns):
        whose = name if affinity else f"{name}.{turn}"
        context = CallContext(rollout=whose, attempt=1, deadline_s=time.monotonic() + LIMIT_S)
        answer = await adapter.respond(call, context)
        items = [*call.input, *decode_response(answer.response).output]
        new = [*items, user("go on " * (said.words // 4))]
        call = replace(call, input=new, prefix=prefix_after(answer.tokens, len(items)))


async def measure(said: argparse.Namespace, affinity: bool) -> list[object]:
    settings = ModelSettings(provider="vllm", name=said.model, urls=tuple(said.url))
    before = cached(said.url)
    async with Adapter(settings) as adapter:
        started_s = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(said.conversations):
                name = f"{os.urandom(4).hex()} {number}"
                tasks.start_soon(converse, adapter, name, said, affinity)
        took_s = time.monotonic() - started_s
    after = cached(said.url)
    hits, queries = after[0] - before[0], after[1] - before[1]
    return ["with" if affinity else "without", f"{hits / queries:.1%}", f"{queries:,}", f"{took_s:.1f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument("--output", type=int, default=16)
    said = parser.parse_args()
    rows = [anyio.run(measure, said, affinity) for affinity in (False, True)]
    title = f"{said.conversations} conversations of {said.turns} turns, {len(said.url)} engines"
    print_table(title, ["affinity", "hit rate", "prompt tokens", "time"], rows)


if __name__ == "__main__":
    main()
