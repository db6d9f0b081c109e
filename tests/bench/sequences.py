"""How long a record's token sequences take: ``python -m bench.sequences`` in ``tests``.

A rollout of 64k tokens with 20 branches, as a client has it.
"""

from __future__ import annotations

import random
import statistics
import time

import msgspec
from gym_runtime.messages.outcomes import encode_record, read_record
from runtime.messages.call_trees import Drawn, alone, call, record

TOKENS = 64_000
BRANCHES = 20


def rollout() -> list[Drawn]:
    chance, calls = random.Random(1), list[Drawn]()
    size = 2 * TOKENS // (2 * (BRANCHES + 20))
    last = -1
    for number in range(20):
        calls.append(call(chance, calls, last, "main", 2 * number, size))
        last = len(calls) - 1
        calls.append(call(chance, calls, last, "retry" if number % 2 else "compaction", -1, size))
    return calls


def main() -> None:
    calls = rollout()
    stored = encode_record(record(calls))
    once = sum(len(msgspec.json.encode(alone(calls, one))) for one in calls)
    read = read_record(stored)
    taken: list[float] = []
    used: list[float] = []
    for _ in range(50):
        begun_s, used_s = time.perf_counter(), time.process_time()
        found = read.sequences()
        taken.append(time.perf_counter() - begun_s)
        used.append(time.process_time() - used_s)
    sampled = sum(len(one.completion_ids) for one in found)
    print(f"{len(found)} sequences, {sampled:,} tokens in completions")
    print(f"{len(stored):,} bytes stored: {len(stored) / once:.3f} of what each call has alone")
    median, processor = (1e3 * statistics.median(times) for times in (taken, used))
    print(f"sequences(): median {median:.1f} ms, of the processor {processor:.1f} ms")


if __name__ == "__main__":
    main()
