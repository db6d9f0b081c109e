"""Tools that cannot be offered: one line that names the tool, the parameter and the place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gym_runtime import Session, Task, tool
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.tools import hearing
from gym_runtime.errors import UsageError
from tables import table

if TYPE_CHECKING:
    from decimal import Decimal

ROW = b'{"responses_create_params": {}}'


class Unannotated(Session[Task]):
    @tool
    def deposit(self, amount) -> None: ...  # type: ignore[no-untyped-def]


class Variadic(Session[Task]):
    @tool
    def deposit(self, *amounts: int) -> None: ...


class Keywords(Session[Task]):
    @tool
    def deposit(self, **amounts: int) -> None: ...


class PositionalOnly(Session[Task]):
    @tool
    def deposit(self, amount: int, /) -> None: ...


class Unlisted(Session[Task]):
    @tool
    def deposit(self, amount: list[complex]) -> None: ...


class Anything(Session[Task]):
    @tool
    def deposit(self, reason: str, amount: object) -> None: ...


class Unimported(Session[Task]):
    @tool
    def deposit(self, amount: Decimal) -> None: ...


@table(
    ("session", "problem"),
    [
        (Unannotated, "does not annotate 'amount'; add its type"),
        (Variadic, "takes '*amounts: 'int'', but a model passes arguments by name"),
        (Keywords, "takes '**amounts: 'int'', but a model passes arguments by name"),
        (PositionalOnly, "takes 'amount: 'int'', but a model passes arguments by name"),
        (Unlisted, "takes 'amount: list[complex]', which has no JSON schema: type <class 'complex'> is not"),
        (Anything, "takes 'amount: object', which has no JSON schema"),
        (Unimported, "has an annotation that cannot be resolved: name 'Decimal' is not defined"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_one_line(session: type[Session[Any]], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        Resource(session)
    message = str(caught.value)
    assert f"the tool 'deposit' {problem}" in message
    assert message.startswith(f"{Path(__file__)}:")
    assert "\n" not in message


def as_static() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @staticmethod
        @tool
        def buy(what: str) -> None: ...

    return Shop


def as_property() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @property
        @tool
        def buy(self) -> None: ...

    return Shop


def marked_class_method() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool
        @classmethod
        def buy(cls, what: str) -> None: ...

    return Shop


def twice() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool
        def buy(self) -> None: ...

        @tool(name="buy")
        def purchase(self) -> None: ...

    return Shop


def named_badly() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool(name="buy a thing")
        def buy(self) -> None: ...

    return Shop


def without_self() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool
        def buy() -> None: ...  # type: ignore[misc]

    return Shop


def in_place_of_open() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool
        def open(self, shelf: str) -> None: ...  # type: ignore[override]

    return Shop


def in_place_of_the_store() -> type[Session[Task]]:
    class Shop(Session[Task]):
        @tool
        def store(self, what: str) -> None: ...  # type: ignore[assignment]

    return Shop


def made_of_nothing() -> type[Session[Task]]:
    class Shop(Session[Task]):
        def __init__(self) -> None:
            self.sold = 0

    return Shop


@table(
    ("made", "problem"),
    [
        (in_place_of_open, "the tool 'open' would replace Session.open, which is not for the model; name it"),
        (in_place_of_the_store, "the tool 'store' would replace Session.store, which is not for the model"),
        (made_of_nothing, "Shop.__init__(self) is called with (self, task); prepare the state in open"),
        (as_static, "Shop.buy is a staticmethod; a tool must be a method, which has self"),
        (as_property, "Shop.buy is a property; a tool must be a method"),
        (marked_class_method, "@tool marks a method, which has self, and not <classmethod"),
        (twice, "Shop has two tools with the name 'buy'"),
        (named_badly, "the tool's name is 'buy a thing'; it must be 1 to 64 letters"),
        (without_self, "the tool 'buy' has no parameter self"),
    ],
)
def test_what_would_be_no_tool_or_another_one_is_refused(
    made: Callable[[], type[Session[Task]]], problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Resource(made())
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


class Bank(Session[Task]):
    @tool
    def deposit(self, amount: int) -> None:
        raise ValueError("boom")


@pytest.mark.anyio
async def test_what_tools_raise_can_be_heard() -> None:
    resource = Resource(Bank)
    session = await resource.open(ROW)
    with hearing() as heard:
        await resource.call_tool(session, "deposit", '{"amount": 1}')
        await resource.call_tool(session, "deposit", "{}")  # the model's mistake, not the tool's
    await resource.call_tool(session, "deposit", '{"amount": 1}')
    (error,) = heard.raised
    assert error.startswith(f"deposit raised ValueError: boom ({__file__}:")
    assert heard.refused == ["deposit({}) was refused: Object missing required field `amount`"]


class Files(Session[Task]):
    @tool
    def read(self) -> dict[str, bytes]:
        return {"text": b"apple"}

    @tool
    async def wait(self) -> object:
        return object()


@pytest.mark.anyio
async def test_what_tools_return_and_no_model_should_read_is_heard_with_their_lines() -> None:
    resource = Resource(Files)
    session = await resource.open(ROW)
    with hearing() as heard:
        for name in ("read", "wait"):
            await resource.call_tool(session, name, "{}")
    line = inspect.getsourcelines(Files)[1]
    assert heard.raised == [
        f"{__file__}:{line + 1}: read returned bytes, which the model reads in base64: decode them",
        f"{__file__}:{line + 5}: wait returned what is not JSON: "
        "Encoding objects of type object is unsupported",
    ]


def test_a_tool_may_have_another_name_than_its_method() -> None:
    class Shop(Session[Task]):
        @tool(name="open")
        def open_shelf(self, shelf: str) -> None: ...

    assert list(Resource(Shop).tools) == ["open"]
