"""Programs that run in a sandbox."""

from __future__ import annotations

import os

import psutil
import pytest
from gym_sandbox import Limits, Result, Sandbox, bubblewrap, python
from gym_sandbox.sandbox_errors import SetupError

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
NEEDS_ISOLATION = pytest.mark.skipif(bool(_refusal), reason=_refusal)


async def run(
    code: str, limits: Limits | None = None, *, timeout_s: float = 10, stdin: bytes = b""
) -> Result:
    async with Sandbox(limits) as box:
        return await box.run([*python.python_command(), "-c", code], timeout_s=timeout_s, stdin=stdin)


async def said(code: str, limits: Limits | None = None) -> str:
    result = await run(code, limits)
    assert result.exit_code == 0, result
    return result.stdout.decode().strip()


MARK = f"sandbox-test-mark-{os.getpid()}"


STUBBORN = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]"


DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mark = {MARK!r}
        time.sleep(600)
    os._exit(0)
"""


def living(mark: str) -> list[int]:
    """Processes of the host with this mark in their command line."""
    found: list[int] = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if mark in " ".join(process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
