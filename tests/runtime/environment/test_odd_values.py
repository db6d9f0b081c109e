"""What an author's code raises and returns besides plain JSON: numpy's values, `sys.exit`, broken texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gym_runtime import Episode, Image, Reply, Session, Step, Task, Text, ToolError, Verdict, connect, tool
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Role, ScriptedAnswers
from gym_runtime.environment.tools import SERVER_ERROR
from gym_runtime.errors import MOST_MESSAGE_CHARACTERS, ResourceError, described
from gym_runtime.messages.outcomes import Completed
from runtime.environment.image_samples import png
from runtime.environment.resources import ROW, SILENCE
from tables import table

HALF = json.loads('"\\ud800"')
"""Half a surrogate pair, as Python's `json` reads it out of what a model wrote."""


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def judged(value: Any) -> Verdict:
    def verify(task: Task, reply: Reply) -> Verdict:
        if isinstance(value, BaseException):
            raise value
        return value

    resource = Resource(verify)
    found = await resource.verify(await resource.open(ROW), SILENCE)
    assert isinstance(found, Verdict)
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("reward", [np.float32(0.5), np.float64(0.5), np.mean([0.0, 1.0])])
async def test_a_reward_of_numpy_is_a_reward(reward: Any) -> None:
    verdict = await judged(Verdict(reward, components={"style": reward}, rewards={"white": reward}))
    assert verdict == Verdict(0.5, components={"style": 0.5}, rewards={"white": 0.5})
    assert {type(one) for one in (verdict.reward, *verdict.components.values())} == {float}


@pytest.mark.anyio
async def test_fields_of_numpy_and_with_broken_texts_are_json() -> None:
    fields = {"mean": np.float64(0.5), "right": np.bool_(True), "ids": np.arange(3), "extracted": f"a{HALF}"}
    assert (await judged(Verdict(1.0, fields=fields))).fields == {
        "mean": 0.5,
        "right": True,
        "ids": [0, 1, 2],
        "extracted": "a\ufffd",
    }


@pytest.mark.anyio
@table(
    ("value", "message"),
    [
        (Verdict(1.0, fields={"a": 1, "b": object()}), "the verdict's field 'b' is not JSON: .* type object"),
        (Verdict(1.0, components={(1, 2): 0.5}), r"the verdict's field \(1, 2\) is not JSON"),  # type: ignore[arg-type]
        (Verdict(1.0, rewards={None: 0.5}), "the verdict's field None is not JSON"),  # type: ignore[arg-type]
        (Verdict(1.0, fields=None), "the verifier returned fields = None; it must be a dict"),  # type: ignore[arg-type]
        (Verdict(1.0, components=None), "the verifier returned components = None"),  # type: ignore[arg-type]
        (Verdict(np.bool_(True)), "it must be a finite number"),  # type: ignore[arg-type]
        (Verdict(np.ones(1)), "it must be a finite number"),  # type: ignore[arg-type]
        (SystemExit(2), "SystemExit: 2 .*test_odd_values.py:"),
        (UnspeakableError(), "UnspeakableError, whose text cannot be made .*test_odd_values.py:"),
    ],
)
async def test_what_is_no_verdict_says_what_is_wrong(value: Any, message: str) -> None:
    with pytest.raises(ResourceError, match=message) as caught:
        await judged(value)
    assert caught.value.stage == "verify"


def test_a_fault_can_always_be_sent() -> None:
    fault = ResourceError(f"{HALF}{'x' * 100_000} (verifier.py:7)").fault()
    assert fault.message.startswith("?xxx")
    assert fault.message.endswith("x (verifier.py:7)")
    assert len(fault.message.encode()) < MOST_MESSAGE_CHARACTERS + 10
    assert described(UnspeakableError()) == "UnspeakableError, whose text cannot be made"


class Desk(Session[Task]):
    @tool
    def scold(self) -> str:
        """Refuse."""
        raise ToolError(f"no file {HALF}")

    @tool
    def read(self) -> Text:
        """Read."""
        return Text(HALF)

    @tool
    def count(self) -> dict[str, Any]:
        """Count."""
        return {"count": np.int64(3), "name": HALF}

    @tool
    def leave(self) -> None:
        """Leave."""
        sys.exit(2)

    @tool
    def show(self) -> tuple[object, ...]:
        """Show."""
        return "a pixel", Image(png(1, 1))

    def call_unknown_tool(self, name: str, arguments: str) -> str | None:  # type: ignore[override]
        return HALF


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("scold", "no file \ufffd"),
        ("read", "\ufffd"),
        ("count", '{"count":3,"name":"\ufffd"}'),
        ("leave", SERVER_ERROR),
        ("unheard", "\ufffd"),
    ],
)
async def test_what_a_model_reads_of_a_tool_is_text(name: str, answer: str) -> None:
    resource = Resource(Desk)
    assert await resource.call_tool(await resource.open(ROW), name, "{}") == answer


@pytest.mark.anyio
async def test_a_tuple_with_an_image_is_parts_as_a_list_is() -> None:
    resource = Resource(Desk)
    answer = await resource.call_tool(await resource.open(ROW), "show", "{}")
    assert [part["type"] for part in answer if isinstance(part, dict)] == ["input_text", "input_image"]


@pytest.mark.anyio
async def test_a_role_may_be_asked_about_a_broken_text() -> None:
    models = ScriptedAnswers({"judge": ["yes", "no"]}).models([Role(name="judge")])
    for prompt in (HALF, [{"role": "user", "content": HALF}]):
        answer = await models.judge.ask(prompt, system=HALF)
        assert answer.text in ("yes", "no")


async def stepped(step: Any) -> Any:
    class Odd(Episode[Task]):
        def step(self, reply: Reply) -> Step:  # type: ignore[override]
            return step

    resource = Resource(Odd)
    session = await resource.open(ROW)
    assert isinstance(session, Odd)
    await resource.reset(session)
    return await resource.step(session, SILENCE), await resource.verify(session, SILENCE)


@pytest.mark.anyio
async def test_a_step_of_numpy_is_a_step() -> None:
    truth: Any = np.bool_(True)
    answer, verdict = await stepped(
        Step(
            observation=HALF,
            reward=np.float32(0.5),  # type: ignore[arg-type]
            terminated=truth,
            tool_outputs={"call": HALF},
            info={"moves": np.int64(3)},
        )
    )
    assert (answer.terminated, answer.truncated, answer.reward) == (True, False, 0.5)
    assert [json.loads(bytes(item))["content" if n else "output"] for n, item in enumerate(answer.items)] == [
        "\ufffd",
        "\ufffd",
    ]
    assert verdict == Verdict(0.5, fields={"moves": 3})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"terminated": None}, r"got `null` - at `\$.terminated`"),
        ({"truncated": "yes"}, r"got `str` - at `\$.truncated`"),
        ({"info": {"board": object()}}, "type object is unsupported"),
        ({"tool_outputs": None}, "tool_outputs = None; it must be a dict"),
        ({"tool_outputs": {"call": 5}}, "tool_outputs = .*; it must be a dict"),
    ],
)
async def test_a_step_of_other_types_is_the_environments_fault(changed: Any, message: str) -> None:
    with pytest.raises(ResourceError, match=message) as caught:
        await stepped(Step(**changed))
    assert caught.value.stage == "step"


ENVIRONMENT = f'''
"""One row of three breaks its verifier."""

import json, sys
from gym_runtime import Environment, Reply, Task, Verdict


class OddTask(Task):
    way: str


class PanicException(BaseException):
    """As libraries in Rust raise it."""


async def verify(task: OddTask, reply: Reply) -> Verdict:
    if task.way == "exit":
        sys.exit(2)
    if task.way == "panic":
        raise PanicException("index out of bounds")
    if task.way == "interrupt":
        raise KeyboardInterrupt
    if task.way == "raise":
        raise ValueError("an answer with " + json.loads('"\\\\ud800"') + "x" * {20 << 20})
    return Verdict(1.0)


environment = Environment(resource=verify, agent="leaver", description="Odd.")
'''
AGENT = '''
"""One row ends its agent."""

import sys
from gym_runtime.adapters import Rollout


class Agent:
    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        if b"leave" in bytes(rollout.task.row):
            sys.exit(3)
        if b"crash" in bytes(rollout.task.row):
            raise type("PanicException", (BaseException,), {})("unwrap of None")
'''


@pytest.mark.slow
@pytest.mark.anyio
async def test_no_row_ends_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(ENVIRONMENT)
    (tmp_path / "leaver.py").write_text(AGENT)
    rows = [
        {"way": way, "responses_create_params": {"input": "hi"}}
        for way in ("exit", "raise", "leave", "well", "fine", "panic", "crash", "interrupt")
    ]
    said: dict[int, Any] = {}
    async with connect(model="scripted/message", environments="odd.py") as gym:
        async for record in gym.rollouts(rows, environment="odd"):
            said[record.task_index] = record.outcome
            assert record.attempt == 1
    assert {index for index, outcome in said.items() if isinstance(outcome, Completed)} == {3, 4}
    assert "SystemExit: 2" in said[0].fault.message
    assert "odd.py:" in said[0].fault.message
    assert said[1].fault.message.startswith("ValueError: an answer with ?xx")
    assert said[1].fault.message.endswith("odd.py:24)")
    assert said[2].fault.message.startswith("SystemExit: 3 (")
    assert "leaver.py:12" in said[2].fault.message
    assert said[5].fault.message.startswith("PanicException: index out of bounds (")
    assert "odd.py:" in said[5].fault.message
    assert said[6].fault.message.startswith("PanicException: unwrap of None (")
    assert "leaver.py:14" in said[6].fault.message
    assert said[7].fault.message.startswith("KeyboardInterrupt")
    assert "odd.py:22" in said[7].fault.message
