"""Verdicts on groups, on whole small systems: each rollout gets one reward, whatever happens to its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Verdict
from gym_runtime.client import Client, RunInfo
from gym_runtime.environment import catalogue
from gym_runtime.errors import GymError, ModelRefused, ModelUnavailable, UsageError
from gym_runtime.files.metrics import Metrics
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.files.resume import Progress
from gym_runtime.files.rows import expand, whole_groups
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.outcomes import Cancelled, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.testing.background import hosting, settled
from gym_runtime.testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    rollout_spec,
    row,
    small_system,
)
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.workers.adapter import CallContext

pytestmark = pytest.mark.anyio

CONTEST = Path(__file__).with_name("contest.py")
ROW: dict[str, Any] = {"responses_create_params": {"input": "go"}}
YES = answer("yes")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class Speaker:
    """A policy: what each rollout says, by its index; an error is raised."""

    def __init__(self, **said: Any) -> None:
        self.said: dict[str, str | GymError] = {name.removeprefix("r"): text for name, text in said.items()}
        self.asked: Counter[str] = Counter()

    async def __aenter__(self) -> Speaker:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        self.asked[context.rollout] += 1
        index = context.rollout.rpartition(".")[2]
        said = self.said.get(index, index)
        if isinstance(said, GymError):
            raise said
        return answer(said)


class Here:
    """A system whose environment ranks the rollouts of a group."""

    def __init__(self, system: SmallSystem) -> None:
        self.system = system
        self.loaded = catalogue.environment(str(CONTEST))
        self.contest: Any = vars(catalogue.load("environments", "contest"))["contest"]
        self.contest.reset()
        self.judge = Engine(YES)
        self.policy = Speaker()

    @property
    def gym(self) -> Client:
        return self.system.client

    async def start(self, **said: Any) -> None:
        self.policy = Speaker(**said)
        await self.system.add_resource(self.loaded)
        await self.system.add_model(self.policy)
        await self.system.add_model(self.judge, name="judge-1", pool="judge")
        await self.system.add_agent(slots=64)

    def rows(self, count: int = 1) -> list[dict[str, Any]]:
        return [{**ROW, "n": number} for number in range(count)]

    async def rollouts(self, count: int = 1, **more: Any) -> list[RolloutRecord]:
        made = self.gym.rollouts(self.rows(count), environment="contest", **{"repeats": 4, **more})
        with anyio.fail_after(3600):
            return [record async for record in made]

    def specs(self, run: str, count: int, repeats: int = 4, **more: Any) -> list[RolloutSpec]:
        lines = [msgspec.json.encode(row) for row in self.rows(count)]
        return whole_groups(list(expand(lines, run=run, environment="contest", repeats=repeats, **more)))

    async def published(self, count: int, repeats: int = 4) -> None:
        info = RunInfo(run="run", total=count * repeats, environments=["contest"], agents=["tool_loop"])
        await self.gym.open_run(info)
        await self.gym.publish(self.specs("run", count, repeats))

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[Client]:
        async with self.system.broker.connect() as bus, hosting() as tasks:
            yield Client(bus, tasks)


@pytest.fixture
async def here() -> AsyncGenerator[Here]:
    async with small_system() as system:
        yield Here(system)


def rewards(records: list[RolloutRecord]) -> dict[tuple[int, int], float | None]:
    return {(record.task_index, record.rollout_index): record.reward for record in records}


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


def fault(record: RolloutRecord) -> Any:
    assert isinstance(record.outcome, Failed), record.outcome
    return record.outcome.fault


async def test_the_rollouts_of_a_group_get_their_rewards_from_one_comparison(here: Here) -> None:
    await here.start()
    records = await here.rollouts(2)
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert [record.rollout_index for record in records] == [0, 1, 2, 3] * 2
    assert here.contest.groups == [[0, 1, 2, 3]] * 2
    row = msgspec.json.decode(records[2].row)
    assert list(row)[:3] == ["responses_create_params", "response", "reward"]
    assert (row["reward"], row["of"], row["said"], row["reward_components"]) == (
        2.0,
        4,
        "yes",
        {"place": 1.0},
    )
    assert (row["n"], row["_gym"]["compared"], row["_gym"]["outcome"]) == (
        0,
        [0, 1, 2, 3],
        {"type": "completed"},
    )
    assert records[2].numbers["of"] == 4
    assert records[2].numbers["place"] == 1
    assert records[2].waiting is None
    (run,) = await here.gym.runs()
    assert (run.state, run.total, run.done) == ("finished", 8, 8)
    for kind in ("task", "rollout", "journal"):
        assert await here.gym.bus.counts(f"{kind}.>") == {}


async def test_what_the_judges_of_a_comparison_cost_is_counted_once(here: Here) -> None:
    await here.start()
    records = await here.rollouts()
    assert [record.roles["judge"].calls for record in records if record.roles] == [4]
    assert [len(about(record).get("role_answers", ())) for record in records] == [4, 0, 0, 0]
    assert records[0].numbers["judge_calls"] == 4
    asked = [msgspec.json.decode(call.input[0])["content"] for call, _ in here.judge.calls.items]
    assert asked == [f"task 0: {index}" for index in range(4)]


async def test_a_rollout_that_failed_is_missing_from_its_comparison(here: Here) -> None:
    await here.start(r1=ModelRefused("no"), r2="")
    records = await here.rollouts()
    assert here.contest.groups == [[0, 3]]
    assert rewards(records) == {(0, 0): 0, (0, 1): None, (0, 2): -1, (0, 3): 1}
    assert "compared" not in about(next(record for record in records if record.rollout_index == 2))


@pytest.mark.parametrize("left", [0, 1])
async def test_fewer_than_two_are_not_compared(here: Here, left: int) -> None:
    failing = {f"r{index}": ModelRefused("no") for index in range(4 - left)}
    await here.start(**failing)
    records = await here.rollouts()
    assert here.contest.groups == []
    assert len(records) == 4
    assert all(record.reward is None for record in records)
    alone = [fault(record) for record in records if fault(record).kind != "model"]
    assert [(one.kind, one.stage) for one in alone] == [("resource", "compare")] * left


async def test_a_comparison_may_have_no_verdict_for_one_of_its_rollouts(here: Here) -> None:
    await here.start(r0="odd")
    records = await here.rollouts()
    assert rewards(records) == {(0, 0): None, (0, 1): 0, (0, 2): 1, (0, 3): 2}
    assert (fault(records[0]).message, fault(records[0]).stage) == ("it cannot be ranked", "compare")
    assert [len(about(record).get("role_answers", ())) for record in records] == [0, 4, 0, 0]
    assert about(records[0])["outcome"]["type"] == "failed"
    assert "reward" not in msgspec.json.decode(records[0].row)


async def test_a_comparison_that_raises_fails_its_rollouts_and_no_others(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ValueError("broken")]
    records = await here.rollouts(2)
    failed = [record for record in records if record.reward is None]
    assert len(records) == 8
    assert len(failed) == 4
    assert len({record.task_index for record in failed}) == 1
    assert {fault(record).stage for record in failed} == {"compare"}
    assert "ValueError: broken" in fault(failed[0]).message


async def test_a_judge_that_fails_for_a_moment_is_asked_again(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ModelUnavailable("503", stage="judge")]
    records = await here.rollouts()
    assert [record.reward for record in records] == [0, 1, 2, 3]
    assert here.contest.groups == [[0, 1, 2, 3]] * 2
    assert {record.attempt for record in records} == {1}


async def test_a_comparison_may_take_the_retries_of_all_its_rollouts(here: Here) -> None:
    """Each question fails six times before it is answered: more retries in all than one rollout has."""
    overloaded = ModelUnavailable("503", retry_after_s=0.01)
    here.judge = Engine(*[turn for _ in range(8) for turn in (*[overloaded] * 6, YES)])
    await here.start()
    records = await here.rollouts(repeats=8)
    assert [record.reward for record in records] == list(range(8))
    assert len(here.judge.calls.items) == 8 * 7


async def test_a_judge_that_fails_for_good_is_no_reward(here: Here) -> None:
    here.judge = Engine(ModelRefused("bad key"))
    await here.start()
    records = await here.rollouts()
    assert {(fault(record).kind, fault(record).stage) for record in records} == {("model", "judge")}


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([Verdict(1.0)], "1 verdicts for 2 candidates"),
        ("ab", "it must return a list"),
        ([1.0, 2.0], "it must be a Verdict"),
        ([Verdict(1.0), Verdict(float("nan"))], "must be a finite number"),
        ([Verdict(1.0), Verdict(1.0, fields={"x": object()})], "not JSON"),
    ],
)
async def test_what_a_comparison_may_not_return_is_a_failure(here: Here, returned: Any, said: str) -> None:
    await here.start()
    here.contest.returned = returned
    records = await here.rollouts(repeats=2)
    assert all(said in fault(record).message and fault(record).stage == "compare" for record in records)


async def test_one_rollout_per_row_is_refused(here: Here) -> None:
    with pytest.raises(UsageError, match="repeats must be at least 2"):
        await here.rollouts(repeats=1)


async def test_a_row_that_occurs_again_joins_its_group(here: Here) -> None:
    await here.start()
    made = here.gym.rollouts([*here.rows(), *here.rows()], environment="contest")
    assert [record.reward async for record in made] == [0, 1]


async def test_a_window_smaller_than_a_group_is_wide_enough(here: Here) -> None:
    await here.start()
    records = await here.rollouts(3, repeats=8, in_flight=2)
    assert len(rewards(records)) == 24
    assert all(record.reward is not None for record in records)


async def test_no_more_rollouts_are_begun_while_comparisons_take_long(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    async with aclosing(
        here.gym.rollouts(here.rows(50), environment="contest", repeats=4, in_flight=8)
    ) as made:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 100)
            with anyio.move_on_after(100):
                await anext(made)
        # two groups are complete, and take all places; one more may have been begun before
        assert sum(here.policy.asked.values()) <= 16
        assert len(here.contest.groups) >= 2


# -- groups --------------------------------------------------------------------------------------------


async def groups(here: Here, **more: Any) -> list[Any]:
    made = here.gym.groups(here.rows(2), environment="contest", repeats=3, **more)
    with anyio.fail_after(3600):
        return [group async for group in made]


async def test_a_rollout_is_replaced_before_its_group_is_compared(here: Here) -> None:
    await here.start(r1=ModelRefused("no"))
    found = await groups(here)
    assert [group.rewards for group in found] == [[0, 1, 2]] * 2
    assert [[one.rollout_index for one in group.rollouts] for group in found] == [[0, 2, 3]] * 2
    assert here.contest.groups == [[0, 2, 3]] * 2


@pytest.mark.parametrize(("policy", "rewarded"), [("shrink", [0, 1]), ("mask", [0, None, 1])])
async def test_a_smaller_group_is_compared(here: Here, policy: Any, rewarded: list[float]) -> None:
    await here.start(r1=ModelRefused("no"))
    assert [group.rewards for group in await groups(here, on_failure=policy)] == [rewarded] * 2


async def test_a_group_that_fails_as_a_whole_is_returned_too(here: Here) -> None:
    await here.start(r1=ModelRefused("no"))
    found = await groups(here, on_failure="fail_group")
    assert all(group.failed and not group.rollouts for group in found)


async def test_what_cannot_be_compared_is_not_replaced(here: Here) -> None:
    await here.start(r0="odd")
    found = await groups(here)
    assert all("it cannot be ranked" in group.failed and len(group.failures) == 1 for group in found)
    assert len(here.contest.groups) == 2


async def test_a_comparison_whose_judge_failed_is_made_of_new_rollouts(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ModelRefused("no", stage="judge")]
    found = await groups(here)
    assert sorted(group.rewards for group in found) == [[0, 1, 2]] * 2
    assert sorted(map(tuple, here.contest.groups)) == [(0, 1, 2), (0, 1, 2), (3, 4, 5)]


# -- several clients, and clients that die ---------------------------------------------------------------


async def test_several_collectors_get_everything_and_each_group_is_compared_once(here: Here) -> None:
    await here.start()
    await here.published(5)
    found: list[list[RolloutRecord]] = [[], [], []]

    async def collect(client: Client, into: list[RolloutRecord]) -> None:
        async for record in client.collect("run"):
            into.append(record)

    async with here.another() as one, here.another() as two, here.another() as three:
        with anyio.fail_after(3600):
            async with anyio.create_task_group() as tasks:
                for client, into in zip((one, two, three), found, strict=True):
                    tasks.start_soon(collect, client, into)
    for records in found:
        assert rewards(records) == {(task, index): index for task in range(5) for index in range(4)}
        assert len(records) == 20
    assert len(here.contest.groups) == 5


async def test_who_collects_later_has_no_comparison_made_again(here: Here) -> None:
    await here.start()
    await here.published(2)
    async with here.another() as first, here.another() as second, first.followed("run"):
        taken: list[RolloutRecord] = []
        assert await second.follow("run", 8, taken.append)
        late: list[RolloutRecord] = []
        had = {(0, 0), (0, 1), (1, 3)}
        skip = lambda task, rollout: (task, rollout) in had  # noqa: E731
        assert await first.follow("run", 5, late.append, skip=skip)
        assert rewards(late) == {key: value for key, value in rewards(taken).items() if key not in had}
    await settled(lambda: True)
    assert len(here.contest.groups) == 2
    assert await here.gym.bus.counts("task.>") == {}


async def test_a_collector_that_dies_leaves_the_comparison_to_the_next(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    await here.published(1)
    async with here.another() as first, aclosing(first.collect("run")) as records:
        with anyio.move_on_after(20):
            await anext(records)
    assert len(here.contest.groups) == 1
    here.contest.release.set()
    with anyio.fail_after(3600):
        assert [record.reward async for record in here.gym.collect("run")] == [0, 1, 2, 3]
    assert len(here.contest.groups) == 1


async def test_a_cancelled_run_hands_over_what_waited(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    await here.published(1)
    async with here.another() as client, anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await settled(lambda: here.contest.groups, within_s=60)
            await here.gym.cancel("run")

        tasks.start_soon(cancel)
        with anyio.fail_after(3600):
            records = [record async for record in client.collect("run")]
    assert [record.outcome for record in records] == [Cancelled()] * 4
    assert all(about(record)["outcome"] == {"type": "cancelled"} for record in records)


async def test_a_cancelled_group_is_not_compared(here: Here) -> None:
    await here.start()
    await here.gym.open_run(RunInfo(run="run", total=4))
    await here.gym.cancel("run", 0)
    await anyio.sleep(1)
    await here.gym.publish(here.specs("run", 1))
    records = [record async for record in here.gym.collect("run")]
    assert [record.outcome for record in records] == [Cancelled()] * 4
    assert here.contest.groups == []


async def test_the_next_client_of_a_run_goes_on_with_its_comparisons(here: Here) -> None:
    """The first client dies while a comparison is being made, with one row of its group on the disk."""
    await here.start()
    here.contest.release = anyio.Event()
    info = RunInfo(run="run", total=8, environments=["contest"], agents=["tool_loop"])
    async with here.another() as first:
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:

            async def make() -> None:
                with scope:
                    async for _ in first.make(here.specs("run", 2, attached=True), info):
                        pass

            tasks.start_soon(make)
            await settled(lambda: len(here.contest.groups) == 2, within_s=600)
            first.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
            scope.cancel()
    await anyio.sleep(20)  # the workers notice, and give the comparisons back
    here.contest.release.set()
    asked = sum(here.policy.asked.values())
    remains = await here.gym.take_up("run", Progress())
    assert remains is not None
    assert len(remains.results) == 8
    made = here.gym.make([], msgspec.structs.replace(info, total=0), remains=remains)
    with anyio.fail_after(3600):
        records = [record async for record in made]
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert sum(here.policy.asked.values()) == asked
    assert len(here.judge.calls.items) == 8, "the journal has what the judge has answered"


async def test_a_comparison_that_failed_is_made_again_and_its_rollouts_are_not(
    here: Here, tmp_path: Path
) -> None:
    """Of two groups one fails, and the client dies while the other one is compared."""
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    await here.start()
    here.contest.release = anyio.Event()
    here.contest.trouble = [ModelRefused("bad key", stage="judge")]
    info = RunInfo(run="run", total=8, environments=["contest"], agents=["tool_loop"])
    async with here.another() as first:
        scope = anyio.CancelScope()
        failed: list[RolloutRecord] = []

        async def make() -> None:
            with scope:
                async for record in first.make(here.specs("run", 2, attached=True), info):
                    failed.append(record)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make)
            await settled(lambda: len(here.contest.groups) == 2 and len(failed) == 4, within_s=600)
            first.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
            scope.cancel()
    with ResultWriter(files) as writer:
        for record in failed:
            writer.write(record)
    await anyio.sleep(20)
    here.contest.release.set()
    progress = Progress()
    progress.read(files, Metrics())
    asked = sum(here.policy.asked.values())
    remains = await here.gym.take_up("run", progress)
    assert remains is not None
    with anyio.fail_after(3600):
        records = [record async for record in here.gym.make([], info, remains=remains)]
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert sum(here.policy.asked.values()) == asked


async def test_a_group_does_not_wait_for_what_an_earlier_part_of_the_run_has_made(here: Here) -> None:
    await here.start()
    had = {(0, 1), (0, 3)}
    left = [spec for spec in here.specs("run", 1, 5) if (spec.task_index, spec.rollout_index) not in had]
    info = RunInfo(run="run", total=3, environments=["contest"], agents=["tool_loop"])
    made = here.gym.make(left, info, settled=lambda task, rollout: (task, rollout) in had)
    with anyio.fail_after(3600):
        assert [record.reward async for record in made] == [0, 1, 2]
    assert here.contest.groups == [[0, 2, 4]]


async def test_a_rollout_is_not_made_again_once_its_group_was_compared_without_it(
    here: Here, tmp_path: Path
) -> None:
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    await here.start(r1=ModelUnavailable("down"))
    with ResultWriter(files) as writer:
        for record in await here.rollouts():
            writer.write(record)
    progress = Progress()
    progress.read(files, Metrics())
    assert [progress.settled(0, index) for index in range(5)] == [True, True, True, True, False]


# -- workers that die ------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["resource-1", "agent-1", "both"])
async def test_a_worker_that_dies_in_a_comparison_pays_no_judge_twice(here: Here, victim: str) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    async with anyio.create_task_group() as tasks:
        found: list[RolloutRecord] = []

        async def make() -> None:
            found.extend(await here.rollouts())

        tasks.start_soon(make)
        (run,) = [""]
        with anyio.fail_after(600):
            while not run:
                await anyio.sleep(0.05)
                run = next((info.run for info in await here.gym.runs()), "")
            subject = f"{journal_subject(run, 0, -1)}.role.*"
            while len(await here.gym.bus.latest(subject)) < 4:
                await anyio.sleep(0.05)
        await here.system.add_resource(here.loaded, name="resource-2")
        await here.system.add_agent(name="agent-2", slots=64)
        for name in ("resource-1", "agent-1") if victim == "both" else (victim,):
            here.system.kill(name)
        here.contest.release.set()
    assert [record.reward for record in found] == [0, 1, 2, 3]
    assert len(here.judge.calls.items) == 4
    assert [record.roles["judge"].calls for record in found if record.roles] == [4]


async def test_a_rollout_without_a_group_cannot_wait_for_one(here: Here) -> None:
    await here.start()
    (spec, _) = here.specs("run", 1, repeats=2)
    (record,) = await here.system.make(msgspec.structs.replace(spec, group=None))
    assert "Pending is for rollouts that are published in groups" in fault(record).message


async def test_pending_without_a_comparison_is_refused() -> None:
    async with small_system() as system:
        resource = catalogue.environment(str(CONTEST)).definition.resource
        await system.add_resource(environment(Environment(resource=resource, description="d"), "contest"))
        await system.add_model(Engine(answer("x")))
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row(), environment="contest"))
        assert "has no compare" in fault(record).message
