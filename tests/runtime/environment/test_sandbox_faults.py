"""The sandbox's errors become the runtime's, wherever an author's code meets them."""

from __future__ import annotations

import pytest
from gym_runtime import Session, Task, Verdict, tool
from gym_runtime.environment.author_code import explain, guarded, translating
from gym_runtime.environment.isolated import run_isolated
from gym_runtime.environment.requirements import isolation
from gym_runtime.environment.resource import Resource
from gym_runtime.errors import GymError, ModelUnavailable, ResourceError, TaskError, UsageError
from gym_sandbox.sandbox_errors import (
    FunctionRaised,
    Interrupted,
    SandboxError,
    SetupError,
    StartError,
    TooManyInterpreters,
)
from runtime.environment.resources import ROW
from sandbox import called_functions

from runtime import sandboxed_functions

pytestmark = pytest.mark.anyio

FAULTS = [
    (SetupError("x"), ("usage", "UsageError", "verify", False)),
    (StartError("x"), ("resource", "ResourceError", "sandbox", False)),
    (Interrupted("x"), ("resource", "SessionLost", "sandbox", True)),
    (TooManyInterpreters("x"), ("transport", "Busy", "tool", True)),
    (FunctionRaised("TaskError", "x", "open"), ("task", "TaskError", "open", False)),
    # The fork says the name, so no other one is believed.
    (FunctionRaised("SessionLost", "x"), ("resource", "ResourceError", "verify", False)),
]


def met(error: GymError) -> tuple[str, str, str, bool]:
    fault = error.fault()
    assert fault.message == "x"
    return fault.kind, fault.name, fault.stage, fault.retryable


class Desk(Session[Task]):
    failure: SandboxError = SetupError("x")

    @tool
    async def use(self) -> str:
        raise self.failure

    async def verify(self, reply: object) -> Verdict:
        raise self.failure


@pytest.mark.parametrize(("error", "fault"), FAULTS, ids=lambda value: type(value).__name__)
async def test_what_the_sandbox_raises_in_an_authors_code_is_a_fault_of_its_kind(
    error: SandboxError, fault: tuple[str, str, str, bool]
) -> None:
    async def authors() -> None:
        raise error

    with pytest.raises(GymError) as guarding:
        await guarded("verify", authors)
    assert met(guarding.value) == fault
    assert guarding.value.__cause__ is error
    resource = Resource(Desk)
    session = await resource.open(ROW)
    assert isinstance(session, Desk)
    session.failure = error
    with pytest.raises(GymError) as calling:
        await resource.call_tool(session, "use", "{}")
    assert met(calling.value)[:2] == fault[:2], "the model is not told: it did not cause it"
    with pytest.raises(GymError) as outside, translating():
        raise error
    assert met(outside.value)[:2] == fault[:2]


def test_a_fork_explains_the_runtimes_errors_by_their_names() -> None:
    told = [explain(one) for one in (TaskError("a", stage="open"), SetupError("b"), KeyError("c"))]
    assert [(one.name, one.message, one.stage) for one in told] == [
        ("TaskError", "a", "open"),
        ("UsageError", "b", ""),
        ("KeyError", "KeyError: 'c'", ""),
    ]
    assert explain(ModelUnavailable("d")).message == "d"


@pytest.mark.timeout(60)
async def test_a_machine_that_cannot_isolate_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "strong")
    with pytest.raises(UsageError, match="GYM_SANDBOX=strong is unknown"):
        await run_isolated(called_functions.echo, "said", timeout_s=5)
    with pytest.raises(UsageError, match="GYM_SANDBOX=strong is unknown"):
        isolation()


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_an_error_of_the_runtime_comes_out_of_a_fork_as_it_went_in() -> None:
    with pytest.raises(TaskError, match=r"^no such row$") as raised:
        await run_isolated(sandboxed_functions.refuse, "no such row", timeout_s=15)
    assert raised.value.stage == "open"
    with pytest.raises(ResourceError, match=r"^ValueError: no such row$"):
        await run_isolated(called_functions.fail, "no such row", timeout_s=15)
