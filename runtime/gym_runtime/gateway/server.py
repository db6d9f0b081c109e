"""The HTTP side of the gateway: whose call it is, admission, the deadline, streams, errors.

    POST /v1/responses, /v1/chat/completions, /v1/messages      ask the model
    GET  /v1/models, /v1/models/ID                              the pools that can be named as ``model``
    GET, DELETE /rollouts/ID/calls                              what was captured; forget it
    GET  /health

A rollout is named by the path, ``/rollouts/ID/v1/…`` (or NeMo Gym's ``/ng-rollout/ID/v1/…``), or by the
key, ``gym-ID``. A call without a name is answered and not captured. A client that leaves aborts its call.
Above the capacity a request is refused at once with 429; nothing is queued here.

A stream begins when the answer is there, so that errors have their status. If that takes longer than
`QUIET_S` it begins with comments instead, which keep the connection alive, and an error is its last event.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import uuid4

import anyio
import msgspec
from aiohttp import web

from gym_runtime import clock
from gym_runtime.errors import Busy, GymError, RuntimeFault, TaskError
from gym_runtime.gateway.capture import Captures
from gym_runtime.gateway.chat import CHAT
from gym_runtime.gateway.dialect import ApiDialect, Asked, Problem, encode
from gym_runtime.gateway.messages import MESSAGES
from gym_runtime.gateway.refusals import id_headers, problem_of, refusal
from gym_runtime.gateway.responses import RESPONSES
from gym_runtime.logs import logger
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.recordings.entry import make_entry

DIALECTS = (RESPONSES, CHAT, MESSAGES)
QUIET_S = 15.0
MAX_BODY_BYTES = 64 * 2**20
STOP_S = 5.0
_KEY = "gym-"
_ROLLOUT = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
_PREFIXES = (
    "",
    "/rollouts/{rollout}",
    "/ng-rollout/{rollout}",
    "/ng-rollout/{rollout}/training-token-capture",
)
_KEEP_ALIVE = b": at work\n\n"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A call on its way to a model.

    Attributes:
        rollout: empty if the client named none.
        model: as the client named it.
        key: unique, also the id of the captured call.
    """

    rollout: str
    model: str
    call: ModelCall
    key: str
    deadline_s: float


Ask = Callable[[Question], Awaitable[ModelAnswer]]


class Gateway:
    """Answers HTTP requests with what ``ask`` says.

    Args:
        ask: raises `GymError` where there is no answer; cancelled when its client leaves.
        models: names for ``GET /models``.
        captures: remembers the calls; None to remember nothing.
        capacity: calls in progress at most.
        timeout_s: how long one call may take.
        quiet_s: after how long a stream shows that it is alive.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        models: Sequence[str] = ("policy",),
        captures: Captures | None = None,
        capacity: int = 1024,
        timeout_s: float = 600.0,
        quiet_s: float = QUIET_S,
    ) -> None:
        self.in_use = 0
        self._ask = ask
        about = {"object": "model", "type": "model", "created": 0, "owned_by": "gym-runtime"}
        self._models = {name: {"id": name, **about} for name in models}
        self._captures = captures
        self._capacity = capacity
        self._timeout_s = timeout_s
        self._quiet_s = quiet_s

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for prefix in _PREFIXES:
            for dialect in DIALECTS:
                app.router.add_post(prefix + dialect.path, partial(self._serve, dialect))
            app.router.add_get(f"{prefix}/v1/models", self._list_models)
            app.router.add_get(prefix + "/v1/models/{model}", self._show_model)
        app.router.add_get("/rollouts/{rollout}/calls", self._show_calls)
        app.router.add_delete("/rollouts/{rollout}/calls", self._forget_calls)
        app.router.add_get("/health", self._show_health)
        app.router.add_route("*", "/{path:.*}", self._nothing_here)
        return app

    async def _serve(self, dialect: ApiDialect, request: web.Request) -> web.StreamResponse:
        key = uuid4().hex
        try:
            rollout = _rollout(request)
            asked = dialect.read(await request.read())
        except TaskError as error:
            return refusal(dialect, problem_of(error), key)
        except web.HTTPRequestEntityTooLarge:
            large = Problem(kind="too_large", message=f"the body is larger than {MAX_BODY_BYTES} bytes")
            return refusal(dialect, large, key)
        if self.in_use >= self._capacity:
            busy = Busy(f"the gateway is at its capacity of {self._capacity} calls")
            return refusal(dialect, problem_of(busy), key)
        question = Question(
            rollout=rollout,
            model=asked.model,
            call=self._continued(rollout, asked.call),
            key=key,
            deadline_s=clock.now() + self._timeout_s,
        )
        self.in_use += 1
        try:
            if asked.stream:
                return await self._stream(dialect, request, asked, question)
            body = await self._body(dialect, asked, question)
            if isinstance(body, Problem):
                return refusal(dialect, body, key)
            return web.Response(body=body, content_type="application/json", headers=id_headers(key))
        finally:
            self.in_use -= 1

    async def _body(self, dialect: ApiDialect, asked: Asked, question: Question) -> bytes | Problem:
        """The answer in its dialect, whole or as events; or why there is none."""
        started_s = clock.now()
        try:
            outcome = await self._outcome(question)
            self._capture(dialect, question, outcome, started_s)
            if isinstance(outcome, GymError):
                return problem_of(outcome)
            if asked.stream:
                return b"".join(dialect.events(outcome.response, asked))
            return dialect.answer(outcome.response, asked)
        except GymError as error:  # of the capture, or of an answer that the dialect cannot carry
            return problem_of(error)
        except Exception as error:  # noqa: BLE001 - a handler boundary: one bad call ends no gateway
            logger().exception("the gateway raised")
            return problem_of(RuntimeFault(f"{type(error).__name__}: {error}"))

    async def _outcome(self, question: Question) -> ModelAnswer | GymError:
        try:
            return await self._ask(question)
        except GymError as error:
            return error

    async def _stream(
        self, dialect: ApiDialect, request: web.Request, asked: Asked, question: Question
    ) -> web.StreamResponse:
        found: list[bytes | Problem] = []
        stream: web.StreamResponse | None = None
        done = anyio.Event()

        async def work() -> None:
            found.append(await self._body(dialect, asked, question))
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            while not done.is_set():
                with anyio.move_on_after(self._quiet_s):
                    await done.wait()
                if not done.is_set():
                    stream = stream or await _begun(request, question.key)
                    with suppress(ConnectionError):  # then the handler is about to be cancelled
                        await stream.write(_KEEP_ALIVE)
        body = found[0]
        if isinstance(body, Problem):
            if stream is None:
                return refusal(dialect, body, question.key)
            body = dialect.error_event(body)
        stream = stream or await _begun(request, question.key)
        await stream.write(body)
        await stream.write_eof()
        return stream

    def _capture(
        self, dialect: ApiDialect, question: Question, outcome: ModelAnswer | GymError, started_s: float
    ) -> None:
        if self._captures is None or not question.rollout:
            return
        failed = isinstance(outcome, GymError)
        entry = make_entry(
            question.call,
            outcome.fault() if failed else outcome,
            model_call_id=question.key,
            created_at=started_s,
            rollout_id=question.rollout,
            api=dialect.name,
            duration_s=round(clock.now() - started_s, 4),
        )
        self._captures.add(entry, question.call.input, None if failed else outcome.tokens)

    def _continued(self, rollout: str, call: ModelCall) -> ModelCall:
        if self._captures is None or not rollout:
            return call
        return self._captures.continued(rollout, call)

    async def _list_models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": list(self._models.values()), "has_more": False})

    async def _show_model(self, request: web.Request) -> web.Response:
        if (name := request.match_info["model"]) in self._models:
            return _json(self._models[name])
        said = f"there is no model '{name}' here, only {', '.join(self._models)}"
        return refusal(RESPONSES, Problem(kind="not_found", message=said))

    async def _show_calls(self, request: web.Request) -> web.Response:
        rollout = request.match_info["rollout"]
        calls = self._captures.calls(rollout) if self._captures is not None else None
        if calls is None:
            said = f"no call of rollout '{rollout}' is known: none was made, or it was forgotten"
            return refusal(RESPONSES, Problem(kind="not_found", message=said))
        body = b'{"rollout_id":%b,"calls":[%b]}' % (encode(rollout), b",".join(calls))
        return web.Response(body=body, content_type="application/json")

    async def _forget_calls(self, request: web.Request) -> web.Response:
        forgotten = self._captures.forget(request.match_info["rollout"]) if self._captures is not None else 0
        return _json({"forgotten": forgotten})

    async def _show_health(self, request: web.Request) -> web.Response:
        return _json({"in_use": self.in_use, "capacity": self._capacity})

    async def _nothing_here(self, request: web.Request) -> web.Response:
        dialect = MESSAGES if MESSAGES.path in request.path else RESPONSES
        said = "there is no such address here; base URLs end with /v1, Anthropic's before it"
        return refusal(dialect, Problem(kind="not_found", message=f"{request.method} {request.path}: {said}"))


@asynccontextmanager
async def serving(gateway: Gateway, *, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
    """Serve until the context ends, which gives calls in progress `STOP_S`; yields ``http://HOST:PORT``.

    Raises:
        OSError: the address is taken or not ours.
    """
    runner = web.AppRunner(gateway.app(), handler_cancellation=True, access_log=None, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=4096)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def _rollout(request: web.Request) -> str:
    """Whose call it is: what the path says, else the key; empty if neither does.

    Raises:
        TaskError: that is no rollout's id.
    """
    rollout = request.match_info.get("rollout", "")
    if not rollout:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        rollout = key.removeprefix("Bearer ").strip()
        if not rollout.startswith(_KEY):
            return ""
        rollout = rollout.removeprefix(_KEY)
    if not _ROLLOUT.fullmatch(rollout):
        raise TaskError("a rollout's id has 1 to 200 letters, digits and . _ : @ -")
    return rollout


async def _begun(request: web.Request, key: str) -> web.StreamResponse:
    headers = {**id_headers(key), "content-type": "text/event-stream", "cache-control": "no-cache"}
    stream = web.StreamResponse(headers=headers)
    await stream.prepare(request)
    return stream


def _json(document: object) -> web.Response:
    return web.Response(body=encode(document), content_type="application/json")
