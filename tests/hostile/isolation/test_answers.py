"""Replies that forge their verifier's answer, or end its processes, fail their own rollout only."""

from __future__ import annotations

import os
import pickle
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from gym_runtime.errors import ResourceError
from gym_sandbox import frames
from hostile.isolation.careless_verifier import said, still_judges
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    NEEDS_ISOLATION,
]


class Shell:
    """Runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


async def test_a_pickle_for_an_answer_is_a_failed_verification(module: Path, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    evil = pickle.dumps((True, Shell(mark)))
    frame = struct.pack("!Q", len(evil)) + evil
    code = f"""
for descriptor in range(256):
    attempt(os.write, descriptor, {frame!r})
os._exit(0)
"""
    with pytest.raises(ResourceError, match=r"its answer cannot be read|died"):
        await said(module, code)
    assert not mark.exists()
    await still_judges(module)


async def test_answers_forged_on_every_descriptor_change_no_other_rollout(module: Path) -> None:
    forged = frames.encode_answer(frames.CallDone(frames.msgspec.Raw(b'{"reward": 1.0}')))
    bare = frames.LENGTH.pack(len(forged)) + forged
    framed = b"".join(
        frames.LENGTH.pack(frames.ANSWER.size + len(forged)) + frames.ANSWER.pack(number, 0, 0) + forged
        for number in range(20)
    )
    for data in (bare + framed, framed + bare):
        code = f"""
targets = list(range(256))
for pid in os.listdir("/proc"):
    for number in range(16):
        try:
            targets.append(os.open(f"/proc/{{pid}}/fd/{{number}}", os.O_WRONLY))
        except OSError:
            pass
for descriptor in targets:
    attempt(os.write, descriptor, {data!r})
"""
        with suppress(ResourceError, KeyError):
            await said(module, code)
        await still_judges(module)


async def test_a_process_that_is_stopped_or_killed_from_within_fails_that_rollout_only(module: Path) -> None:
    for number in ("SIGKILL", "SIGINT"):
        with pytest.raises(ResourceError, match="died"):
            await said(module, f"import signal, time\nos.kill(os.getppid(), signal.{number})\ntime.sleep(60)")
        await still_judges(module)


async def test_the_process_that_judges_goes_on_at_sigterm(module: Path) -> None:
    await said(module, "import signal\nos.kill(os.getppid(), signal.SIGTERM)\nsaid = 'alive'")
    await still_judges(module)
