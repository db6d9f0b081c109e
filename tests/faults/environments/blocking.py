"""Some of its rows block the event loop of the worker that judges them; a file has each verification."""

import ctypes
import os
import time

import anyio
from gym_runtime import Environment, Reply, Task, Verdict


class BlockingTask(Task):
    number: int
    blocks_s: float = 0.0
    spins: bool = False
    keeps_lock: bool = False


async def verify(task: BlockingTask, reply: Reply) -> Verdict:
    note(task)
    await anyio.sleep(0.5)
    block(task)
    return Verdict(1.0)


def note(task: BlockingTask) -> None:
    with open(os.environ["GYM_TEST_NOTES"], "a") as notes:
        notes.write(f"{task.number}\n")


def block(task: BlockingTask) -> None:
    if task.keeps_lock:
        ctypes.PyDLL(None).usleep(int(task.blocks_s * 1e6))  # keeps the interpreter's lock, as `re` does
        return
    end_s = time.monotonic() + task.blocks_s
    while task.spins and time.monotonic() < end_s:
        pass
    time.sleep(max(0.0, end_s - time.monotonic()))


environment = Environment(resource=verify, description="Blocks.", agent="single_turn")
