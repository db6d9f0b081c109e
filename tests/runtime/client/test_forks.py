"""Forks: rollouts that begin with the first turns of a stored one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import anyio
import msgspec
import pytest
from gym_runtime import (
    Environment,
    Episode,
    Reply,
    RolloutRecord,
    Session,
    Step,
    Task,
    TaskError,
    UsageError,
    Verdict,
    tool,
)
from gym_runtime.adapters import Agent, ModelAnswer, Rollout
from gym_runtime.environment import catalogue
from gym_runtime.messages import Failed, Tokens, WeightSpan, pack_ids, pack_logprobs
from gym_runtime.training import Change, forked
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    row,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Till(Session[Task]):
    """Each sum must be asked for in a call; ``drift`` makes a later session answer differently."""

    drift = 0

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.total = 0

    @tool
    def add(self, amount: int) -> int:
        self.total += amount
        return self.total + type(self).drift

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.total), fields={"said": reply.text})


class Countdown(Episode[Task]):
    left = 3

    async def reset(self) -> str:
        return f"{self.left} to go"

    async def step(self, reply: Reply) -> Step:
        self.left -= 1
        done = not self.left
        return Step(observation=f"{self.left} to go", reward=float(done), terminated=done)


def add(amount: int, call_id: str, prompt: list[int] | None = None) -> ModelAnswer:
    said = answer(function_call("add", f'{{"amount": {amount}}}', call_id))
    return said if prompt is None else with_tokens(said, prompt)


def with_tokens(said: ModelAnswer, prompt: list[int]) -> ModelAnswer:
    """The answer, of two tokens: the numbers after the prompt's last one."""
    ids = [prompt[-1] + 1, prompt[-1] + 2]
    return msgspec.structs.replace(
        said,
        tokens=Tokens(
            prompt_ids=pack_ids(prompt),
            generation_ids=pack_ids(ids),
            log_probs=pack_logprobs([-0.5, -0.25]),
            weights=[WeightSpan(version="step-1", start=0, end=2)],
        ),
    )


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        for name in ("tool_loop", "step_loop"):
            agent: Agent = catalogue.load_class("agents", name)()
            await system.add_agent({name: agent}, name=name)
        till = type("Till", (Till,), {})
        await system.add_resource(
            environment(Environment(resource=till, description="a till"), "till"),
            environment(Environment(resource=Countdown, description="a countdown"), "countdown"),
            environment(Environment(resource=till, description="a till", replayable=False), "once"),
        )
        till_classes.append(till)
        yield system
        till_classes.pop()


till_classes: list[type[Till]] = []


async def recorded(system: SmallSystem, *turns: ModelAnswer, **keywords: Any) -> RolloutRecord:
    """A rollout of the till, whose model is then gone."""
    await system.add_model(Engine(*turns), name="first")
    asked = {"environment": "till", **keywords}
    (record,) = [one async for one in system.client.rollouts([row()], **asked)]
    assert not isinstance(record.outcome, Failed), record.outcome
    system.stop("first")
    await anyio.sleep(1)
    return record


def own(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


async def forks(system: SmallSystem, *arguments: Any, **keywords: Any) -> list[RolloutRecord]:
    made = [one async for one in system.client.fork(*arguments, **keywords)]
    return sorted(made, key=lambda record: record.rollout_index)


async def test_forks_go_on_from_a_turn_in_the_environments_state_and_ask_nothing_again(
    system: SmallSystem,
) -> None:
    stored = await recorded(system, add(1, "a"), add(2, "b"), answer("three"))
    engine = Engine(add(40, "c"), answer("forty-one"))
    await system.add_model(engine, name="second")

    made = await forks(system, stored, 1, 3)

    assert [record.reward for record in made] == [41.0] * 3
    assert len(engine.calls.items) == 6
    call, _ = engine.calls.items[0]
    said = [msgspec.json.decode(item) for item in call.input]
    kinds = [item.get("type", "message") for item in said]
    assert kinds == ["message", "function_call", "function_call_output"]
    for record in made:
        shown = msgspec.json.decode(record.row)
        assert (record.turns, record.tool_calls, shown["_gym"]["resumed_turns"]) == (3, 2, 0)
        assert shown["said"] == "forty-one"
        assert shown["response"]["usage"]["total_tokens"] == 22  # of its own calls
        assert shown["_gym"]["fork"] == {
            "rollout_id": stored.rollout_id,
            "task_index": 0,
            "rollout_index": 0,
            "turn": 1,
            "items": 1,
            "changed": [],
            "differed": [],
        }
    # A fork of a fork.
    (again,) = await forks(system, bytes(made[0].row), 2)
    assert (again.reward, own(again)["fork"]["rollout_id"]) == (81.0, made[0].rollout_id)


async def test_the_tokens_of_shared_turns_come_along_and_can_be_masked(system: SmallSystem) -> None:
    turns = (
        add(1, "a", [1]),
        add(2, "b", [1, 2, 3, 9]),
        with_tokens(answer("three"), [1, 2, 3, 9, 10, 11, 20]),
    )
    stored = await recorded(system, *turns, return_token_ids=True)
    engine = Engine(with_tokens(answer("done"), [1, 2, 3, 9, 10, 11, 20]))
    await system.add_model(engine, name="second")

    (record,) = await forks(system, stored, 2, return_token_ids=True, max_staleness=0)

    call, _ = engine.calls.items[0]
    assert call.prefix is not None
    assert call.prefix.ids == pack_ids([1, 2, 3, 9, 10, 11])
    (whole,), (alone,) = record.sequences(), record.sequences(shared=False)
    assert whole.completion_ids.tolist() == alone.completion_ids.tolist() == [2, 3, 9, 10, 11, 20, 21, 22]
    assert [at for at, own in enumerate(whole.mask) if own] == [0, 1, 3, 4, 6, 7]
    assert [at for at, own in enumerate(alone.mask) if own] == [6, 7]
    assert alone.log_probs.tolist() == whole.log_probs.tolist()
    assert whole.versions == ["step-1"]
    # From the file's row, too.
    packed = msgspec.structs.replace(record, tokens=[])
    assert packed.sequences(shared=False)[0].mask.tolist() == alone.mask.tolist()


async def test_a_counterfactual_tells_the_model_something_else_and_is_not_trained(
    system: SmallSystem,
) -> None:
    stored = await recorded(
        system, add(1, "a", [1]), with_tokens(answer("one"), [1, 2, 3, 9]), return_token_ids=True, seed=7
    )
    engine = Engine(with_tokens(answer("done"), [1, 2, 3, 9]))
    await system.add_model(engine, name="second")
    change = Change(tool_output="-1", sampling={"temperature": 0.5})

    (record,) = await forks(system, stored, 1, change=change, return_token_ids=True)

    assert record.reward == 1.0  # the environment's state is the real one
    call, _ = engine.calls.items[0]
    params = msgspec.json.decode(call.params)
    assert msgspec.json.decode(call.input[-1])["output"] == "-1"
    assert (params["temperature"], "seed" in str(params["metadata"])) == (0.5, False)
    assert own(record)["fork"]["changed"] == ["tool_output", "temperature"]
    assert record.sequences()[0].mask.tolist() == [False, False, False, True, True]

    (record,) = await forks(system, stored, 1, change=Change(system_prompt="Be brief."))
    call, _ = engine.calls.items[1]
    assert (msgspec.json.decode(call.params)["instructions"], call.prefix) == ("Be brief.", None)
    # The model would have seen other tokens: only its new answer has some.
    assert bytes(record.row).count(b'"generation_token_ids"') == 1


async def test_an_environment_that_answers_differently_fails_the_fork_or_goes_on_as_asked(
    system: SmallSystem,
) -> None:
    stored = await recorded(system, add(1, "a"), add(2, "b"), answer("three"))
    await system.add_model(Engine(answer("done")), name="second")
    till_classes[-1].drift = 5

    (failed,) = await forks(system, stored, 2)
    assert isinstance(failed.outcome, Failed)
    assert (failed.reward, failed.attempt, failed.outcome.fault.name) == (None, 1, "ReplayDiffers")
    assert "; --go-on (on_difference=" in failed.outcome.fault.message
    assert "after turn 1 the tool 'add' answers '6', and the recorded rollout has '1'" in failed.ending

    (gone_on,) = await forks(system, stored, 2, on_difference="go_on")
    assert (gone_on.reward, own(gone_on)["fork"]["differed"]) == (3.0, [1, 2])
    assert '"output":"6"' in bytes(gone_on.row).decode()


async def test_an_episode_is_forked_with_its_first_observation_once(system: SmallSystem) -> None:
    stored = await recorded(system, answer("go"), environment="countdown")
    assert stored.turns == 3
    await system.add_model(Engine(answer("on")), name="second")

    (record,) = await forks(system, stored, 2)

    shown = msgspec.json.decode(record.row)
    assert (record.reward, record.turns) == (1.0, 3)
    assert [item["content"] for item in shown["responses_create_params"]["input"]] == ["hi", "3 to go"]
    said = [item["content"] for item in shown["response"]["output"]]
    assert [one if isinstance(one, str) else one[0]["text"] for one in said] == [
        *("go", "2 to go", "go", "1 to go", "on", "0 to go")
    ]


async def test_another_worker_goes_on_with_a_fork_whose_worker_died(system: SmallSystem) -> None:
    stored = await recorded(system, add(1, "a"), add(2, "b"), answer("three"))
    begun: Mailbox[int] = Mailbox()

    class Stops:
        """Hangs after the fork's own first turn."""

        async def run(self, rollout: Rollout) -> None:
            loop: Agent = catalogue.load_class("agents", "tool_loop")()
            if rollout.attempt > 1 or len(begun.items):
                return await loop.run(rollout)
            for _ in range(3):
                turn = await rollout.respond()
                await rollout.call_tools(turn.function_calls)
            begun.put(rollout.turns)
            return await anyio.sleep_forever()

    system.kill("tool_loop")
    await system.add_agent({"tool_loop": Stops()}, name="dies")
    engine = Engine(add(10, "c"), by_attempt={2: [answer("done")]})
    await system.add_model(engine, name="second")
    async with anyio.create_task_group() as tasks:

        async def after_the_turn() -> None:
            await begun.until(1)
            system.kill("dies")
            await system.add_agent({"tool_loop": Stops()}, name="lives")

        tasks.start_soon(after_the_turn)
        (record,) = await forks(system, stored, 2)
    assert (record.reward, record.turns, own(record)["resumed_turns"]) == (13.0, 4, 1)
    # The recorded answers and the journaled one were not asked for.
    assert len(engine.calls.items) == 2


async def test_what_cannot_be_forked_is_refused_in_one_line(system: SmallSystem) -> None:
    stored = await recorded(system, add(1, "a"), answer("one"))
    line = bytes(stored.row)
    for bad, turn, change, said in [
        (line, 3, Change(), "turn is 3, and the rollout has 2 turns: give 0 to 2"),
        (line, 1.5, Change(), "turn is 1.5; it must be a whole number of at least 0"),
        (line, -1, Change(), "turn is -1; it must be a whole number of at least 0"),
        (line, 2, Change(tool_output="x"), "called 0 tools"),
        (line, 1, Change(tool_output={"z": "x"}), "no answered call 'z'; it has: a"),
        (row(), 1, Change(), "has no transcript"),
        (line.replace(b'"turns":2', b'"turns":3'), 1, Change(), "took 3 turns, and its transcript shows 2"),
        (line, 1, Change(sampling={"temprature": 1}), "did you mean 'temperature'"),
    ]:
        with pytest.raises(UsageError, match=said):
            forked(bad, cast("int", turn), change)
    with pytest.raises(TaskError, match="not a result row"):
        forked(b"[]", 1)
    with pytest.raises(TaskError, match="'once' says replayable=False"):
        await forks(system, line.replace(b'"name":"till"', b'"name":"once"'), 1)
    with pytest.raises(TaskError, match="is no fork"):
        await system.client.check([row(_gym_fork={"turns": 1})], environment="till")
    for tokens in (
        {"prompt_ids": "AA==", "generation_ids": "AAAAAA==", "log_probs": "AAAAAA=="},
        {"prompt_ids": "AAAAAA==", "generation_ids": "AAAAAA==", "log_probs": "AAAAAAAAAAA="},
        {"same": 2**40, "generation_ids": "AAAAAA=="},
        {"same": 7, "generation_ids": "AAAAAA=="},
        {"same": -1, "generation_ids": "AAAAAA=="},
    ):
        bad = {"turns": [{"response": {"output": []}, "tokens": tokens}]}
        with pytest.raises(TaskError, match=r"turn 1: .*token"):
            await system.client.check([row(_gym_fork=bad)], environment="till")
    with pytest.raises(UsageError, match=r"times for repeats: fork\(row, turn, times\)"):
        system.client.fork(stored.row, 1, 2, repeats=3)
    with pytest.raises(UsageError, match="times is 0"):
        system.client.fork(stored.row, 1, 0)
    # An agent that takes fewer turns than are shared has no reward on a state that it did not reach.
    await system.add_model(Engine(answer("never asked")), name="second")
    (record,) = await forks(system, stored, 2, max_turns=1)
    assert isinstance(record.outcome, Failed)
    assert "took 1 of the 2 turns of the fork" in record.ending
