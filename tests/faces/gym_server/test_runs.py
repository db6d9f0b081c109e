"""``/run``: one rollout for one request, however often the connection breaks; failures are no rewards."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from faces.gym_server.running_server import COUNTER, RunningServer, choice_row, counter_row, running_server
from gym_faces.gym_server.answers import Answer
from gym_faces.gym_server.asked_runs import AskedRun, Runs
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.errors import ModelRefused, TaskError
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_testing.background import settled
from gym_testing.small_system import Engine, Hang, answer, environment

pytestmark = pytest.mark.anyio


class StrictTask(Task):
    number: int


async def broken(task: StrictTask, reply: Reply) -> Verdict:
    if task.number == 1:
        raise ValueError("the verifier's bug")
    if task.number == 2:
        raise TaskError("this row's number cannot be judged")
    return Verdict(1.0, components={"part": 1.0}, fields={"seen": reply.text})


BROKEN = environment(Environment(resource=broken, description="Breaks."), "broken_here")


async def test_a_row_becomes_a_result_row_with_the_clients_own_names() -> None:
    async with running_server(settings=RolloutSettings(return_token_ids=True)) as here:
        row = counter_row(_rowidx=7, _ng_task_index=5, _ng_rollout_index=2, note="kept")
        told = await here.post("/run", row)
        assert told.status == 200
        assert told.body["reward"] == 1.0
        assert told.body["agent_ref"] == row["agent_ref"]
        assert (told.body["_ng_task_index"], told.body["_ng_rollout_index"]) == (5, 2)
        assert (told.body["note"], told.body["_rowidx"]) == ("kept", 7)
        kinds = [item["type"] for item in told.body["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
        assert told.body["responses_create_params"]["input"] == "Bring it to 4."


async def test_a_row_without_numbers_gets_none() -> None:
    async with running_server(answer("\\boxed{B}")) as here:
        row = choice_row()
        told = await here.post("/run", row)
        assert (told.status, told.body["reward"]) == (200, 1.0)
        assert "_ng_task_index" not in told.body
        del row["agent_ref"]
        assert (await here.post("/mcqa/run", row)).body["reward"] == 1.0


NUMBERS: list[dict[str, int]] = [{}, {"_ng_task_index": 0, "_ng_rollout_index": 0}]


# -- once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", NUMBERS)
async def test_the_same_request_of_the_next_step_is_another_rollout(numbers: dict[str, int]) -> None:
    """A trainer with a small dataset sends the same rows in its next step, with the same numbers."""
    async with running_server(answer("\\boxed{B}")) as here:
        first, second = [(await here.post("/run", choice_row(**numbers))).body for _ in range(2)]
        assert first["_gym"]["rollout_id"] != second["_gym"]["rollout_id"]
        assert [first.get(name) for name in numbers] == [second.get(name) for name in numbers]
        assert len(here.engine.calls.items) == 2
        assert not len(here.runs)


async def test_requests_with_the_same_idempotency_key_are_one_rollout() -> None:
    async with running_server(answer("\\boxed{B}")) as here:
        row = choice_row()
        first, second = [await here.post("/run", row, idempotency_key="mine") for _ in range(2)]
        assert first.body == second.body
        await here.post("/run", row, idempotency_key="another")
        await here.post("/run", {**row, "note": "another body"}, idempotency_key="mine")
        assert len(here.engine.calls.items) == 3


@pytest.mark.parametrize("numbers", NUMBERS)
async def test_two_clients_that_wait_with_the_same_row_are_two_rollouts(numbers: dict[str, int]) -> None:
    """TRL's example asks for a group like this, and so do two jobs with the same dataset."""
    async with running_server(answer("\\boxed{B}")) as here:
        bodies: list[Any] = []

        async def ask() -> None:
            bodies.append((await here.post("/run", choice_row(**numbers))).body)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask)
        assert len({body["_gym"]["rollout_id"] for body in bodies}) == 4
        await here.post("/run", choice_row())
        assert len(here.engine.calls.items) == 5
        assert not len(here.runs)


class Gate(Engine):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(answer("\\boxed{B}"))
        self.opened = anyio.Event()

    async def respond(self, *arguments: Any) -> Any:
        answered = await super().respond(*arguments)
        await self.opened.wait()
        return answered


async def lost(here: RunningServer, row: dict[str, Any]) -> None:
    """A request whose connection breaks while its rollout is being made."""
    asked = len(here.engine.calls.items)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.post, "/run", row)
        await settled(lambda: len(here.engine.calls.items) > asked)
        tasks.cancel_scope.cancel()
    await settled(lambda: here.server.admission.in_use == 0)


@pytest.mark.parametrize("numbers", NUMBERS)
async def test_a_retry_after_a_lost_connection_gets_the_same_rollout(numbers: dict[str, int]) -> None:
    engine = Gate()
    async with running_server(engine=engine) as here:
        row = choice_row(**numbers)
        await lost(here, row)
        async with anyio.create_task_group() as tasks:

            async def again() -> None:
                assert (await here.post("/run", row)).body["reward"] == 1.0

            tasks.start_soon(again)
            await settled(lambda: here.server.admission.in_use == 1)
            engine.opened.set()
        assert len(engine.calls.items) == 1


async def test_a_result_that_came_after_its_client_had_left_waits_for_the_retry() -> None:
    engine = Gate()
    async with running_server(engine=engine) as here:
        await lost(here, choice_row())
        engine.opened.set()
        (run,) = next(iter(here.runs._known.values()))
        await run.done.wait()
        assert (await here.post("/run", choice_row())).body["reward"] == 1.0
        assert len(engine.calls.items) == 1
        assert not len(here.runs)


async def test_a_rollout_that_no_client_waits_for_is_cancelled() -> None:
    async with running_server(Hang()) as here:
        await lost(here, choice_row())
        here.runs._kept_s = -1.0
        here.runs.tidy()
        assert not len(here.runs)
        await settled(lambda: len(here.engine.cancelled.items) == 1)


async def test_kept_results_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_faces.gym_server.asked_runs.MAX_KEPT_BYTES", 25)

    async def work() -> Answer:
        return Answer(200, b"0123456789")

    async with anyio.create_task_group() as tasks:
        runs = Runs(tasks)
        for number in range(5):
            async with runs.asked(b"%d" % number, work, named=True) as run:
                assert isinstance(run, AskedRun)
        runs.tidy()
        assert sorted(runs._known) == [b"3", b"4"]


# -- failures --------------------------------------------------------------------------------------------


async def test_whose_fault_it_is_stands_in_the_status() -> None:
    row = {"responses_create_params": {"input": "x"}, "number": 0}
    async with running_server(answer("x"), environments=(BROKEN,)) as here:
        good = await here.post("/run", row)
        assert (good.status, good.body["reward"], good.body["seen"]) == (200, 1.0, "x")
        assert good.body["reward_components"] == {"part": 1.0}
        bug = await here.post("/run", {**row, "number": 1})
        assert bug.status == 503
        assert bug.body["detail"].startswith("verify: ValueError: the verifier's bug")
        assert bug.headers["retry-after"] == "1"
        for wrong, said in (
            ({**row, "number": 2}, "verify: this row's number cannot be judged"),
            ({**row, "number": "x"}, "`$.number`"),
            ({"number": 1}, "responses_create_params"),
            ([row], "the body is no row"),
            (b"{", "the body is no row"),
            (b'{"a": "\xff"}', "is not UTF-8"),
            (b"[" * 100_000, "the body is no row"),
        ):
            told = await here.post("/run", wrong)
            assert (told.status, list(told.body)) == (422, ["detail"]), told
            assert said in told.body["detail"]
            assert "\n" not in told.body["detail"]


async def test_a_failed_rollout_is_made_again_when_it_is_asked_for_again() -> None:
    async with running_server(
        engine=Engine(ModelRefused("no"), by_attempt={}), environments=(BROKEN,)
    ) as here:
        row = {"responses_create_params": {"input": "x"}, "number": 0}
        numbered = {**row, "_ng_task_index": 0, "_ng_rollout_index": 0}
        for count in (1, 2):
            told = await here.post("/run", numbered)
            assert (told.status, told.body["detail"]) == (503, "model: no")
            assert len(here.engine.calls.items) == count


async def test_a_row_of_another_environment_is_refused() -> None:
    async with running_server() as here:
        for named, said in (
            ({"name": "gpqa_diamond_simple_agent"}, "environment 'gpqa_diamond' is not served here"),
            ({"name": "some_agent"}, "agent_ref 'some_agent' is not served here"),
            (None, "the row has no 'agent_ref', and several environments are served"),
        ):
            told = await here.post("/run", counter_row(agent_ref=named))
            assert told.status == 422
            assert said in told.body["detail"]
            assert COUNTER in told.body["detail"]
        assert (await here.post("/no_such_thing/run", counter_row())).status == 404


async def test_a_server_of_one_environment_takes_rows_that_name_an_agent_of_the_clients() -> None:
    async with running_server(answer("x"), environments=(BROKEN,)) as here:
        row = {"responses_create_params": {"input": "x"}, "number": 0, "agent_ref": {"name": "my_agent"}}
        told = await here.post("/run", row)
        assert (told.body["reward"], told.body["agent_ref"]) == (1.0, {"name": "my_agent"})
        assert (await here.post("/run", {**row, "agent_ref": {"name": "mcqa"}})).status == 422


@pytest.mark.slow
async def test_another_run_is_opened_when_the_run_is_cancelled() -> None:
    async with running_server(answer("\\boxed{B}")) as here:
        first = (await here.post("/run", choice_row())).body["_gym"]["rollout_id"]
        run = here.server._standing
        assert run is not None
        await here.system.client.cancel(run.run)
        await settled(lambda: here.server._standing is not run and here.server._standing is not None)
        again = await here.post("/run", choice_row())
        assert again.body["reward"] == 1.0
        assert again.body["_gym"]["rollout_id"].split(".")[0] != first.split(".")[0]


async def test_a_bug_of_the_server_is_no_reward() -> None:
    async def bug() -> Answer:
        raise KeyError("surprise")

    async with anyio.create_task_group() as tasks, Runs(tasks).asked(b"k", bug, named=False) as run:
        assert run.answer is not None
        assert run.answer.status == 503
        assert b"KeyError" in run.answer.body
