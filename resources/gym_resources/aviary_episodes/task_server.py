"""The protocol of an Aviary TaskDatasetServer: its calls, and what they answer.

The operator names the server by `AVIARY_SERVER_URL` and its key by `AVIARY_SERVER_API_KEY`, which is sent as
``X-API-Key``. Calls change what the server holds, so none is repeated. Whatever the server does wrong is a
failure of the rollout and no text for the model.
Source: the class TaskDatasetServer of fhaviary 0.37 (github.com/Future-House/aviary, Apache-2.0).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from gym_data.web import Fetcher, Service, WebAnswer, WebRequest
from gym_runtime import ServiceUnavailable, SessionLost, TaskError
from gym_runtime.errors import UNREADABLE

TIMEOUT_S = 300.0
ANSWER_BYTES = 8_000_000
DETAIL_CHARACTERS = 300
UNUSED_S = 3600.0
"""Environments that were not used for so long are closed when a worker begins: they are left from a crash."""

A = TypeVar("A")
_swept: set[str] = set()
_encode = msgspec.json.Encoder().encode


def _signed(request: WebRequest, key: str) -> WebRequest:
    return msgspec.structs.replace(request, headers={"X-API-Key": key}) if key else request


SERVER = Service(
    name="aviary",
    url_variable="AVIARY_SERVER_URL",
    key_variable="AVIARY_SERVER_API_KEY",
    key_optional=True,
    sign=_signed,
    timeout_s=TIMEOUT_S,
    size_bytes=ANSWER_BYTES,
)


class _Link(msgspec.Struct):
    url: str


class Part(msgspec.Struct):
    """A part of a message: a text or an image."""

    type: str
    text: str = ""
    image_url: _Link | str | None = None

    @property
    def link(self) -> str:
        """The image's URL; empty for a part of another type."""
        return self.image_url.url if isinstance(self.image_url, _Link) else self.image_url or ""


class ServerMessage(msgspec.Struct):
    """A message of an environment: what the model reads next, or a tool's answer to one call."""

    role: str = "user"
    content: str | list[Part] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """Its text parts, one below the other."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def images(self) -> list[str]:
        """Its images as ``data:`` URLs; others are left out, since an engine would have to fetch them."""
        parts = self.content if isinstance(self.content, list) else []
        return [part.link for part in parts if part.link.startswith("data:image/")]


class ServerTool(msgspec.Struct):
    """A tool that an environment offers."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class _Offered(msgspec.Struct):
    function: ServerTool


class Stepped(msgspec.Struct, array_like=True):
    """What a step led to."""

    messages: list[ServerMessage]
    reward: float
    terminated: bool
    truncated: bool


class _Reset(msgspec.Struct, array_like=True):
    messages: list[ServerMessage]
    tools: list[_Offered]


class _Started(msgspec.Struct):
    env_id: str


class _Closed(msgspec.Struct):
    closed_env_ids: list[str]


class _Info(msgspec.Struct):
    dataset_size: int | None = None


class _Refused(msgspec.Struct):
    detail: Any = ""


async def start(task: dict[str, Any]) -> str:
    """Make an environment, and return its id. The first call of a process closes forgotten environments.

    Args:
        task: ``task_idx``, or ``task_kwargs``.

    Raises:
        TaskError: the server has no such task.
        ServiceUnavailable: it is not configured, not there, or fails.
    """
    if SERVER.base_url not in _swept:
        await _asked("close_old_envs", {"last_used": UNUSED_S}, _Closed)
        _swept.add(SERVER.base_url)
    answer = await _sent("start", task)
    if answer.status == 500 and (index := task.get("task_idx")) is not None:
        size = _read("info", await _sent("info"), _Info).dataset_size
        if size is not None and index >= size:
            raise TaskError(f"task_idx is {index}; the Aviary server has {size} tasks, from 0 on")
    return _read("start", answer, _Started).env_id


async def reset(env_id: str) -> tuple[list[ServerMessage], list[ServerTool]]:
    """The first messages, and the tools.

    Raises:
        SessionLost: the server has closed the environment.
        ServiceUnavailable: it is not there, or fails.
    """
    found = await _asked("reset", {"env_id": env_id}, _Reset)
    return found.messages, [offered.function for offered in found.tools]


async def step(env_id: str, action: dict[str, Any]) -> Stepped:
    """Take a step with the model's answer as a message.

    Raises:
        SessionLost: the server has closed the environment.
        ServiceUnavailable: it is not there, or fails.
    """
    return await _asked("step", {"env_id": env_id, "action": action}, Stepped)


async def close(env_id: str) -> None:
    """Close an environment; one that is not there any more is closed.

    Raises:
        ServiceUnavailable: the server is not there, or fails.
    """
    answer = await _sent("close", {"env_id": env_id})
    if answer.status != 404:
        _read("close", answer, _Started)


async def _asked(call: str, body: dict[str, Any], kind: type[A]) -> A:
    return _read(call, await _sent(call, body), kind)


async def _sent(call: str, body: dict[str, Any] | None = None) -> WebAnswer:
    request = WebRequest(url=f"{SERVER.base_url}/{call}", body=_encode(body) if body is not None else b"")
    return await Fetcher().send(SERVER, request)


def _read(call: str, answer: WebAnswer, kind: type[A]) -> A:
    where = f"the Aviary server at {SERVER.base_url}"
    if answer.status == 404 and call in ("reset", "step"):
        raise SessionLost(f"{where} has closed the environment", stage="resource")
    if answer.status in (401, 403):
        problem = f"refuses the key in {SERVER.key_variable} (HTTP {answer.status})"
        raise ServiceUnavailable(f"{where} {problem}", stage="resource")
    if answer.status != 200:
        raise ServiceUnavailable(
            f"{where} answered /{call} with HTTP {answer.status}: {_detail(answer.body)}",
            stage="resource",
            retryable=answer.status in (429, 502, 503, 504),
        )
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except UNREADABLE as error:
        raise ServiceUnavailable(
            f"{where} answered /{call} with something else than the protocol says: {error}", stage="resource"
        ) from error


def _detail(body: bytes) -> str:
    """The end of what a server says of a failure: of a traceback, the exception."""
    try:
        said = msgspec.json.decode(body, type=_Refused).detail
    except UNREADABLE:
        said = body[-DETAIL_CHARACTERS:].decode(errors="replace")
    return " ".join(str(said)[-DETAIL_CHARACTERS:].split())
