"""What authors forget, and whose fault an error is."""

from __future__ import annotations

import functools
import math
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Episode, Model, Reply, Session, Step, Task, Verdict
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.resource import Resource
from gym_runtime.errors import ModelUnavailable, ResourceError, UsageError
from gym_runtime.files.results import failure_class
from runtime.environment.resources import ROW, SILENCE, Desk, GoalTask
from tables import table


class NotATask(msgspec.Struct):
    goal: int


def takes_a_dict(task: dict[str, Any], reply: Reply) -> Verdict:
    return Verdict(1.0)


def takes_a_struct(task: NotATask, reply: Reply) -> Verdict:
    return Verdict(1.0)


def takes_nothing() -> Verdict:
    return Verdict(1.0)


def says_nothing(task, reply):  # type: ignore[no-untyped-def]
    return Verdict(1.0)


class Bank(Session):  # type: ignore[type-arg]
    pass


class Board(Episode):  # type: ignore[type-arg]
    pass


class Vault(Session[NotATask]):  # type: ignore[type-var]
    pass


@table(
    ("shape", "message"),
    [
        (takes_a_dict, "verify's first parameter must be annotated with a subclass of Task"),
        (takes_a_struct, "verify's first parameter must be annotated with a subclass of Task"),
        (takes_nothing, "verify's first parameter must be annotated with a subclass of Task"),
        (says_nothing, "verify's first parameter must be annotated with a subclass of Task"),
        (
            Bank,
            "Bank does not name its task: class Bank(Session[BankTask]), where the task derives from Task",
        ),
        (Board, "Board does not name its task: class Board(Episode[BoardTask]), where the task derives"),
        (Vault, "Vault does not name its task: class Vault(Session[VaultTask]), where the task derives"),
    ],
)
def test_a_task_without_its_type_is_one_line_with_its_place(shape: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Resource(shape)
    assert f"{__file__}:" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def takes_the_task(task: GoalTask) -> Verdict:
    return Verdict(1.0)


class OpensATask(Session[GoalTask]):
    async def open(self, task: GoalTask) -> None: ...  # type: ignore[override]


class StepsAnAction(Episode[GoalTask]):
    async def step(self) -> Step:  # type: ignore[override]
        return Step()


async def names_its_role(task: GoalTask, reply: Reply, *, judge: Model) -> Verdict:
    return Verdict(1.0)


class OpensByYield(Session[GoalTask]):
    async def open(self):  # type: ignore[no-untyped-def, override]
        self.opened = True
        yield


class ClosesByYield(Session[GoalTask]):
    def close(self):  # type: ignore[no-untyped-def, override]
        yield


class TakesMore(Session[GoalTask]):
    """A parameter with a default, a decorator's other parameters and a static method can all be called."""

    async def verify(self, reply: Reply, strict: bool = False) -> Verdict:
        return Verdict(1.0)

    @functools.wraps(takes_the_task)
    async def open(self) -> None: ...

    @staticmethod
    async def close() -> None: ...


@table(
    ("shape", "message"),
    [
        (takes_the_task, "takes_the_task(task) is called with (task, reply), then its roles"),
        (
            names_its_role,
            "names_its_role(task, reply, *, judge) is called with (task, reply), then its roles",
        ),
        (OpensATask, "OpensATask.open(self, task) is called with (self)"),
        (StepsAnAction, "StepsAnAction.step(self) is called with (self, reply)"),
        (OpensByYield, "OpensByYield.open has a yield, so a call of it would run nothing"),
        (ClosesByYield, "ClosesByYield.close has a yield, so a call of it would run nothing"),
    ],
)
def test_a_method_that_cannot_be_called_is_refused_before_the_first_rollout(shape: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Resource(shape)
    assert f"{__file__}:" in str(caught.value)
    assert message in str(caught.value)


def test_a_method_may_have_other_parameters_than_the_runtimes() -> None:
    Resource(TakesMore)


def test_a_plain_task_may_be_named() -> None:
    assert Resource(judge_as(None)).task_type is Task
    assert Resource(Desk).task_type is Task


@pytest.mark.anyio
async def test_a_session_says_what_it_lacks() -> None:
    desk = Resource(Desk)
    with pytest.raises(ResourceError, match=r"^Desk has no verify; define: async def verify") as caught:
        await desk.verify(await desk.open(ROW), SILENCE)
    assert caught.value.stage == "verify"

    class Still(Episode[Task]):
        pass

    still = Resource(Still)
    session = await still.open(ROW)
    with pytest.raises(ResourceError, match=r"^Still has no step; define: async def step") as caught:
        await still.step(session, SILENCE)
    assert caught.value.stage == "step"


@pytest.mark.anyio
@pytest.mark.parametrize("observation", [5, ["go on"], {"role": "user"}])
async def test_an_observation_that_is_none_says_what_one_is(observation: Any) -> None:
    class Odd(Episode[GoalTask]):
        async def reset(self) -> Any:
            return observation

        async def step(self, reply: Reply) -> Step:
            return Step(observation=observation)

    resource = Resource(Odd)
    session = await resource.open(ROW)
    assert isinstance(session, Odd)
    wanted = (
        f"returned the observation {observation!r}; it must be a text, a list of items (each a dict), or None"
    )
    for stage, work in (("reset", resource.reset(session)), ("step", resource.step(session, SILENCE))):
        with pytest.raises(ResourceError) as caught:
            await work
        assert (str(caught.value), caught.value.stage) == (f"{stage} {wanted}", stage)


def judge_as(value: Any) -> Any:
    def verify(task: Task, reply: Reply) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return verify


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ValueError("a bug"), "ValueError: a bug"),
        (None, "verify returned None; it must return a Verdict"),
        (1.0, "verify returned 1.0; it must return a Verdict"),
        (Verdict(math.nan), "the verifier returned reward = nan; it must be a finite number"),
        (Verdict(math.inf), "reward = inf"),
        (Verdict(True), "reward = True"),
        (Verdict(None), "reward = None"),  # type: ignore[arg-type]
        pytest.param(Verdict(10**400), "reward = 1000", id="huge"),
        (Verdict(1.0, components={"style": math.nan}), "style = nan"),
    ],
)
async def test_a_broken_verifier_is_a_fault_and_never_a_reward(value: Any, message: str) -> None:
    resource = Resource(judge_as(value))
    with pytest.raises(ResourceError, match=message) as caught:
        await resource.verify(await resource.open(ROW), SILENCE)
    assert caught.value.stage == "verify"


@pytest.mark.anyio
@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "1", True, pytest.param(10**400, id="huge")])
async def test_a_steps_reward_that_is_no_finite_number_is_a_fault_too(reward: Any) -> None:
    class Odd(Episode[GoalTask]):
        async def step(self, reply: Reply) -> Step:
            return Step(reward=reward)

    resource = Resource(Odd)
    session = await resource.open(ROW)
    assert isinstance(session, Odd)
    await resource.reset(session)
    with pytest.raises(ResourceError, match="it must be a finite number") as caught:
        await resource.step(session, SILENCE)
    assert caught.value.stage == "step"
    assert (await resource.verify(session, SILENCE)).reward == 0.0


@pytest.mark.anyio
async def test_errors_of_the_runtime_pass_through_a_verifier() -> None:
    resource = Resource(judge_as(ModelUnavailable("the judge is down")))
    with pytest.raises(ModelUnavailable) as caught:
        await resource.verify(await resource.open(ROW), SILENCE)
    assert failure_class(caught.value.fault()) == "judge_failed"


class Careless(Session[Task]):
    def __init__(self, task: Task) -> None:
        self.count = 0


@pytest.mark.anyio
async def test_a_session_that_forgets_its_parent_says_so() -> None:
    with pytest.raises(ResourceError, match=r"Careless.__init__ does not call super\(\).__init__\(task\)"):
        await Resource(Careless).open(ROW)


class Verifier:
    async def __call__(self, task: Task, reply: Reply) -> Verdict:
        return Verdict(1.0)

    async def judge(self, task: Task, reply: Reply) -> Verdict:
        return Verdict(1.0)


class UndecodableTask(Task):
    rule: lambda: 1  # type: ignore[valid-type]


def judges_the_undecodable(task: UndecodableTask, reply: Reply) -> Verdict:
    return Verdict(1.0)


def test_what_cannot_be_read_is_one_line() -> None:
    assert Environment(resource=Verifier().judge, description="A bound method is a function.").resource
    for verify in (Verifier(), functools.partial(judge_as, 1)):
        with pytest.raises(UsageError, match=r"it must be a function verify\(task, reply\)"):
            Environment(resource=verify, description="No function.")
    with pytest.raises(UsageError, match="UndecodableTask has a field that no JSON can be: ") as caught:
        Resource(judges_the_undecodable)
    assert "\n" not in str(caught.value)


class Fragile(Session[GoalTask]):
    """Breaks in the method that the row's hint names."""

    closed = 0

    def __init__(self, task: GoalTask) -> None:
        super().__init__(task)
        self._break_in("init")

    def open(self) -> None:  # type: ignore[override]
        self._break_in("open")

    def verify(self, reply: Reply) -> Verdict:
        self._break_in("verify")
        return Verdict(1.0)

    async def close(self) -> None:
        Fragile.closed += 1
        self._break_in("close")

    def _break_in(self, method: str) -> None:
        if self.task.hint == method:
            raise RuntimeError(f"broke in {method}")


@pytest.mark.anyio
@pytest.mark.parametrize(("method", "closed"), [("init", 0), ("open", 1), ("verify", 1), ("close", 1)])
async def test_a_session_that_breaks_is_the_resources_fault_and_is_closed(method: str, closed: int) -> None:
    resource, Fragile.closed = Resource(Fragile), 0
    row = msgspec.json.encode({"responses_create_params": {}, "goal": 1, "hint": method})
    with pytest.raises(ResourceError, match=f"RuntimeError: broke in {method}"):
        await rejudge(resource, row, SILENCE)
    assert Fragile.closed == closed


@pytest.mark.anyio
async def test_a_session_whose_opening_is_cancelled_is_closed() -> None:
    closed = anyio.Event()

    class Slow(Session[Task]):
        async def open(self) -> None:
            await anyio.sleep_forever()

        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Resource(Slow).open, ROW)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert closed.is_set()
