"""Checks before the first call: does the engine answer, is the key right, does it have the model, which API.

One or two cheap requests that generate nothing. A server without ``GET /models`` passes.
"""

from __future__ import annotations

import difflib
import re

import msgspec
from gym_faces.dialects import responses_api
from gym_runtime import UsageError, clock
from gym_runtime.errors import UNREADABLE, DeadlineExceeded, ModelError, ModelUnavailable, NotThereYet

from gym_models.wire.engine import NO_SUCH_API, Engine
from gym_models.wire.failures import failure

LIMIT_S = 5.0
_SHOWN = 5
_ABOUT_THE_MODEL = re.compile(rb"\bmodel\b", re.IGNORECASE)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_decode_models = msgspec.json.Decoder(_Models).decode


async def check(engine: Engine, *, check_model: bool = True) -> None:
    """Check that calls can succeed, and determine the engine's model and API as far as possible.

    Without a name the engine's only model is used.

    Raises:
        NotThereYet: nothing answers there.
        UsageError: the key is refused, or the model is missing; within 5 s.
    """
    deadline_s = clock.monotonic() + LIMIT_S
    if engine.endpoint.lists:
        await _ask_models(engine, deadline_s, check_model)
    if not engine.model:
        raise UsageError(f"name the model for {engine.endpoint.url}, as in --model openai/NAME")
    if engine.api == "auto":
        await _find_api(engine, deadline_s)


async def _ask_models(engine: Engine, deadline_s: float, check_model: bool) -> None:
    url = engine.endpoint.url
    try:
        answer = await engine.pool.get("/models", deadline_s=deadline_s)
    except DeadlineExceeded as error:
        raise NotThereYet(f"{url} took a connection but did not answer within {LIMIT_S:.0f} s") from error
    except ModelUnavailable as error:
        raise NotThereYet(
            f"{error.message}: start the engine, or name another with --model-url (of a role: --role-url)"
        ) from error
    except ModelError as error:
        raise UsageError(error.message) from error
    if answer.status in (401, 403) or 300 <= answer.status < 400:
        raise UsageError(failure(answer, engine.endpoint).message)
    if answer.status == 200 and answer.body.lstrip().startswith(b"<"):
        raise UsageError(
            f"{url} answered with a web page where an engine lists its models; "
            "check the base URL of its API, which usually ends in /v1"
        )
    if check_model and answer.status == 200:
        engine.model = _served(engine.model, answer.body, url)


def _served(name: str, body: bytes, url: str) -> str:
    try:
        names = [model.id for model in _decode_models(body).data]
    except UNREADABLE:
        return name
    if not name and len(names) == 1:
        return names[0]
    # Some engines list a model by its path.
    if not names or name in names or any(known.endswith(f"/{name}") for known in names if name):
        return name
    if not name:
        raise UsageError(f"{url} serves {len(names)} models; name one of them: {_list(names)}")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"it serves {_list(names)}"
    raise UsageError(f"{url} has no model '{name}'; {hint}")


def _list(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


async def _find_api(engine: Engine, deadline_s: float) -> None:
    """Post a request without input: an engine with the Responses API refuses it, others answer 404."""
    try:
        answer = await engine.pool.post(
            responses_api.PATH, msgspec.json.encode({"model": engine.model}), deadline_s=deadline_s
        )
    except (ModelError, DeadlineExceeded):
        # What is wrong shows at the first call, where it can be tried again.
        return
    # A 404 may also mean that the model is unknown; then it says nothing of the API.
    if answer.status in NO_SUCH_API and not _ABOUT_THE_MODEL.search(answer.body):
        engine.api = "chat"
    elif answer.status in (400, 422):
        engine.api = "responses"
