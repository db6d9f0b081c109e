"""What `gym-runtime top` costs with many workers: its share of a core, and its memory.

    python tests/bench/top.py [--workers 200] [--seconds 30]

The workers are light: one process answers for all of them, with figures that grow, over a real broker. The
command runs in a terminal of 160 by 40 characters.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from fcntl import ioctl
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import anyio
import msgspec
import psutil
from gym_runtime.bus.nats import connect
from gym_runtime.messages import metric_names as names
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.watch import Members
from gym_runtime.system.private_broker import Broker
from measure import cpu_s, memory_bytes, print_table

KINDS = ("agent", "model", "resource")


class LightWorker:
    """A worker that has done a little more each time it is asked."""

    def __init__(self, kind: str, number: int) -> None:
        self._heartbeat = Heartbeat(
            worker=f"{kind}-{number:04}", kind=kind, pools=["policy"], capacity=512, started_s=time.time()
        )
        self._meter = Meter()
        self._asked = 0

    def heartbeat(self) -> Heartbeat:
        self._asked += 1
        for hop in ("model", "tool", "verify"):
            self._meter.observe(names.HOP_DURATION, 0.1 * self._asked % 7, hop, "quiz")
        self._meter.observe(names.ENGINE_DURATION, 0.3 * self._asked % 5, "chat", "openai", "m", "")
        self._meter.observe(names.RESOURCE_DURATION, 0.01 * self._asked % 2, "quiz", "verify", "")
        figures = msgspec.structs.replace(
            self._meter.figures(), cpu_s=self._asked * 0.3, memory_bytes=40 * 2**20 + self._asked
        )
        return msgspec.structs.replace(
            self._heartbeat, in_use=self._asked % 512, load=self._asked % 512 / 512, figures=figures
        )


async def _live(url: str, count: int, ready: Event) -> None:
    async with connect(url) as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(Members(bus, *KINDS).follow)
        for number in range(count):
            worker = LightWorker(KINDS[number % len(KINDS)], number)
            tasks.start_soon(partial(announce, bus, worker.heartbeat, ready=lambda: None))
        await anyio.sleep(3)
        ready.set()
        await anyio.sleep_forever()


def _process(url: str, count: int, ready: Event) -> None:
    anyio.run(_live, url, count, ready, backend_options={"use_uvloop": True})


def watched(url: str, seconds: float) -> tuple[float, int, bytes]:
    """The share of a core and the memory of the command after its start, and what it drew."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "gym_runtime.cli.main", "top", "--nats", url]
        os.execve(sys.executable, command, {**os.environ, "TERM": "xterm-256color"})
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    drawn = bytearray()

    def read() -> None:
        while True:
            try:
                drawn.extend(os.read(terminal, 65536))
            except OSError:  # it has ended
                return

    threading.Thread(target=read, daemon=True).start()
    process = psutil.Process(pid)
    time.sleep(8)
    before, start_s = cpu_s([process]), time.perf_counter()
    time.sleep(seconds)
    share = (cpu_s([process]) - before) / (time.perf_counter() - start_s)
    memory = memory_bytes(process)
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    return share, memory, bytes(drawn)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        url = broker.start()
        ready = context.Event()
        life = context.Process(target=_process, args=(url, arguments.workers, ready), daemon=True)
        life.start()
        ready.wait()
        share, memory, drawn = watched(url, arguments.seconds)
        life.kill()
        life.join()
        broker.stop()
    assert b"agent-" in drawn, drawn[-2000:]
    line = [f"{arguments.workers}", f"{share:.1%}", f"{memory / 2**20:.0f} MiB"]
    print_table("gym-runtime top", ["workers", "of a core", "memory"], [line])


if __name__ == "__main__":
    main()
