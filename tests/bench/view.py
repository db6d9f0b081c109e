"""What the viewer costs: indexing, opening large files, filtering, exporting, memory. Needs Chromium.

    python tests/bench/view.py [--gb 5] [--rows 1000000]

A file of ``--gb`` gigabytes is opened with and without its index, and one of ``--rows`` rows for memory.
CPU seconds compare between machines at different loads; wall seconds are what a user waits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from measure import memory_bytes, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
from chromium import Chromium, Page
from gym_view.index import index_path
from gym_view.indexing import complete_index

WORDS = (  # noqa: SIM905 - shorter so
    "the counter agent tool reward answer because therefore compute \\boxed{B} café function returns value "
    'error retry calendar meeting option price table SELECT FROM WHERE check again result 42 3.14 "quoted"'
).split()
ENVIRONMENTS = ("mcqa", "workplace_assistant", "code_gen", "reasoning_gym", "calendar")
QUERY = "reward<1 env=mcqa outcome=completed"


def rows(count: int, size_bytes: int) -> Iterator[bytes]:
    """Rows of about a size, in groups of eight, the same each time."""
    random_ = random.Random(7)
    texts = [" ".join(random_.choices(WORDS, k=60)) for _ in range(2000)]
    for number in range(count):
        task, rollout = divmod(number, 8)
        output: list[dict[str, object]] = []
        length = 0
        turns = 0
        target = random_.lognormvariate(0, 0.5) * max(0, size_bytes - 1000)
        while length < target or not output:
            text = random_.choice(texts)
            turns += 1
            content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": None}]
            output += [
                {"type": "message", "role": "assistant", "id": f"m{number}_{turns}", "content": content},
                {"type": "function_call", "call_id": f"c{turns}", "name": "search", "arguments": "{}"},
                {"type": "function_call_output", "call_id": f"c{turns}", "output": random_.choice(texts)},
            ]
            length += 2 * len(text) + 300
        row = {
            "responses_create_params": {"input": [{"role": "user", "content": texts[task % 2000]}]},
            "response": {
                "id": f"resp_{number}",
                "output": output,
                "usage": {"input_tokens": length // 3, "output_tokens": length // 4},
            },
            "reward": float(random_.random() < (task * 37 % 101) / 100),
            "expected_answer": "B",
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            "agent_ref": {"name": ENVIRONMENTS[task % 5]},
            "_gym": {
                "rollout_id": f"20261122-074015-5ef041.{task}.{rollout}",
                "attempt": 1,
                "outcome": {
                    "type": "completed" if random_.random() < 0.9 else "truncated",
                    "reason": "max_turns",
                },
                "turns": turns,
                "tool_calls": turns,
                "duration_s": round(random_.lognormvariate(1, 0.7), 4),
            },
        }
        yield json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def write(path: Path, *, count: int, size_bytes: int, whole_bytes: int = 0) -> None:
    """Fill a file with rows, again and again until it is as large as wanted."""
    made = list(rows(min(count, 4000), size_bytes))
    with path.open("wb", buffering=2**22) as file:
        number = 0
        while number < count or file.tell() < whole_bytes:
            line = made[number % len(made)]
            task, rollout = divmod(number, 8)
            if number >= len(made):  # the same row as another rollout
                head, _, tail = line.rpartition(b',"_ng_task_index":')
                rest = tail[tail.index(b',"agent_ref"') :]
                line = head + b',"_ng_task_index":%d,"_ng_rollout_index":%d' % (task, rollout) + rest
            file.write(line + b"\n")
            number += 1


def cpu_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def indexing(path: Path) -> list[object]:
    index_path(path).unlink(missing_ok=True)
    start_s, start_cpu_s = time.perf_counter(), cpu_s()
    for _ in complete_index(path):
        pass
    gigabytes = path.stat().st_size / 1e9
    return [
        f"indexing {gigabytes:.1f} GB",
        f"{(cpu_s() - start_cpu_s) / gigabytes:.1f} s CPU a GB",
        f"{time.perf_counter() - start_s:.1f} s, {index_path(path).stat().st_size / 1e6:.1f} MB",
    ]


def exporting(path: Path) -> list[object]:
    """The command as a user types it; its memory is not to grow with the file."""
    target = path.with_suffix(".parquet")
    command = [sys.executable, "-m", "gym_runtime.cli.main", "export", str(path), "-o", str(target)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    gigabytes = path.stat().st_size / 1e9
    target.unlink()
    return [
        f"exporting {gigabytes:.1f} GB as Parquet",
        f"{(usage.ru_utime + usage.ru_stime) / gigabytes:.1f} s CPU a GB",
        f"{usage.ru_maxrss / 1024:.0f} MiB",
    ]


class Viewing:
    """The command as a user starts it, and its address."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __aenter__(self) -> Viewing:
        self.start_s = time.perf_counter()
        command = [sys.executable, "-m", "gym_runtime.cli.main", "view", str(self.path), "--no-open"]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self.process.stdout is not None
        self.url = (await self.process.stdout.readline()).decode().strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.terminate()
        await self.process.wait()

    def cpu_s(self) -> float:
        used = psutil.Process(self.process.pid).cpu_times()
        return used.user + used.system

    def memory(self) -> int:
        return memory_bytes(psutil.Process(self.process.pid))


async def opened(page: Page, viewing: Viewing) -> tuple[float, float]:
    """Seconds from the command, and from the navigation, to the first rows in the list."""
    name = viewing.path.stem
    asked_s = time.perf_counter()
    await page.goto(f"{viewing.url}#/run/{name}/rollouts")
    await page.until("document.querySelectorAll('.line-at').length > 5", 60)
    now_s = time.perf_counter()
    return now_s - viewing.start_s, now_s - asked_s


async def whole(page: Page) -> None:
    await page.until("!document.querySelector('.progress') && document.querySelector('.under strong')", 300)


async def large(chromium: Chromium, path: Path) -> list[list[object]]:
    table: list[list[object]] = []
    index_path(path).unlink(missing_ok=True)
    gigabytes = path.stat().st_size / 1e9  # noqa: ASYNC240 - nothing else runs
    async with Viewing(path) as viewing, chromium.page() as page:
        since_start_s, since_asked_s = await opened(page, viewing)
        table.append(
            [
                f"{gigabytes:.1f} GB without an index: first rows",
                f"{since_asked_s:.2f} s",
                f"{since_start_s:.2f} s",
            ]
        )
        await whole(page)
        table.append(["  all of them", f"{time.perf_counter() - viewing.start_s:.1f} s", ""])
        table.append(["  memory of the server", f"{viewing.memory() / 2**20:.0f} MiB", ""])
    for _ in range(2):
        async with Viewing(path) as viewing, chromium.page() as page:
            since_start_s, since_asked_s = await opened(page, viewing)
            await whole(page)
            all_s = time.perf_counter() - viewing.start_s
            start_s = time.perf_counter()
            await page.click(".line-at:nth-child(4) a")
            await page.until("document.querySelector('.verdict')")
            transcript_s = time.perf_counter() - start_s
    table.append(
        [f"{gigabytes:.1f} GB with its index: first rows", f"{since_asked_s:.2f} s", f"{since_start_s:.2f} s"]
    )
    table.append(["  all of them", "", f"{all_s:.2f} s"])
    table.append(["  a rollout, from the click", f"{transcript_s:.2f} s", ""])
    return table


async def many(chromium: Chromium, path: Path) -> list[list[object]]:
    for _ in complete_index(path):
        pass
    async with Viewing(path) as viewing, chromium.page() as page:
        await opened(page, viewing)
        await whole(page)
        count = await page.text(".under strong")
        times: list[str] = []
        for query, order in ((QUERY, "row"), (QUERY, "-time"), ("", "-time")):
            await page.eval("lastQueryMs = 0")
            search = f"new URLSearchParams({{q: {query!r}, sort: {order!r}}})"
            await page.eval(f"location.hash = '#/run/{path.stem}/rollouts?' + {search}")
            times.append(f"{await page.until('lastQueryMs'):.0f}")
        await page.eval("location.hash = '#/run/" + path.stem + "'")
        await page.until("document.querySelectorAll('.chart').length === 8", 60)
        await page.send("HeapProfiler.collectGarbage")
        heap = await page.send("Runtime.getHeapUsage")
        held = heap["usedSize"] + heap.get("backingStorageSize", 0)
        server = viewing.memory()
        assert not page.problems, page.problems
    async with Viewing(path) as viewing, chromium.page() as page:
        figures: list[list[object]] = []
        run = path.stem
        for name, at, ready in (
            ("figures of all rows", f"/run/{run}", ".tiles"),
            ("compared with itself", f"/compare?a={run}&b={run}", ".verdict-two"),
        ):
            start_s, start_cpu_s = time.perf_counter(), viewing.cpu_s()
            await page.goto(f"{viewing.url}#{at}")
            await page.until(f"document.querySelector('{ready}')", 300)
            took_s, cpu_s = time.perf_counter() - start_s, viewing.cpu_s() - start_cpu_s
            figures.append([f"  {name}", f"{took_s:.2f} s", f"{cpu_s:.2f} s CPU of the server"])
    return [
        [f"{count} rows: filter, filter and sort, sort all", " ms, ".join(times) + " ms", ""],
        *figures,
        ["  memory of the tab (objects and buffers)", f"{held / 2**20:.0f} MiB", ""],
        ["  memory of the server", f"{server / 2**20:.0f} MiB", ""],
    ]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=5.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table: list[list[object]] = []
        chromium = Chromium()
        try:
            for count in (200_000, arguments.rows):
                path = folder / f"rows-{count}.jsonl"
                write(path, count=count, size_bytes=1000)
                table += [*await many(chromium, path), exporting(path)]
                path.unlink()
            path = folder / "large.jsonl"
            write(path, count=4000, size_bytes=9000, whole_bytes=int(arguments.gb * 1e9))
            table += [indexing(path), *await large(chromium, path), exporting(path)]
        finally:
            chromium.close()
    print_table("the viewer", ["", "", "from the command on"], table)


if __name__ == "__main__":
    asyncio.run(main())
