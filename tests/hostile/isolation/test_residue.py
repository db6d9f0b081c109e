"""Replies that a verifier executes leave nothing behind for the next verification."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hostile.isolation.careless_verifier import said, still_judges
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    NEEDS_ISOLATION,
]


async def test_a_scorer_that_is_replaced_is_replaced_for_one_rollout(module: Path) -> None:
    code = """
for loaded in list(sys.modules.values()):
    if hasattr(loaded, "score") and hasattr(loaded, "RIGHT"):
        loaded.score = lambda answer: 1.0
        loaded.RIGHT = "41"
said = "replaced"
"""
    assert await said(module, code) == "replaced"
    await still_judges(module)


async def test_files_that_a_reply_leaves_are_not_there_for_the_next(module: Path) -> None:
    code = """
for place in ("/tmp", "/dev/shm"):
    open(place + "/left", "w").write("x")
    {more}
"""
    look = "said = os.listdir('/tmp') + os.listdir('/dev/shm')"
    before = await said(module, look)
    for more in ("pass", "os.makedirs(place + '/a/b')", "os.chmod('/tmp', 0o700)"):
        await said(module, code.format(more=more))
        assert await said(module, look) == before


NAME = "left-by-the-one-before"
LEAVES = f"""
import ctypes
open(os.path.join(os.environ["HOME"], "{NAME}"), "w").close()
ctypes.CDLL(None).prctl(15, b"{NAME[:15]}", 0, 0, 0)
__import__("time").sleep(0.2)  # so long that the process that forks looks at the time that was spent
said = "{NAME}" * 50  # {NAME * 50}
"""
LOOKS = r"""
import re
said = 0
name = re.compile(rb"left-by(?:-the-one)")  # which does not contain what it finds
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
    for line in maps:
        first, end = (int(number, 16) for number in line.split()[0].split("-"))
        if line.split()[1].startswith("rw"):
            memory.seek(first)
            said += len(name.findall(memory.read(end - first)))
"""


async def test_no_rollout_finds_the_text_of_the_one_before_it(module: Path) -> None:
    """Neither its reply, nor its answer, nor names that it gave to a file and to a process."""
    await said(module, "said = 0")
    assert await said(module, LEAVES) == NAME * 50
    assert await said(module, LOOKS) == "0"


async def test_what_a_reply_starts_ends_with_its_verification(module: Path) -> None:
    sleep = ["sleep", f"611.{os.getpid()}"]
    code = f"""
import subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen({sleep})
        while True:
            pass
    os._exit(0)
os.wait()
said = "left"
"""
    assert await said(module, code) == "left"
    assert sleep not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert await said(module, "said = len([p for p in os.listdir('/proc') if p.isdigit()])") <= "4"
