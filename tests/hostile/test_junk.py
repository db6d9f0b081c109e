"""Junk on all subjects while rollouts are made: each run ends, with one result for each rollout.

The intruder listens to everything, so it knows all subjects that are in use and what a good message looks
like. It sends what is broken, mistyped, foreign or too deep to subjects of every kind, answers other callers'
requests, and stores records and seconds of them. It does not send what is an order in good form, such as the
cancellation of a run: who may send that may have it obeyed.

``pytest tests/hostile/test_junk.py --soak`` plays ten minutes; ``--seeds 1 --first-seed N`` plays one seed.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from gym_runtime import clock, connect
from gym_runtime.bus.blobs import MAGIC
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.link import Link
from gym_runtime.client import Client, RunInfo, make_pools
from gym_runtime.client.run import Run
from gym_runtime.environment import catalogue, examples
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from runtime.bus.conftest import linked

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(240)]

ENVIRONMENTS = ("example_session_state_mgmt", "structured_outputs")
ROLLOUTS = 6
RUNS = 40
ENDS_WITHIN_S = 60.0
AT_ONCE = 20
PAUSE_S = 0.02
KNOWN = 512
SOAK_SEEDS = 24
"""About ten minutes of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, count = metafunc.config.getoption("first_seed"), metafunc.config.getoption("seeds")
    soak = metafunc.config.getoption("soak")
    seeds = range(first, first + (count or SOAK_SEEDS))
    quick = bool(count) or soak
    metafunc.parametrize(
        "seed", [pytest.param(one, marks=[] if quick else pytest.mark.soak) for one in seeds]
    )


class Intruder:
    """Whoever may send to and store under all subjects."""

    def __init__(self, link: Link, seed: int) -> None:
        self.sent: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._link = link
        self._subjects: dict[str, bytes] = {}
        link.listen("gym.>", self._hear)
        link.listen("_INBOX.>", self._hear)

    def _hear(self, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        if "Junk" in headers:
            return
        if len(self._subjects) >= KNOWN:
            del self._subjects[next(iter(self._subjects))]
        self._subjects[subject] = payload[:4096]
        if reply and self._random.random() < 0.02:
            # An answer to another caller's request, before the one that is asked.
            self._send("answer", reply, self._broken(payload))

    async def attack(self) -> None:
        while True:
            for _ in range(AT_ONCE):
                self._attack()
            await anyio.sleep(PAUSE_S)

    def _attack(self) -> None:
        names = list(self._subjects)
        if not names:
            return
        subject = self._random.choice(names)
        payload = self._subjects[subject]
        kind = subject.split(".")[1] if subject.startswith("gym.") else "inbox"
        if kind == "blob":
            return
        if self._random.random() < 0.3:
            subject = self._bent(subject)
        if kind in ("cancel", "over", "abort", "drain", "control"):
            # In good form these are orders.
            payload = b"\xff" + payload
            subject = subject if kind != "cancel" else f"{subject}.x{self._random.randrange(99)}"
        self._send(kind, subject, self._broken(payload))

    def _send(self, kind: str, subject: str, payload: bytes) -> None:
        self.sent[kind] += 1
        reply = self._random.choice(["", "", "gym.nowhere", "_INBOX.nobody.1"])
        self._link.post(subject, payload, reply=reply, headers={"Junk": "1"})

    def _bent(self, subject: str) -> str:
        """Another subject of this kind."""
        tokens = subject.split(".")
        at = self._random.randrange(1, len(tokens)) if len(tokens) > 1 else 0
        change = self._random.choice(["junk", "-1", "007", "x" * 100, "9" * 30, "é", ""])
        tokens[at : at + 1] = [change] if change else []
        return ".".join(tokens)

    def _broken(self, payload: bytes) -> bytes:
        ways: list[Callable[[], bytes]] = [
            lambda: b"",
            lambda: b"null",
            lambda: b"[" * 5000,
            lambda: MAGIC + b"junk",
            lambda: b"\xff\xfe" + self._random.randbytes(40),
            lambda: payload[: len(payload) // 2],
            lambda: payload + b"}",
            lambda: self._mistyped(payload),
            lambda: self._mistyped(payload),
            lambda: self._random.choice([*self._subjects.values(), b""])[:-1],
        ]
        return self._random.choice(ways)()

    def _mistyped(self, payload: bytes) -> bytes:
        """JSON of the same form in which one field has another type, or is missing."""
        try:
            fields = json.loads(payload)
        except ValueError:
            return b'{"run": 1}'
        if not isinstance(fields, dict) or not fields:
            return b'{"worker": ["x"]}'
        name = self._random.choice(sorted(fields))
        fields[name] = self._random.choice([None, -1, 1e300, "x y", [], {"a": [1]}, True])
        return json.dumps(fields).encode()


def rows(environment: str) -> list[bytes]:
    found = [example.row for example in examples.read(catalogue.environment(environment))]
    return [found[number % len(found)] for number in range(ROLLOUTS)]


async def made(gym: Client, environment: str, number: int) -> Counter[str]:
    """One run's outcomes, made by a client that waits, or published and collected."""
    if number % 2:
        records = gym.rollouts(rows(environment), environment=environment)
        return Counter([type(record.outcome).__name__ async for record in records])
    run = f"published-{number}"
    info = RunInfo(
        run=run, total=ROLLOUTS, environments=[environment], agents=["tool_loop"], created_s=clock.now()
    )
    await gym.driver.open_run(info)
    await gym.driver.publish(list(expand(rows(environment), run=run, environment=environment)))
    found: Counter[str] = Counter()

    def take(record: RolloutRecord) -> None:
        found[type(record.outcome).__name__] += 1

    # Not `collect`, which refuses a run whose description was replaced by junk.
    await Run(gym.driver, info, take, total=ROLLOUTS).follow()
    await gym.driver.finish_run(info)
    return found


async def test_each_run_ends_while_junk_is_on_all_subjects(seed: int) -> None:
    print(f"seed {seed}", file=sys.stderr)
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(list(ENVIRONMENTS), model, workers=1, concurrency=16)
    async with (
        running(SystemSpec(pools=pools)) as system,
        connect(nats=system.url) as gym,
        linked(system.url) as link,
        anyio.create_task_group() as tasks,
    ):
        intruder = Intruder(link, seed)
        await link.settle()
        tasks.start_soon(intruder.attack)
        for number in range(RUNS):
            environment = ENVIRONMENTS[number % len(ENVIRONMENTS)]
            with anyio.fail_after(ENDS_WITHIN_S):
                outcomes = await made(gym, environment, number)
            print(f"  run {number}: {dict(outcomes)}", file=sys.stderr)
            assert outcomes.total() == ROLLOUTS
            await gym.status()
        tasks.cancel_scope.cancel()
        print(f"  junk by kind: {dict(intruder.sent)}", file=sys.stderr)
        # When it is over, nothing of it is left that troubles a run.
        with anyio.fail_after(ENDS_WITHIN_S):
            assert await made(gym, ENVIRONMENTS[0], 1) == {"Completed": ROLLOUTS}
