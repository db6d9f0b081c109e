"""CPU per call of the `openai` adapter, both dialects, against the stub engine.

    python tests/bench/adapter.py [--calls 20000] [--in-flight 2048] [--latency-s 0.2] [--gc-threshold 50000]

Each call carries 4 KB: instructions, a user's text, a tool call and its output, and one tool. The floor
is the same bytes over aiohttp with nothing around it. In the last case the answer has 4,096 token ids with
their log-probabilities, 256 in flight. Targets: 500 µs, and 1,500 µs with tokens.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import anyio
import msgspec
import psutil
from gym_faces.dialects import chat_answer, chat_request, chat_tokens, responses_api
from gym_models.openai import Adapter
from gym_models.wire.sockets import raise_file_limit
from gym_runtime.messages.calls import ModelCall
from gym_runtime.workers.adapter import CallContext, ModelSettings
from gym_testing.bench.loop import ROW
from measure import print_table
from msgspec import Raw
from stubs import stub_dialects, stub_engine

_PARAMS = json.loads(ROW)["responses_create_params"]
_ITEMS = [
    {"role": "developer", "content": "You are a helpful personal assistant. " * 20},
    {"role": "user", "content": "What is it like in San Francisco? " * 50},
    {
        "type": "function_call",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": '{"city":"San Francisco"}',
    },
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": json.dumps({"weather": "It is cold. " * 60}),
    },
]
CALL = ModelCall(
    params=Raw(json.dumps({"tools": _PARAMS["tools"], "temperature": 1.0}).encode()),
    input=[Raw(json.dumps(item).encode()) for item in _ITEMS],
)
TOKENS = 4096


async def drive(one: Callable[[int], Awaitable[object]], calls: int, in_flight: int) -> tuple[float, float]:
    """Run the calls, that many at a time; wall-clock and CPU seconds."""

    async def worker(numbers: Iterator[int]) -> None:
        for number in numbers:
            await one(number)

    numbers = iter(range(calls))
    wall, cpu = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(in_flight):
            tasks.start_soon(worker, numbers)
    return time.perf_counter() - wall, time.process_time() - cpu


async def measure(
    api: str, calls: int, in_flight: int, latency_s: float, tokens: int = 0
) -> list[list[object]]:
    """Rows of the table for one dialect; ``tokens`` is how many an answer has, 0 for none."""
    table: list[list[object]] = []
    call = msgspec.structs.replace(CALL, return_tokens=tokens > 0)
    text = ("--text", "x" * (4 * (tokens - 1))) if tokens else ()
    with stub_engine.running("--api", api, "--latency-s", str(latency_s), *text) as stub:
        stub_cpu = psutil.Process(stub.pid).cpu_times

        async def case(name: str, one: Callable[[int], Awaitable[object]]) -> None:
            await drive(one, in_flight, in_flight)
            stub.stats(reset=True)
            before = sum(stub_cpu()[:2])
            wall_s, cpu_s = await drive(one, calls, in_flight)
            engine_s = sum(stub_cpu()[:2]) - before
            stats = stub.stats()
            cost_us, engine_us = (f"{seconds / calls * 1e6:.0f}" for seconds in (cpu_s, engine_s))
            rate = f"{calls / wall_s:.0f}"
            table.append([name, cost_us, rate, stats.max_in_flight, stats.connections, engine_us])

        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            path = stub.url + (chat_request.PATH if api == "chat" else responses_api.PATH)

            async def bare(_: int) -> bytes:
                async with session.post(path, data=_body(api, call)) as answer:
                    return await answer.read()

            await case(f"{_name(api, tokens)}, floor (bare aiohttp)", bare)
        async with Adapter(
            ModelSettings(provider="openai", name="stub", urls=(stub.url,), api=api)
        ) as adapter:

            async def respond(number: int) -> object:
                context = CallContext(
                    rollout=f"bench.{number}.0", attempt=1, deadline_s=time.monotonic() + 600
                )
                return await adapter.respond(call, context)

            await case(f"{_name(api, tokens)}, adapter", respond)
    return table


def _body(api: str, call: ModelCall) -> bytes:
    if api == "chat":
        return chat_request.write_request(call, "stub", b"{}", chat_request.Dialect())
    return responses_api.write_request(call, "stub", b"{}")


def _name(api: str, tokens: int) -> str:
    return f"{api}, {tokens:,} tokens" if tokens else api


def measure_conversion(rounds: int = 2000) -> list[list[object]]:
    """CPU of the pure parts, per call."""
    text = "It is cold. " * 300
    asked = stub_dialects.decode_call(_body("chat", CALL))
    completion = stub_dialects.chat_answer(asked, 4096, text)
    asked = stub_dialects.decode_call(_body("chat", msgspec.structs.replace(CALL, return_tokens=True)))
    with_tokens = stub_dialects.chat_answer(asked, 4096, "x" * (4 * (TOKENS - 1)))
    native = stub_dialects.responses_answer(stub_dialects.decode_call(_body("responses", CALL)), 4096, text)
    params = bytes(CALL.params)
    parts: dict[str, Callable[[], object]] = {
        "chat request": lambda: chat_request.write_request(CALL, "stub", b"{}", chat_request.Dialect()),
        "chat answer": lambda: chat_answer.response(
            chat_answer.read_answer(completion), responses_api.echo(params)
        ),
        f"tokens, {TOKENS:,}": lambda: chat_tokens.read_answer(with_tokens),
        "responses request": lambda: responses_api.write_request(CALL, "stub", b"{}"),
        "responses answer": lambda: responses_api.read_answer(native),
    }
    table: list[list[object]] = []
    for name, part in parts.items():
        part()
        started = time.process_time()
        for _ in range(rounds):
            part()
        table.append([name, f"{(time.process_time() - started) / rounds * 1e6:.1f}"])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=2048)
    parser.add_argument("--latency-s", type=float, default=0.2)
    parser.add_argument("--gc-threshold", type=int, default=700, help="Python's own is 700")
    given = parser.parse_args()
    raise_file_limit()
    gc.set_threshold(given.gc_threshold, *gc.get_threshold()[1:])
    # An answer with tokens has 300 KB, which the stub holds for as long as its latency.
    cases = [
        ("responses", given.calls, given.in_flight, 0),
        ("chat", given.calls, given.in_flight, 0),
        ("chat", min(given.calls, 2048), min(given.in_flight, 256), TOKENS),
    ]
    rows = [
        row
        for api, calls, in_flight, tokens in cases
        for row in anyio.run(
            measure,
            api,
            calls,
            in_flight,
            given.latency_s,
            tokens,
            backend_options={"use_uvloop": True},
        )
    ]
    sizes = ", ".join(f"{api} {len(_body(api, CALL))} bytes" for api in ("responses", "chat"))
    header = ["case", "CPU µs per call", "calls/s", "max in flight", "connections", "stub's CPU µs"]
    print_table(
        f"Adapter: {given.calls} calls, {given.in_flight} in flight, engine {given.latency_s} s", header, rows
    )
    print(f"\nRequest bodies: {sizes}.")
    print_table("Conversion, 4 KB", ["part", "CPU µs"], measure_conversion())


if __name__ == "__main__":
    main()
