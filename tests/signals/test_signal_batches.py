"""Batches of groups with signal from a whole system: agents, an environment and a model at work."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
import msgspec
import pytest
from gym_runtime import Client, Environment, Reply, SyncClient, Task, UsageError, Verdict
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.bus import Bus
from gym_runtime.client import RunProgress
from gym_runtime.errors import GymError, ModelRefused, TaskError
from gym_runtime.messages.metric_names import SAMPLED_TOKENS
from gym_signal import Bet, Posterior, Seen, SignalBatches, signal_batches, standings
from gym_signal.stored import StoredCurriculum
from gym_testing.background import hosting
from gym_testing.small_system import Engine, Hang, SmallSystem, answer, environment, small_system
from gym_view.live import run_view

pytestmark = pytest.mark.anyio


class GuessTask(Task):
    number: int


async def verify(task: GuessTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "right"))


GUESS = environment(Environment(resource=verify, description="Guess."), "guess")


class Policy(Engine):
    """Right on tasks below 10, wrong on those from 20 on, every second time right between.

    Attributes:
        asked: how often each task was asked.
        hanging: no answer comes while this is set.
        fault: raised instead of an answer, if there is one.
    """

    def __init__(self) -> None:
        super().__init__(Hang())
        self.asked = Counter[int]()
        self.hanging = False
        self.fault: GymError | None = None

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if self.hanging:
            return await super().respond(call, context)
        if self.fault is not None:
            raise self.fault
        number = int(msgspec.json.decode(call.input[-1])["content"])
        self.asked[number] += 1
        right = number < 10 or (number < 20 and self.asked[number] % 2 == 0)
        await anyio.sleep(1 + self.asked[number] % 3)
        return answer("right" if right else "wrong")


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": str(n)}, "number": n} for n in range(count)]


class Running:
    def __init__(self, system: SmallSystem, policy: Policy) -> None:
        self.system, self.policy, self.gym = system, policy, system.client

    def batches(self, gym: Client | None = None, **how: Any) -> AbstractAsyncContextManager[SignalBatches]:
        how = {"want": 4, "repeats": 4, "environment": "guess", **how}
        return signal_batches(gym or self.gym, how.pop("rows", rows()), **how)

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[Client]:
        """A client with its own connection."""
        async with self.system.broker.connect() as bus, hosting() as tasks:
            yield Client(bus, tasks)


@asynccontextmanager
async def running() -> AsyncGenerator[Running]:
    policy = Policy()
    async with small_system() as system:
        await system.add_resource(GUESS)
        await system.add_model(policy, capacity=1000)
        await system.add_agent(slots=200)
        yield Running(system, policy)


class Drawing:
    """A curriculum that draws what it is given, and then nothing."""

    def __init__(self, *tasks: tuple[int, int]) -> None:
        self.tasks = list(tasks)

    def next(self, count: int) -> list[tuple[int, int]]:
        drawn, self.tasks = self.tasks[:count], self.tasks[count:]
        return drawn

    def observe(self, seen: Seen) -> None: ...

    def state(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None: ...


async def test_a_curriculum_that_draws_nothing_more_ends_the_waiting() -> None:
    async with running() as here, here.batches(curriculum=Drawing((10, 4), (11, 4))) as batches:
        with anyio.fail_after(60), pytest.raises(GymError, match=r"2 of the 4 groups .* draws no task"):
            await batches.next()


@pytest.mark.parametrize("drawn", [(40, 4), (-1, 4), (3, 0)])
async def test_a_task_that_there_is_not_is_named(drawn: tuple[int, int]) -> None:
    async with running() as here:
        with anyio.fail_after(60), pytest.raises(UsageError, match="tasks are 0 to 39, with at least 1"):
            async with here.batches(curriculum=Drawing(drawn)) as batches:
                await batches.next()


@pytest.mark.slow
async def test_batches_that_are_asked_for_at_the_same_time_come_one_after_the_other() -> None:
    found: list[int] = []
    async with running() as here, here.batches() as batches:

        async def ask() -> None:
            found.extend(group.task_index for group in await batches.next())

        with anyio.fail_after(600):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask)
    assert len(set(found)) == len(found) == 12


@pytest.mark.slow
async def test_each_batch_has_as_many_groups_with_signal() -> None:
    async with running() as here, here.batches(curriculum="uniform") as batches:
        for _ in range(6):
            groups = await batches.next()
            assert len(groups) == 4
            for group in groups:
                assert len(group.rollouts) == 4
                assert len(set(group.rewards)) == 2
                assert 10 <= group.key < 20
                assert group.row == rows()[group.key]
                assert [one.rollout_index for one in group.rollouts] == [0, 1, 2, 3]
        await anyio.sleep(60)  # what was in progress has ended
        useful = batches.useful
        assert useful.sampled == sum(here.policy.asked.values())
        assert useful.useful == 6 * 4 * 4
        assert useful.flat > useful.useful
        assert useful.groups == 24
        assert useful.share == useful.useful / (useful.useful + useful.flat)
        assert batches.by_environment == {"guess": useful}
        assert 0 < batches.step.sampled < useful.sampled
        assert batches.step.useful == 16


@pytest.mark.slow
async def test_the_posterior_samples_less_than_all_in_turn() -> None:
    async with running() as here:
        spent = dict[str, int]()
        for name in ("uniform", "posterior"):
            before = sum(here.policy.asked.values())
            async with here.batches(curriculum=name, want=2, ahead=0) as batches:
                for _ in range(40):
                    await batches.next()
            spent[name] = sum(here.policy.asked.values()) - before
        assert spent["posterior"] < 0.6 * spent["uniform"]


@pytest.mark.slow
async def test_a_group_is_stopped_between_waves() -> None:
    async with (
        running() as here,
        here.batches(repeats=8, curriculum=Posterior(40, 8), waves=(4, 4), bet=Bet(below=0.9)) as batches,
    ):
        for _ in range(5):
            await batches.next()
        assert batches.useful.stopped > batches.useful.flat


async def test_leaving_cancels_what_is_in_progress_down_to_the_engine() -> None:
    async with running() as here:
        here.policy.hanging = True
        async with here.batches():
            await here.policy.calls.until(8)
        await here.policy.cancelled.until(8)
        (info,) = await here.gym.runs()
        assert info.state == "cancelled"


async def test_a_group_that_ends_while_the_context_is_left_starts_no_other() -> None:
    async with running() as here, here.batches(curriculum="uniform") as batches:
        run, start, flat = batches._run, batches.start_due, batches.useful.flat

        def closing() -> None:
            # The last record of a flat group came just before, so that another one is due.
            if batches.useful.flat > flat:
                run.end("it was closed")
            start()

        batches.start_due = closing
        await run.ended()


@pytest.mark.slow
async def test_a_run_that_is_cancelled_by_another_client_ends_the_waiting() -> None:
    async with running() as here, here.another() as gym, here.batches() as batches:
        here.policy.hanging = True
        await here.policy.calls.until(8)
        (info,) = await gym.runs()
        await gym.cancel(info.run)
        with pytest.raises(GymError, match="is over: it was cancelled"):
            await batches.next()


@pytest.mark.slow
async def test_a_bound_holds_sampling_back_until_the_weights_are_installed() -> None:
    async with running() as here, here.batches(staleness=0, signal=False, curriculum="uniform") as batches:
        await batches.next()
        asked = sum(here.policy.asked.values())
        await anyio.sleep(60)
        assert sum(here.policy.asked.values()) == asked == 16
        batches.installed()
        await anyio.sleep(60)
        assert sum(here.policy.asked.values()) == 32
        assert batches.free_staleness is not None


@pytest.mark.slow
async def test_a_refused_group_is_counted_once() -> None:
    async with running() as here, here.batches() as batches:
        group, *_ = await batches.next()
        batches.refuse(group)
        useful = batches.useful
        assert useful.refused == 4
        assert useful.useful == 12
        assert useful.groups == 3
        with pytest.raises(UsageError, match="not in the last batch"):
            batches.refuse(group)


@pytest.mark.slow
async def test_the_figures_of_the_run_say_what_became_of_the_tokens() -> None:
    async with running() as here:
        async with here.batches(curriculum="uniform") as batches:
            first, *_ = await batches.next()
            batches.refuse(first)
            await batches.next()
        useful = batches.useful
        (info,) = await here.gym.runs()
        assert info.figures is not None
        counted = {one.labels: one.value for one in info.figures.counts if one.name == SAMPLED_TOKENS.name}
        assert counted == {
            ("guess", "useful"): useful.useful,
            ("guess", "flat"): useful.flat,
            ("guess", "refused"): useful.refused,
        }
        assert run_view(info, RunProgress(figures=info.figures)).useful == useful.share


@pytest.mark.slow
async def test_an_engine_that_always_fails_ends_sampling_with_its_message() -> None:
    async with running() as here:
        here.policy.fault = ModelRefused("bad key")
        async with here.batches(want=1, max_attempts=1) as batches:
            with pytest.raises(GymError, match=r"the last \d+ groups failed: bad key"):
                await batches.next()


async def test_rows_of_which_no_group_can_differ_end_sampling_within_its_bound() -> None:
    async with (
        running() as here,
        here.batches(want=2, rows=rows(10), oversampling=5, in_flight=2) as batches,
    ):
        with pytest.raises(GymError, match=r"1\d groups were sampled for a batch of 2, and too few had"):
            await batches.next()


async def test_wrong_rows_and_settings_are_refused_before_anything_starts() -> None:
    async with running() as here:
        for wrong, error, message in (
            ({"rows": [{"responses_create_params": {"input": "1"}}]}, TaskError, "number"),
            ({"rows": []}, UsageError, "rows is empty"),
            ({"rows": iter(rows())}, UsageError, "need all rows at once"),
            ({"rows": rows(1)[0]}, UsageError, "must be rows in a list"),
            (
                {"rows": [*rows(30), {"responses_create_params": {"input": "1"}}]},
                TaskError,
                "row 31: 'number' is missing",
            ),
            ({"waves": (4, 4)}, UsageError, "waves are 8 rollouts, and a group has 4: repeats=8"),
            ({"seed_repeats": True}, UsageError, "no seed_repeats"),
            ({"settings": {"temperature": 1}}, UsageError, "settings must be RolloutSettings"),
            ({"seed": 7}, UsageError, "no seed: all rollouts would have the same one; leave the seed to"),
            ({"repeats": 1}, UsageError, "a group needs 2 rollouts"),
            ({"temprature": 1}, UsageError, "did you mean 'temperature'"),
            ({"name": "a.b"}, UsageError, "a.b"),
            ({"curriculum": "hard"}, UsageError, "no curriculum 'hard'"),
        ):
            with pytest.raises(error, match=message):
                async with here.batches(**wrong) as batches:  # pyright: ignore[reportArgumentType]
                    await batches.next()
        assert not here.policy.asked


async def test_a_client_for_code_without_an_event_loop_is_refused() -> None:
    waits = cast("Client", SyncClient.__new__(SyncClient))
    with pytest.raises(UsageError, match="asynchronous: async with"):
        async with signal_batches(waits, rows(), want=1):
            pass


@pytest.mark.slow
async def test_a_trainer_that_starts_again_goes_on_with_what_was_seen() -> None:
    async with running() as here:
        spent = list[int]()
        for start in ("cold", "warm"):
            async with here.another() as gym, here.batches(gym, name="exp", want=2, ahead=0) as batches:
                for _ in range(4 if start == "warm" else 40):
                    before = sum(here.policy.asked.values())
                    await batches.next()
                    spent.append(sum(here.policy.asked.values()) - before)
        # It knows which tasks have signal.
        assert sum(spent[-4:]) < 0.7 * sum(spent[:4])
        (shown,) = await standings(here.gym.driver.bus)
        learned, learning, hard = (
            {task for task, _ in kind.first} for kind in (shown.learned, shown.learning, shown.too_hard)
        )
        assert len(learned) > 3
        assert len(hard) > 3
        assert learned <= set(range(10))
        assert learning == set(range(10, 20))
        assert hard <= set(range(20, 40))
        assert len(learned) + len(learning) + len(hard) + shown.unseen == shown.tasks == 40


@pytest.mark.slow
async def test_two_trainers_of_one_name_are_told() -> None:
    async with (
        running() as here,
        here.another() as gym,
        here.batches(name="exp") as one,
        here.batches(gym, name="exp") as two,
    ):
        await one.next()
        with pytest.raises(UsageError, match="another trainer uses the curriculum 'exp'"):
            await two.next()
        await one.next()


@pytest.mark.slow
async def test_another_curriculum_under_the_same_name_is_refused() -> None:
    async with running() as here:
        async with here.batches(name="exp", curriculum="uniform") as batches:
            await batches.next()
        with pytest.raises(UsageError, match="'uniform' over 40 tasks, and this is 'posterior'"):
            async with here.batches(name="exp"):
                raise AssertionError


async def test_other_rows_under_the_same_name_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    async with running() as here:
        for given, told in ((rows(), False), (rows(), False), (rows()[::-1], True)):
            async with here.batches(rows=given, name="exp", signal=False) as batches:
                await batches.next()
            assert ("was stored with other rows" in "".join(capfd.readouterr())) == told


async def test_the_state_at_the_broker_is_exact() -> None:
    """All that was observed is there, at any moment and after any crash between two writes."""
    async with running() as here:
        bus = here.gym.driver.bus
        for crash_after in range(12):
            name = f"exp-{crash_after}"
            kept = Posterior(5)
            stored = StoredCurriculum(kept, bus, name)
            await stored.load()
            expected = Posterior(5)
            for step in range(crash_after):
                seen = Seen(task=step % 5, rewards=[float(step % 2)] * 3, version=step)
                stored.observe(seen)
                expected.observe(seen)
                await stored.store(whole=step % 4 == 3)
            again = Posterior(5)
            await StoredCurriculum(again, bus, name).load()
            assert again.state() == expected.state()


@pytest.mark.parametrize("release", ["this", "before"])
async def test_what_was_seen_fades_on_when_a_trainer_starts_again(release: str) -> None:
    """Its versions count from 0 again."""
    async with running() as here:
        bus = here.gym.driver.bus
        stored = StoredCurriculum(Posterior(3, half_life=10.0), bus, "exp")
        for version in range(100):
            stored.observe(Seen(task=0, rewards=[1.0] * 4, version=version))
        await stored.store(whole=True)
        if release == "before":
            (found,) = await bus.latest("runs.curriculum.exp")
            fields = msgspec.msgpack.decode(found.payload)
            del fields["version"]
            await bus.append("runs.curriculum.exp", msgspec.msgpack.encode(fields))
        for lives in (1, 2):
            again = Posterior(3, half_life=10.0)
            stored = StoredCurriculum(again, bus, "exp")
            await stored.load()
            known = dict(again.rates(evidence=10.0))
            assert (0 in known) == (lives == 1), "after 40 versions a sixteenth is left"
            for version in range(40):
                stored.observe(Seen(task=1, rewards=[1.0], version=version))
                await stored.store(whole=False)


class LateBus:
    """A bus whose broker has stored a record long before its answer comes."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append(self, *arguments: Any, **keywords: Any) -> Any:
        found = await self._bus.append(*arguments, **keywords)
        await anyio.sleep(10)
        return found


async def test_a_call_that_was_cancelled_while_its_state_was_stored_is_no_other_trainer() -> None:
    async with running() as here:
        stored = StoredCurriculum(Posterior(3), cast("Bus", LateBus(here.gym.driver.bus)), "exp")
        for task in range(3):
            stored.observe(Seen(task=task, rewards=[1.0]))
            with anyio.move_on_after(1 if task < 2 else 100):
                await stored.store(whole=True)
        again = Posterior(3)
        await StoredCurriculum(again, here.gym.driver.bus, "exp").load()
        assert len(again.rates(evidence=1.0)) == 3


class HungBus(LateBus):
    """A bus whose broker does not answer while ``hung`` is set, and stores nothing."""

    hung = False

    async def append(self, *arguments: Any, **keywords: Any) -> Any:
        if self.hung:
            await anyio.sleep_forever()
        return await self._bus.append(*arguments, **keywords)


@pytest.mark.parametrize("whole", [True, False])
async def test_what_was_seen_is_stored_later_where_storing_it_was_cancelled(whole: bool) -> None:
    async with running() as here:
        bus = HungBus(here.gym.driver.bus)
        stored = StoredCurriculum(Posterior(3), cast("Bus", bus), "exp")
        bus.hung = True
        stored.observe(Seen(task=0, rewards=[1.0]))
        stored.observe(Seen(task=1, rewards=[1.0]))
        with anyio.move_on_after(0.05):
            await stored.store(whole=whole)
        bus.hung = False
        stored.observe(Seen(task=2, rewards=[1.0]))
        await stored.store(whole=False)
        again = Posterior(3)
        await StoredCurriculum(again, here.gym.driver.bus, "exp").load()
        assert [task for task, _ in again.rates(evidence=1.0)] == [0, 1, 2]
