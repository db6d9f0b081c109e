"""Whatever a member publishes on a subject that workers listen to, they stay, and the run completes."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from gym_runtime import Environment, Reply, Task, Verdict, clock
from gym_runtime.errors import GymError
from gym_runtime.messages import calls
from gym_testing.background import background
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from gym_testing.virtual_clock import BACKEND
from msgspec import Raw

UNREADABLE_TEXTS = {
    "empty": b"",
    "no JSON": b"\x00\x01",
    "cut": b'{"worker":"a',
    "not UTF-8": b'{"worker":"\xff","id":"\xff","run":"\xff","agent":"\xff"}',
    "half a pair": b'{"worker":"\\ud800","id":"\\ud800","run":"\\ud800"}',
    "deep list": b"[" * 200_000,
    "deep field": b'{"worker":' + b"[" * 200_000,
    "deep unknown field": b'{"unknown":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "another kind": b"[1]",
    "number": b"1" * 5_000,
}
ROLLOUTS = 4


@pytest.fixture
def anyio_backend() -> object:
    return BACKEND


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


async def disturb(system: SmallSystem, text: bytes) -> int:
    """Publish a text on every subject that a connection listens to, and ask there; how many those are."""
    listening = [one.pattern for one in system.broker._wild] + list(system.broker._exact)
    async with system.broker.connect("stranger") as stranger:
        for pattern in listening:
            subject = pattern.replace("*", "x").replace(">", "x")
            await stranger.publish(subject, text)
            with anyio.move_on_after(1):
                with suppress(GymError):
                    await stranger.request(subject, text, deadline_s=clock.monotonic() + 0.5)
        await stranger.enqueue("task.tool_loop.sample.other", text)
    return len(listening)


@pytest.mark.anyio
@pytest.mark.parametrize("text", UNREADABLE_TEXTS)
async def test_no_message_ends_a_worker_or_a_run(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=verify, description="Any.")))
        engine = Engine(answer(function_call("nothing")), answer("done"))
        await system.add_model(engine)
        await system.add_agent()
        assert await disturb(system, UNREADABLE_TEXTS[text]) > 10
        specs = [rollout_spec(row(), task=task) for task in range(ROLLOUTS)]
        async with background(lambda: system.enqueue(*specs)):
            await engine.calls.until(1)
            await disturb(system, UNREADABLE_TEXTS[text])
            records = await system.records(ROLLOUTS)
        assert [record.reward for record in records] == [1.0] * ROLLOUTS
    assert "receive failed" not in "".join(capsys.readouterr())


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"null", b"[1]", b'{"op":1}', b'{"input":1}', b'{"op":"verify"}'])
async def test_a_request_whose_body_is_no_call_is_refused_in_one_line(
    body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=verify, description="Any.")))
        await system.add_model(Engine(answer("done")))
        request = calls.Request(body=Raw(body), deadline_s=clock.monotonic() + 10)
        for subject in ("resource.sample", "model.policy"):
            data = await system.bus.request(
                subject, calls.encode_request(request), deadline_s=request.deadline_s
            )
            fault = calls.decode_reply(data).fault
            assert fault is not None
            assert fault.message.startswith("the request cannot be read (")
    assert "Traceback" not in "".join(capsys.readouterr())
