"""Sessions as TRL's environments: a class whose methods are the environment's tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from keyword import iskeyword
from typing import Any, ClassVar

import msgspec
from gym_runtime.client import SyncClient, SyncSession
from gym_runtime.errors import GymError, UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import response_items

from gym_trainers.training_rollouts import sole_reward

RESERVED = ("reset", "get_reward")
_KINDS: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class TrlEnvironment:
    """One session at a time, opened by `reset` for a row. Subclasses have a method for each tool.

    TRL takes every public method of the class for a tool; so nothing else is public here but `reset`.
    """

    _gym: ClassVar[SyncClient]
    _environment: ClassVar[str | None]

    def __init__(self) -> None:
        self._session: SyncSession | None = None
        self._held = ExitStack()
        self._failure = ""

    def reset(self, row: str = "", **columns: Any) -> str | None:
        """Open a new session for a row; the one before is released.

        Args:
            row: the dataset row as JSON, from the column of this name.
            columns: the dataset's other columns.

        Raises:
            UsageError: there is no such environment, or the client is closed.
        """
        self._release()
        try:
            opened = type(self)._gym.session(row, environment=type(self)._environment)
            self._session = self._held.enter_context(opened)
        except UsageError:
            raise
        except GymError as error:
            self._fail(error)
        return None

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._session is not None:
            try:
                answer = self._session.call(name, arguments)
                return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
            except GymError as error:
                self._fail(error)
        return '{"error": "the environment is not available"}'

    def _verified(self, completion: str | Sequence[Mapping[str, Any]]) -> float | None:
        """The reward of a completion; None if there is no verdict.

        Raises:
            UsageError: the environment trains several seats.
        """
        verdict = None
        if self._session is not None and not self._failure:
            said = completion if isinstance(completion, str) else response_items(completion)
            try:
                verdict = self._session.verify(said)
            except GymError as error:
                self._fail(error)
        self._release()
        return None if verdict is None else sole_reward(verdict, "use GymSpec.rollout_func, with seat")

    def _fail(self, error: GymError) -> None:
        """The rollout goes on without its environment, and has no reward: TRL cannot end it."""
        self._failure = str(error)
        logger().warning("a rollout has no reward", why=self._failure)

    def _release(self) -> None:
        self._session, self._failure = None, ""
        self._held.close()


def gym_reward(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    gym_reward: Sequence[float | None] | None = None,
    environments: Sequence[TrlEnvironment] | None = None,
    **columns: Any,
) -> list[float | None]:
    """TRL's reward function for both directions: None where a rollout has no verdict.

    Raises:
        UsageError: the rollouts were run neither by `GymSpec.rollout_func` nor in our environments.
    """
    if gym_reward is not None:
        return list(gym_reward)
    if environments is None:
        raise UsageError("give the trainer rollout_func=spec.rollout_func, or spec.environment_factory")
    return [one._verified(said) for one, said in zip(environments, completions, strict=True)]  # pyright: ignore


def environment_class(
    gym: SyncClient, environment: str | None, name: str, tools: Sequence[Mapping[str, Any]]
) -> type[TrlEnvironment]:
    """The class of an environment with these function tools.

    Args:
        environment: for rows without an ``agent_ref``.
        name: the environment's.

    Raises:
        UsageError: it has no tools, or one whose name is not a method's, or whose argument not a parameter's.
    """
    if not tools:
        raise UsageError(f"environment '{name}' has no tools; use rollout_func, or its verifier alone")
    for tool in tools:
        named = str(tool["name"])
        if not _is_name(named) or named.startswith("_") or named in RESERVED:
            raise UsageError(f"the tool '{named}' of '{name}' cannot be a method of TRL's environments")
        schema: Mapping[str, Any] = tool.get("parameters") or {}
        arguments: Iterable[str] = schema.get("properties") or ()
        for argument in arguments:
            if not _is_name(argument) or argument == "self":
                what = f"the argument '{argument}' of the tool '{named}' of '{name}'"
                raise UsageError(f"{what} cannot be a parameter of a Python method; use rollout_func")
    methods = {tool["name"]: _method(tool) for tool in tools}
    return type(
        f"{name}_environment", (TrlEnvironment,), {**methods, "_gym": gym, "_environment": environment}
    )


def _method(tool: Mapping[str, Any]) -> Callable[..., str]:
    """A method with the tool's signature, and a docstring from which TRL makes the schema for the model."""
    name = str(tool["name"])
    schema: Mapping[str, Any] = tool.get("parameters") or {}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required: set[str] = set(schema.get("required") or ())

    def call(self: TrlEnvironment, **arguments: Any) -> str:
        return self._call(name, arguments)  # pyright: ignore[reportPrivateUsage]

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    lines = [tool.get("description") or f"Calls {name}.", "", "Args:"]
    for argument, described in properties.items():
        kind = _kind(described)
        parameters.append(
            inspect.Parameter(
                argument,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if argument in required else described.get("default"),
                annotation=kind,
            )
        )
        lines.append(f"    {argument}: {_one_line(described)}")
    lines += ["", "Returns:", "    What the tool answers."]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = "\n".join(lines if properties else [*lines[:1], *lines[3:]])
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # pyright: ignore
    call.__annotations__ = {one.name: one.annotation for one in parameters[1:]} | {"return": str}
    return call


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def _kind(described: Mapping[str, Any]) -> Any:
    """The Python type of an argument: the only one of its schema's that is not null; else any.

    >>> _kind({"type": ["string", "null"]}), _kind({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    (<class 'str'>, <class 'int'>)
    """
    names = set[str]()
    for one in described.get("anyOf") or described.get("oneOf") or [described]:
        said = one.get("type") or ""
        names |= {said} if isinstance(said, str) else {*said}
    names.discard("null")
    (only,) = names if len(names) == 1 else ("",)
    return _KINDS.get(only, Any)


def _one_line(described: Mapping[str, Any]) -> str:
    return " ".join(str(described.get("description") or "An argument.").split())
