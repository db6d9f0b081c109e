"""Methods that block, made of those of `Client`: they have the same name and the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from gym_runtime.client.client import Client
from gym_runtime.client.loop_thread import LoopThread
from gym_runtime.client.sync_calls import read
from gym_runtime.client.sync_connection import SharedConnection

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


def answered(
    method: Callable[Concatenate[Client, P], Awaitable[T]],
) -> Callable[Concatenate[SharedConnection, P], T]:
    """A coroutine, waited for."""

    def wait(self: SharedConnection, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return self.call(method, *arguments, **keywords)

    return named_as(method, wait, str(inspect.signature(method).return_annotation))


def looped(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T]],
) -> Callable[Concatenate[SharedConnection, P], Generator[T]]:
    """An async generator, to be looped over."""

    def loop(self: SharedConnection, /, *arguments: P.args, **keywords: P.kwargs) -> Generator[T]:
        here = self._here()  # pyright: ignore[reportPrivateUsage] - this is its other half
        return read(here.thread, method(here.client, *arguments, **keywords))

    return named_as(method, loop, str(inspect.signature(method).return_annotation).removeprefix("Async"))


def held(
    method: Callable[Concatenate[Client, P], AbstractAsyncContextManager[T]],
    of: Callable[[LoopThread, T], R],
) -> Callable[Concatenate[SharedConnection, P], AbstractContextManager[R]]:
    """An async context, entered and left by ``with``; ``of`` makes what blocks of what it yields."""

    @contextmanager
    def hold(self: SharedConnection, /, *arguments: P.args, **keywords: P.kwargs) -> Generator[R]:
        here = self._here()  # pyright: ignore[reportPrivateUsage] - this is its other half
        with here.held(method(here.client, *arguments, **keywords)) as value:
            yield of(here.thread, value)

    return named_as(method, hold, f"AbstractContextManager[{of.__name__ if isinstance(of, type) else None}]")


def named_as(origin: Callable[..., Any], blocking: Callable[Q, R], returned: str) -> Callable[Q, R]:
    """Give a method that blocks the name and the parameters of its origin, for help and tools."""
    blocking.__name__, blocking.__doc__ = origin.__name__, f"As `Client.{origin.__name__}`."
    with_parameters_of(origin, blocking, returned)
    return blocking


def with_parameters_of(origin: Callable[..., Any], function: Callable[..., Any], returned: str) -> None:
    """Have help and tools show the parameters of another function."""
    # `inspect` follows `__wrapped__`, which `contextmanager` sets, past the signature below.
    vars(function).pop("__wrapped__", None)
    vars(function)["__signature__"] = inspect.signature(origin).replace(return_annotation=returned)
