"""Each role may do what the tables say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from faults.permissions.identities import WORKERS, as_role
from gym_runtime.bus import identity, nats
from gym_runtime.bus.interface import Delivery
from gym_runtime.bus.link import Link, Role
from gym_runtime.errors import BrokerError
from gym_testing.background import Mailbox

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]


STREAMS = {
    "gym_TASKS": "gym.task.>",
    "gym_ROLLOUTS": "gym.rollout.>",
    "gym_JOURNAL": "gym.journal.>",
    "gym_RUNS": "gym.runs.>",
    "gym_BLOBS": "gym.blob.>",
}


OF_THE_ACCOUNT = (
    "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.TEMPLATE.NAMES", "META.LEADER.STEPDOWN", "SERVER.REMOVE",
    "ACCOUNT.PURGE.GYM", "ACCOUNT.STREAM.MOVE.GYM.gym_TASKS",
)  # fmt: skip


OF_A_STREAM = (
    "STREAM.INFO.S", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.DELETE.S", "STREAM.PURGE.S",
    "STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "STREAM.SNAPSHOT.S", "STREAM.RESTORE.S",
    "STREAM.LEADER.STEPDOWN.S", "STREAM.PEER.REMOVE.S", "DIRECT.GET.S", "DIRECT.GET.S.FILTER",
    "DIRECT.GET.S.gym.journal.r.0.0.0.role.x", "DIRECT.GET.S.gym.runs.weights.p", "DIRECT.GET.S.gym.runs.r",
    "CONSUMER.CREATE.S", "CONSUMER.CREATE.S.c", "CONSUMER.CREATE.S.c.FILTER",
    "CONSUMER.CREATE.S.c.gym.>", "CONSUMER.CREATE.S.c.gym.journal.r.*.*.*.task",
    "CONSUMER.DURABLE.CREATE.S.c", "CONSUMER.NAMES.S", "CONSUMER.LIST.S",
    "CONSUMER.INFO.S.c", "CONSUMER.DELETE.S.c", "CONSUMER.PAUSE.S.c", "CONSUMER.RESET.S.c",
    "CONSUMER.UNPIN.S.c", "CONSUMER.LEADER.STEPDOWN.S.c", "CONSUMER.MSG.NEXT.S.c",
)  # fmt: skip


SUBJECTS = (
    "gym.task.a.e.r", "gym.rollout.r.0.0", "gym.journal.r.0.0.0", "gym.runs.r", "gym.runs.r.cancelled.0",
    "gym.runs.boxes.a.slot.0", "gym.journal.r.0.0.0.role.x", "gym.members.model",
    "gym.journal.r.0.0.0.task",
    "gym.blob.run.r.i.0", "gym.blob.brief.i.0", "gym.cancel.r", "gym.control.w", "gym.follow.r",
    *(f"gym.{verb}.{kind}.w" for verb in ("join", "alive", "gone") for kind in ("client", *WORKERS)),
    "gym.call", "gym.members.none", "gym.members.w",
    "gym.model.p", "gym.model.p.w", "gym.resource.e", "gym.resource.e.w", "gym.abort.w",
    "gym.abort.model.p", "gym.abort.resource.e", "gym.holds.w", "gym.over.e", "another.subject",
    *(f"gym.drain.{kind}.w" for kind in WORKERS),
    "$SYS.REQ.SERVER.PING",
    *(f"_INBOX.gym.{role}.{use}.x.1" for role in ("client", *WORKERS) for use in ("r", "s")),
)  # fmt: skip


def read(stream: str) -> list[str]:
    """The verbs with which a role reads a stream through its own consumer."""
    return [
        f"CONSUMER.{verb}"
        for verb in (f"CREATE.{stream}.c.FILTER", f"MSG.NEXT.{stream}.c", f"DELETE.{stream}.c")
    ]


FAILED_TASKS = ["CONSUMER.CREATE.gym_JOURNAL.c.gym.journal.r.*.*.*.task"]
"""How a client finds the failed rollouts of a run, to run them again."""


MAY_ASK: dict[Role, list[str]] = {
    "client": [
        "INFO",
        *(
            f"STREAM.{verb}.{stream}"
            for verb in ("CREATE", "UPDATE", "INFO", "MSG.GET")
            for stream in STREAMS
        ),
        *(f"STREAM.PURGE.{stream}" for stream in STREAMS),
        "CONSUMER.INFO.gym_TASKS.c",
        "CONSUMER.CREATE.gym_TASKS.c.FILTER",
        "DIRECT.GET.gym_BLOBS.FILTER",
        *read("gym_ROLLOUTS"),
        *read("gym_RUNS"),
        *FAILED_TASKS,
        "CONSUMER.MSG.NEXT.gym_JOURNAL.c",
        "CONSUMER.DELETE.gym_JOURNAL.c",
    ],
    "agent": [
        "INFO",
        "CONSUMER.CREATE.gym_TASKS.c.FILTER",
        "CONSUMER.MSG.NEXT.gym_TASKS.c",
        "STREAM.INFO.gym_JOURNAL",
        "STREAM.PURGE.gym_JOURNAL",
        "STREAM.MSG.GET.gym_JOURNAL",
        "STREAM.MSG.GET.gym_ROLLOUTS",
        "STREAM.MSG.GET.gym_RUNS",
        "DIRECT.GET.gym_BLOBS.FILTER",
        "DIRECT.GET.gym_JOURNAL.gym.journal.r.0.0.0.role.x",
        *read("gym_JOURNAL"),
        *FAILED_TASKS,
        *read("gym_RUNS"),
    ],
    "resource": [
        "INFO",
        "STREAM.INFO.gym_ROLLOUTS",
        "STREAM.MSG.GET.gym_RUNS",
        "DIRECT.GET.gym_BLOBS.FILTER",
        "DIRECT.GET.gym_JOURNAL.gym.journal.r.0.0.0.role.x",
    ],
    "model": ["INFO", "DIRECT.GET.gym_BLOBS.FILTER", "DIRECT.GET.gym_RUNS.gym.runs.weights.p"],
}
"""What each role may ask of JetStream. Everything else of the two lists above is refused."""


BLOBS = ["gym.blob.run.r.i.0", "gym.blob.brief.i.0"]


ANSWERS = [f"_INBOX.gym.{role}.r.x.1" for role in ("client", *WORKERS)]


JOIN, ALIVE, GONE = (
    [f"gym.{verb}.{kind}.w" for kind in ("client", *WORKERS)] for verb in ("join", "alive", "gone")
)


MAY_PUBLISH: dict[Role, list[str]] = {
    "client": [
        *("gym.task.a.e.r", "gym.runs.r", "gym.runs.r.cancelled.0", "gym.cancel.r"),
        *(
            "gym.runs.boxes.a.slot.0",
            "gym.control.w",
            "gym.follow.r",
            "gym.journal.r.0.0.0.task",
            "gym.join.client.w",
            "gym.gone.client.w",
            "gym.call",
            *BLOBS,
        ),
        *("gym.members.none", "gym.members.model", "gym.members.w", *ALIVE),
        *("gym.resource.e", "gym.resource.e.w", "gym.abort.w", "gym.abort.resource.e", "gym.holds.w"),
        *(f"gym.drain.{kind}.w" for kind in WORKERS),
        *("_INBOX.gym.agent.r.x.1", "_INBOX.gym.client.r.x.1"),
    ],
    "agent": [
        *("gym.rollout.r.0.0", "gym.journal.r.0.0.0", "gym.join.agent.w", "gym.call", *BLOBS),
        *("gym.members.none", "gym.members.model", "gym.members.w", *ALIVE, *GONE),
        *("gym.journal.r.0.0.0.role.x", "gym.journal.r.0.0.0.task"),
        *("gym.model.p", "gym.model.p.w", "gym.resource.e", "gym.resource.e.w", "gym.holds.w", "gym.over.e"),
        *("gym.abort.w", "gym.abort.model.p", "gym.abort.resource.e"),
        *("$JS.ACK.gym_TASKS.c.1.1.1.1.1", *ANSWERS),
    ],
    "resource": [
        *("gym.join.resource.w", "gym.gone.resource.w", "gym.members.none", "gym.members.model"),
        *("gym.alive.model.w", "gym.model.p", "gym.model.p.w", "gym.abort.w", "gym.abort.model.p"),
        *("gym.holds.w", "gym.journal.r.0.0.0.role.x", "gym.runs.boxes.a.slot.0", *BLOBS, *ANSWERS),
    ],
    "model": ["gym.join.model.w", "gym.gone.model.w", "gym.members.none", *BLOBS, *ANSWERS],
}


MAY_HEAR: dict[Role, list[str]] = {
    "client": [
        *(*JOIN, *GONE),
        *("gym.alive.client.w", "gym.call", "gym.follow.r"),
        *("_INBOX.gym.client.r.x.1", "_INBOX.gym.client.s.x.1"),
    ],
    "agent": [
        *JOIN,
        *GONE,
        *("gym.alive.agent.w", "gym.call", "gym.members.none", "gym.members.model", "gym.members.w"),
        *("gym.cancel.r", "gym.drain.agent.w", "_INBOX.gym.agent.r.x.1", "_INBOX.gym.agent.s.x.1"),
    ],
    "resource": [
        *("gym.resource.e", "gym.resource.e.w", "gym.abort.w", "gym.abort.resource.e", "gym.over.e"),
        *("gym.holds.w", "gym.alive.resource.w", "gym.gone.resource.w", "gym.call"),
        *("gym.join.model.w", "gym.gone.model.w", "gym.drain.resource.w"),
        *("_INBOX.gym.resource.r.x.1", "_INBOX.gym.resource.s.x.1"),
    ],
    "model": [
        *("gym.model.p", "gym.model.p.w", "gym.abort.w", "gym.abort.model.p", "gym.control.w"),
        *("gym.holds.w", "gym.alive.model.w", "gym.gone.model.w", "gym.call", "gym.drain.model.w"),
        *("_INBOX.gym.model.r.x.1", "_INBOX.gym.model.s.x.1"),
    ],
}


def in_full(verb: str) -> str:
    """A verb of the tables as the subject on the wire."""
    stream = next((name for name in STREAMS if name in verb), "")
    return f"$JS.API.{verb.replace('FILTER', STREAMS.get(stream, ''))}"


class Probe(Link):
    """Says what the broker refused."""

    refused: set[str]

    def _on_error(self, text: str) -> None:
        self.refused.add(text.split('"')[1])

    async def may(self, subjects: list[str], attempt: Callable[[str], object]) -> list[str]:
        """Those of the subjects for which the attempt was not refused."""
        self.refused = set()
        for subject in subjects:
            attempt(subject)
        await self.settle()
        assert self.up
        # nats-py tells them in small letters.
        return sorted(subject for subject in set(subjects) if subject.lower() not in self.refused)


@asynccontextmanager
async def probing(url: str, folder: Path, role: Role) -> AsyncGenerator[Probe]:
    probe = Probe(
        identity.parse(url),
        inbox=f"_INBOX.gym.{role}",
        credentials=folder / f"{role}.seed",
        tls=identity.trust(),
    )
    await probe.dial()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe.run)
        try:
            yield probe
        finally:
            await probe.close()


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["client", *WORKERS])
async def test_each_role_may_do_what_the_tables_say_and_nothing_else(
    url: str, folder: Path, role: Role
) -> None:
    verbs = [re.sub(r"\.S\b", f".{stream}", verb) for verb in OF_A_STREAM for stream in STREAMS]
    asked = [in_full(verb) for verb in (*OF_THE_ACCOUNT, *verbs)]
    acks = [f"$JS.{kind}.{stream}.c.1.1.1.1.1" for kind in ("ACK", "FC") for stream in STREAMS]
    # Without a subject to answer to, what is allowed is not done.
    async with probing(url, folder, role) as probe:
        may_ask = await probe.may(asked, lambda subject: probe.post(subject, b""))
        assert may_ask == sorted(map(in_full, MAY_ASK[role]))
        said = [*SUBJECTS, *acks]
        assert await probe.may(said, lambda subject: probe.post(subject, b"")) == sorted(MAY_PUBLISH[role])
        heard = await probe.may(
            [*SUBJECTS, ">", "gym.>", "_INBOX.>", "$JS.>", "$SYS.>"],
            lambda subject: probe.listen(subject, lambda *_: None),
        )
        assert heard == sorted(MAY_HEAR[role])


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["resource", "model"])
async def test_who_lacks_the_reference_reads_no_large_payload_and_replaces_none(
    url: str, folder: Path, role: Role
) -> None:
    secret = b"a secret of another rollout " * 50_000  # more than travels in one message
    async with as_role(url, folder, "client") as client, probing(url, folder, role) as thief:
        await client.enqueue("task.nobody.environment.theft", secret)
        taken: set[str] = set()
        chunks = [">", "run.>", "*.*.*.*", "run.theft.*.0", "run.theft.*.whole"]
        for pattern in chunks:
            answer = await thief.ask(f"$JS.API.DIRECT.GET.gym_BLOBS.gym.blob.{pattern}", b"", within_s=5)
            assert b"secret" not in answer.payload
            if subject := answer.headers.get("Nats-Subject"):
                taken.add(subject)
        # That a subject can be learned is why the chunk is encrypted, and why it cannot be replaced.
        assert taken
        for subject in taken:
            for header in (
                {},
                {"Nats-Rollup": "sub"},
                {"Nats-TTL": "1"},
                {"Nats-Expected-Last-Sequence": "0"},
            ):
                stored = await thief.ask(subject, b"forged", headers=header, within_s=5)
                assert b"error" in stored.payload
        done = Mailbox[bytes]()

        async def handle(delivery: Delivery) -> None:
            done.put(delivery.payload)
            await delivery.ack()

        async with as_role(url, folder, "agent") as agent, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.pull("task.nobody.>", consumer="n", slots=1, handle=handle))
            assert await done.until(1) == [secret]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("role", WORKERS)
async def test_a_roles_answers_are_read_by_nobody_else(
    url: str, folder: Path, role: Role, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BrokerError, match=f"take those of the role '{role}', or give the --prefix"):
        async with nats.connect(url, role=role, credentials=folder / "client.seed"):
            pass
    assert capsys.readouterr() == ("", ""), "the error is all that is said"
