"""`RewardWatch`: takes in the records of a run, looks a second time at some of them, and raises the alarm.

    record ──▶ add (drawn by a secret) ──▶ queue ──▶ looking (a process) ─┬─▶ Evidence ──▶ alarm
                                                                        └─▶ Drift ──▶ notice

`add` never waits: what does not fit the queue is not looked at. Which rollouts are drawn does not depend on
what they say. A look that fails is missing, and no disagreement.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from gym_runtime.adapters import ModelSettings
from gym_runtime.environment import catalogue
from gym_runtime.errors import UNREADABLE, UsageError, leaf
from gym_runtime.messages import Alarm, RolloutRecord
from gym_runtime.own_files import open_own, refuse_special

from gym_testing.alarm.drift import Drift
from gym_testing.alarm.evidence import ALPHA, CALIBRATION, Evidence, Look
from gym_testing.alarm.looking import Answer, Question

QUEUE = 512
LOOK_S = 20.0
"""How long one look may take."""
AUDITOR_S = 120.0
"""How long it may take a model."""
COST_SHARE = 0.03
"""Of this machine's processors, for looks where no share is given."""
END_S = 10.0
"""How long the looks that are left may take when the run has ended."""
LINE_BYTES = 1_000_000
TOLERANCE = 1e-9
_encode = msgspec.json.Encoder().encode


class _Own(msgspec.Struct):
    weight_versions: list[str] = []


class _Row(msgspec.Struct):
    own: _Own = msgspec.field(name="_gym", default_factory=_Own)


_decode_row = msgspec.json.Decoder(_Row).decode


def parse_share(text: str) -> tuple[float | None, int | None]:
    """``auto``, a share, or how many rollouts of each version of the weights.

    >>> parse_share("auto"), parse_share("0.03"), parse_share("20")
    ((None, None), (0.03, None), (1.0, 20))

    Raises:
        UsageError: the value is neither a share nor a number.
    """
    with suppress(ValueError):
        value = float(text)
        if 0 < value <= 1:
            return value, None
        if value.is_integer() and value > 1:
            return 1.0, int(value)
    if text == "auto":
        return None, None
    raise UsageError(
        f"--watch-rewards {text}: say a share of the rewarded rollouts, such as 0.03; how many of each "
        "version of the weights, such as 20; or auto"
    )


class Drawn(msgspec.Struct, frozen=True):
    """A rollout that is looked at."""

    environment: str
    rollout_id: str
    version: str


class RewardWatch:
    """Watches the rewards of one run; `watching` makes it and lets it work.

    Args:
        environments: the name or path of each environment of the run, by its name in records. The probability
            of a false alarm is shared between them; all others together have as much.
        share: of the rewarded rollouts that are looked at; None for as many as 3 % of the processors allow.
        each_version: at most so many of each version of the weights.
        second: an environment, by name or path, that judges the same rows more strictly; else see `looking`.
        auditor: a model that judges the rewarded rollouts instead.
        tell: called with each alarm, and with notices.

    Attributes:
        alarms: that were raised.
        looks, missing: how many second looks were made, and how many could not be.
    """

    def __init__(
        self,
        environments: Mapping[str, str],
        *,
        share: float | None = None,
        each_version: int | None = None,
        second: str = "",
        auditor: ModelSettings | None = None,
        tell: Callable[[Alarm | str], None] = lambda _: None,
    ) -> None:
        self.alarms: list[Alarm] = []
        self.looks = self.missing = 0
        self._share, self._each, self._tell = share, each_version, tell
        self._second, self._auditor = second, auditor
        self._addresses = dict(environments)
        self._unnamed = 0
        self._evidence: dict[str, Evidence] = {}
        self._drift: dict[str, Drift] = {}
        self._by_version = Counter[str]()
        self._secret = secrets.token_bytes(16)
        self._began_s, self._used_s = time.monotonic(), 0.0
        self._why = ""
        self._queue, self._waiting = anyio.create_memory_object_stream[tuple[Question, Drawn]](QUEUE)

    def add(self, record: RolloutRecord) -> None:
        """Take in a record; some of those with a reward are looked at later. Does not wait."""
        if record.reward is None or record.reward <= TOLERANCE or not self._drawn(record.rollout_id):
            return
        version = _version(record)
        if self._each is not None:
            self._by_version[version] += 1
            if self._by_version[version] > self._each:
                return
        name = record.environment
        address = self._addresses.get(name, name)
        question = Question(address, record.reward, record.row, self._second, self._auditor)
        try:
            self._queue.send_nowait((question, Drawn(name, record.rollout_id, version)))
        except anyio.WouldBlock:
            self.missing += 1

    def _drawn(self, rollout_id: str) -> bool:
        if self._share is None:
            allowed_s = COST_SHARE * (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
            return self._used_s <= allowed_s + 1.0
        digest = hashlib.blake2b(rollout_id.encode(), key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest) < self._share * 2**64

    def take(self, drawn: Drawn, reward: float, answer: Answer) -> None:
        """Take in what a second look said of a rollout with this reward."""
        name = drawn.environment
        if answer.confirmed is None:
            self.missing += 1
            if answer.why and answer.why != self._why:
                self._why = answer.why
                self._tell(f"no second look at {name}: {answer.why}")
            return
        self.looks += 1
        strength = reward - answer.confirmed
        look = Look(drawn.rollout_id, strength > TOLERANCE, drawn.version, strength)
        evidence = self._evidence.get(name) or self._begun(name)
        alarm = evidence.add(look)
        if alarm is not None:
            self.alarms.append(alarm)
            self._tell(alarm)
        for notice in self._drift.setdefault(name, Drift(name)).add(answer.signs, answer.answer):
            self._tell(notice)

    @property
    def silent(self) -> list[str]:
        """The environments that had too few looks for an alarm, by name."""
        return sorted(name for name, evidence in self._evidence.items() if evidence.usual is None)

    def _begun(self, name: str) -> Evidence:
        share = 1 / max(1, len(self._addresses))
        if name not in self._addresses:  # 1/2 + 1/6 + 1/12 + … = 1
            self._unnamed += 1
            share = 1 / (self._unnamed * (self._unnamed + 1))
        self._evidence[name] = Evidence(name, ALPHA * share)
        return self._evidence[name]

    async def work(self) -> None:
        """Look at what was drawn, until `close`."""
        looking = _Looking()
        with self._waiting:
            await self._look(looking)

    async def _look(self, looking: _Looking) -> None:
        try:
            async for question, drawn in self._waiting:
                began_s = time.monotonic()
                answer = await looking.ask(question)
                self._used_s += time.monotonic() - began_s
                self.take(drawn, question.reward, answer)
        finally:
            await looking.kill()

    def close(self) -> None:
        """Nothing more is added; `work` ends when all that was drawn is looked at."""
        self._queue.close()


def _version(record: RolloutRecord) -> str:
    try:
        versions = _decode_row(record.row).own.weight_versions
    except UNREADABLE:
        return ""
    return versions[-1] if versions else ""


class _Looking:
    """The process that looks; started when it is first asked, and again after a look that took too long."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._said: BufferedByteReceiveStream | None = None

    async def ask(self, question: Question) -> Answer:
        try:
            with anyio.fail_after(LOOK_S if question.auditor is None else AUDITOR_S):
                if self._process is None:
                    await self._start()
                assert self._process is not None
                assert self._process.stdin is not None
                assert self._said is not None
                await self._process.stdin.send(_encode(question) + b"\n")
                return msgspec.json.decode(await self._said.receive_until(b"\n", LINE_BYTES), type=Answer)
        except TimeoutError:
            problem = "it took too long"
        except (
            anyio.BrokenResourceError,
            anyio.IncompleteRead,
            anyio.ClosedResourceError,
            anyio.DelimiterNotFound,
        ):
            problem = "the process that looks has ended"
        except UNREADABLE as error:
            problem = f"the process that looks said what is no answer: {error}"
        await self.kill()
        return Answer(None, problem)

    async def _start(self) -> None:
        command = [sys.executable, "-m", "gym_testing.alarm.looking"]
        self._process = await anyio.open_process(command, stderr=subprocess.DEVNULL, cwd=Path.cwd())
        assert self._process.stdout is not None
        self._said = BufferedByteReceiveStream(self._process.stdout)

    async def kill(self) -> None:
        """End the process, and wait until it has ended."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()


@asynccontextmanager
async def watching(
    environments: Mapping[str, str],
    *,
    share: float | None = None,
    each_version: int | None = None,
    second: str = "",
    auditor: ModelSettings | None = None,
    tell: Callable[[Alarm | str], None] = lambda _: None,
) -> AsyncGenerator[RewardWatch]:
    """A `RewardWatch` that works while this context lasts; at its end the looks that are left are made.

    Args:
        environments, share, each_version, second, auditor, tell: see `RewardWatch`.
    """
    watch = RewardWatch(
        environments, share=share, each_version=each_version, second=second, auditor=auditor, tell=tell
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.work)
            try:
                yield watch
            finally:
                watch.close()
                tasks.cancel_scope.deadline = anyio.current_time() + END_S
    # An error of the context's body is the caller's, and must reach it as it was raised.
    except BaseExceptionGroup as group:
        raise leaf(group) from None


def rewards(
    environments: Mapping[str, str],
    asked: str,
    second: str,
    path: Path | None,
    tell: Callable[[Alarm | str], None],
    auditor: ModelSettings | None = None,
) -> AbstractAsyncContextManager[RewardWatch]:
    """What ``--watch-rewards`` does, found by its entry point; alarms are also lines of a file.

    Args:
        environments, auditor: see `RewardWatch`.
        asked: see `parse_share`.
        path: of that file; None for none.
        tell: called with each alarm or notice.

    Raises:
        UsageError: the share is not valid, no environment has the name ``second``, or the file is no file of
            its own.
    """
    if path is not None:
        refuse_special(path)
    share, each_version = parse_share(asked)
    if second and auditor is not None:
        raise UsageError("a second look is another environment's or an auditor's: name one of them")
    if second:
        catalogue.environment(second)

    def said(what: Alarm | str) -> None:
        if isinstance(what, Alarm) and path is not None:
            try:
                with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
                    file.write(_encode(what) + b"\n")
            except OSError as error:
                tell(f"the alarm is not in {path}: {error.strerror}")
        tell(what)

    @asynccontextmanager
    async def watched() -> AsyncGenerator[RewardWatch]:
        made = watching(
            environments, share=share, each_version=each_version, second=second, auditor=auditor, tell=said
        )
        watch: RewardWatch | None = None
        try:
            async with made as watch:
                yield watch
        finally:
            if watch is not None and (watch.looks or watch.missing):
                missing = f", {watch.missing:,} could not be" if watch.missing else ""
                tell(f"{watch.looks:,} rewarded rollouts were looked at a second time{missing}")
                if watch.silent:
                    where = ", ".join(watch.silent)
                    why = f"the first {CALIBRATION} only say what is usual"
                    tell(f"too few looks for an alarm at {where}: {why}")

    return watched()
