"""What each role may do, and what it is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from urllib.request import urlopen

import anyio
import msgspec
import pytest
from faults.permissions.identities import as_role, identities, serving
from gym_runtime.bus.blobs import SMALL_INLINE_BYTES
from gym_runtime.bus.identity import CA
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.bus.link import Role
from gym_runtime.client import RunInfo
from gym_runtime.errors import BrokerError
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.anyio
async def test_each_role_can_do_all_of_its_work(url: str, folder: Path) -> None:
    large = os.urandom(SMALL_INLINE_BYTES + 1)
    async with (
        as_role(url, folder, "client") as client,
        as_role(url, folder, "agent") as agent,
        as_role(url, folder, "model") as model,
    ):
        await client.enqueue("task.all.mcqa.r1", large)
        await agent.append("journal.r1.0.0.0", b"a", expect=0)
        assert await agent.append("journal.r1.0.0.0", b"b", expect=0) is None
        assert await agent.counts("journal.r1.0.0.0") == {"journal.r1.0.0.0": 1}
        assert (await anext(agent.records("journal.r1.0.0.0"))).payload == b"a"
        assert await agent.forget("journal.r1.0.0.0") == 1
        done = anyio.Event()

        async def handle(delivery: Delivery) -> None:
            assert await agent.commit("rollout.r1.0.0", delivery.payload)
            assert not await agent.commit("rollout.r1.0.0", b"another")
            await delivery.ack()
            done.set()

        async with anyio.create_task_group() as tasks:

            def answer(incoming: Incoming) -> None:
                tasks.start_soon(model.publish, incoming.reply, incoming.payload)

            async with model.serve("model.policy", answer, queue="model.policy"):
                deadline_s = time.monotonic() + 10
                assert await agent.request("model.policy", large, deadline_s=deadline_s) == large
            tasks.start_soon(lambda: agent.pull("task.all.>", consumer="agent-all", slots=1, handle=handle))
            await done.wait()
            tasks.cancel_scope.cancel()
        assert [record.payload for record in await agent.latest("rollout.r1.0.0")] == [large]
        assert (await anext(client.records("rollout.r1.>"))).payload == large
        async with as_role(url, folder, "resource") as resource:
            answer = "journal.r1.0.0.0.role.a"
            await resource.append(answer, large)
            assert [record.payload for record in await resource.latest(answer, nearest=True)] == [large]
            assert await resource.latest("journal.r1.0.0.0.role.b", nearest=True) == []
            # An agent that asks models itself reads their answers again in a later attempt.
            assert [record.payload for record in await agent.latest(answer, nearest=True)] == [large]
        async with as_role(url, folder, "model") as model:
            await client.append("runs.weights.policy", b"w")
            assert [one.payload for one in await model.latest("runs.weights.policy", nearest=True)] == [b"w"]
            assert await model.latest("runs.weights.judge", nearest=True) == []
        await client.depth("agent-all")
        await client.append("runs.r1", msgspec.json.encode(RunInfo(run="r1", total=1)))
        assert len(await client.latest("runs.*")) >= 1
        for stored in ("task.all.>", "rollout.r1.>", "journal.r1.>"):
            await client.forget(stored)


PUBLISH: dict[Role, list[str]] = {
    "client": [
        "gym.rollout.r2.0.0",
        "gym.journal.r2.0",
        "gym.model.policy",
        "gym.join.model.m",
        "gym.gone.model.m",
        "$JS.API.STREAM.DELETE.gym_TASKS",
    ],
    "agent": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.runs.r2",
        "gym.cancel.r1",
        "gym.join.model.m",
        "gym.control.m",
        "gym.drain.agent.a",
        "$JS.API.STREAM.DELETE.gym_ROLLOUTS",
        "$JS.API.STREAM.PURGE.gym_ROLLOUTS",
        "$JS.API.STREAM.CREATE.gym_OTHER",
        "$JS.API.STREAM.UPDATE.gym_ROLLOUTS",
        "$JS.API.CONSUMER.CREATE.gym_ROLLOUTS.c.gym.rollout.>",
    ],
    "resource": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.rollout.r2.0.0",
        "gym.journal.r2.0",
        "gym.runs.r2",
        "gym.cancel.r1",
        "gym.control.m",
        "gym.drain.agent.a",
        "gym.resource.mcqa",
        "gym.abort.agent.a",
        "gym.join.agent.a",
        "gym.gone.agent.a",
        "gym.gone.model.m",
        "gym.alive.agent.a",
        "gym.members.agent",
        "gym.call",
        "gym.journal.r2.0.0.0",
        "$JS.API.DIRECT.GET.gym_JOURNAL",
        "$JS.API.DIRECT.GET.gym_JOURNAL.gym.journal.r1.0.0.0",
        "$JS.API.STREAM.PURGE.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_ROLLOUTS",
        "$JS.API.STREAM.MSG.GET.gym_TASKS",
        "$JS.API.STREAM.MSG.GET.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_BLOBS",
        "$JS.API.STREAM.INFO.gym_BLOBS",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.SNAPSHOT.gym_ROLLOUTS",
        "$JS.API.DIRECT.GET.gym_ROLLOUTS",
        "$JS.API.DIRECT.GET.gym_ROLLOUTS.gym.rollout.r1.0.0",
        "$JS.API.DIRECT.GET.gym_BLOBS",
        "$JS.API.CONSUMER.CREATE.gym_ROLLOUTS.c.gym.rollout.>",
        "$JS.API.CONSUMER.CREATE.gym_TASKS",
        "$JS.API.CONSUMER.DURABLE.CREATE.gym_ROLLOUTS.c",
        "$JS.API.CONSUMER.CREATE.gym_RUNS.c.gym.runs.>",
        "$JS.API.STREAM.DELETE.gym_BLOBS",
        "_INBOX.gym.agent.s.abc.1.1",
    ],
    "model": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.rollout.r2.0.0",
        "gym.resource.mcqa",
        "gym.join.resource.r",
        "gym.gone.resource.r",
        "gym.members.model",
        "gym.drain.agent.a",
        "$JS.API.STREAM.MSG.GET.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_ROLLOUTS",
        "$JS.API.STREAM.MSG.GET.gym_RUNS",
        "$JS.API.DIRECT.GET.gym_RUNS.gym.runs.r1",
        "gym.runs.weights.policy",
        "$JS.API.CONSUMER.CREATE.gym_JOURNAL.c.gym.journal.>",
        "$JS.API.STREAM.PURGE.gym_JOURNAL",
    ],
}


LISTEN: dict[Role, list[str]] = {
    "client": ["model.>", "resource.>", "journal.>", "members.*", "alive.*.*"],
    "agent": ["model.policy", "resource.>", "rollout.>", "task.>", "alive.model.*", "drain.model.*"],
    "resource": ["rollout.>", "task.>", "journal.>", "model.>", "runs.>", "blob.>", "cancel.>", "join.>"],
    "model": ["rollout.>", "task.>", "journal.>", "resource.>", "over.*", "blob.>", "gone.agent.*"],
}


@pytest.mark.anyio
@pytest.mark.parametrize(("role", "subject"), [(role, one) for role, all_ in PUBLISH.items() for one in all_])
async def test_a_role_is_refused_at_once_what_is_not_its_work(
    url: str, folder: Path, role: Role, subject: str
) -> None:
    async with as_role(url, folder, role) as bus:
        with pytest.raises(BrokerError, match="does not let these credentials publish to"):
            await bus._link.ask(subject, b"{}", within_s=5)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.anyio
@pytest.mark.parametrize(("role", "pattern"), [(role, one) for role, all_ in LISTEN.items() for one in all_])
async def test_a_role_does_not_hear_what_is_not_for_it(
    url: str, folder: Path, role: Role, pattern: str
) -> None:
    async with as_role(url, folder, role) as bus:
        with pytest.raises(BrokerError, match="does not let these credentials listen on"):
            async with bus.serve(pattern, lambda incoming: None):
                pass


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["resource", "model"])
async def test_an_answer_of_jetstream_is_not_stored_as_another_roles_message(
    url: str, folder: Path, role: Role
) -> None:
    """A request names where its answer goes, and JetStream asks for no permission to send it there."""
    run, spy = f"forged-{role}", f"spy-{role}"
    wanted = {"deliver_subject": "gym.spied", "ack_policy": "none", "filter_subject": "gym.rollout.>"}
    texts = {"own": b"forged", "spy": json.dumps({"stream_name": "gym_ROLLOUTS", "config": wanted}).encode()}
    async with (
        as_role(url, folder, "client") as client,
        as_role(url, folder, "agent") as agent,
        as_role(url, folder, role) as thief,
    ):
        link = thief._link  # pyright: ignore[reportPrivateUsage]
        for name, text in texts.items():
            assert b"error" not in (await link.ask(f"gym.blob.brief.{run}.{name}", text, within_s=5)).payload
        stored = [f"task.a.e.{run}.0", f"rollout.{run}.0.0", f"journal.{run}.0.0.0", f"runs.{run}"]
        get = f"$JS.API.DIRECT.GET.gym_BLOBS.gym.blob.brief.{run}"
        for subject in stored:
            link.post(f"{get}.own", b"", reply=f"gym.{subject}")
        link.post(f"{get}.spy", b"", reply=f"$JS.API.CONSUMER.CREATE.gym_ROLLOUTS.{spy}.gym.rollout.>")
        # Streams and JetStream take what comes first first, so these are behind what was forged.
        assert (await link.ask(f"{get}.own", b"", within_s=5)).payload == b"forged"
        await agent.commit(f"rollout.{run}.1.0", b"genuine")
        assert await client.counts(f"rollout.{run}.>") == {f"rollout.{run}.1.0": 1}
        for subject in stored:
            assert await client.latest(subject) == []
        about = await client._link.ask(  # pyright: ignore[reportPrivateUsage]
            "$JS.API.STREAM.INFO.gym_ROLLOUTS", b"", within_s=5
        )
        assert json.loads(about.payload)["state"]["consumer_count"] == 0


@pytest.mark.anyio
async def test_the_broker_forgets_who_asked_jetstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = identities(tmp_path / "own")
    monkeypatch.setenv(CA, str(folder / "ca.pem"))
    with serving(folder, ('threshold: "1m"', 'threshold: "50ms"')) as url, anyio.fail_after(20 * busy()):
        [ports] = folder.glob("nats-server_*.ports")
        [monitor] = json.loads(ports.read_text())["monitoring"]

        def kept() -> int:
            with urlopen(f"{monitor}/accountz?acc=GYM") as answer:
                return len(json.load(answer)["account_detail"].get("responses", ()))

        async with as_role(url, folder, "client"):
            while kept():
                await anyio.sleep(0.02)
