"""The HTTP side of the gateway: the rollout of a call, admission, the deadline, streams, errors.

    POST /v1/responses, /v1/chat/completions, /v1/messages      ask the model
    POST /v1/models/ID:generateContent, …:streamGenerateContent (or /v1beta/…)
    GET  /v1/models, /v1/models/ID                              the pools that can be named as ``model``
    POST /rollouts/ID                                           for the launcher: make a rollout's name
    GET  /rollouts/NAME/calls                                   the captured calls
    DELETE /rollouts/NAME/calls                                 for the launcher: forget them
    POST /v1/models/ID:countTokens, /v1/messages/count_tokens   how many tokens a conversation has
    POST /mcp                                                   a rollout's tools over MCP, in `black_box`
    GET  /health

A request names its rollout in the path, ``/rollouts/NAME/v1/…`` (or NeMo Gym's ``/ng-rollout/NAME/v1/…``),
or in the key, ``gym-NAME``. The name is the rollout's id with a tag that only the launcher can make
(`names`), so that a client of one rollout can neither read nor forge another's calls. If the key has the
name, or is the gateway's secret (the launcher's), the path may have the id alone. A call without a name is
answered but not captured, or refused if ``anonymous`` is off. When a client disconnects, its call is
aborted. Above the capacity a request is refused at once with 429; the gateway has no queue.

A stream begins when the answer has arrived, so that an error can have its HTTP status. If that takes longer
than `QUIET_S`, the stream begins with comments, which keep the connection alive, and an error is its last
event.

Where a conversation is longer than the engine's context, an adapter's answer stops short, and the client gets
its API's own error instead: by this, programs notice that they have to shorten the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

import anyio
import anyio.to_thread
from aiohttp import web
from gym_data.web.listener import own_names
from gym_runtime import clock
from gym_runtime.adapters import ModelAnswer, ModelCall
from gym_runtime.errors import UNREADABLE, GymError, ModelRefused, RuntimeFault, TaskError
from gym_runtime.logs import logger
from gym_runtime.timing import WRITE_S
from msgspec.structs import replace

from gym_faces.dialects.chat_answer import CHAT
from gym_faces.dialects.dialect import ApiDialect, Asked, Count, Problem, Refusal
from gym_faces.dialects.gemini_api import GEMINI, GEMINI_COUNT, GEMINI_STREAM
from gym_faces.dialects.messages_api import MESSAGES, MESSAGES_COUNT
from gym_faces.dialects.pieces import encode
from gym_faces.dialects.responses_api import RESPONSES, is_overflow
from gym_faces.gateway.admission import Admission, check_caller, write, written
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.http_errors import Overflow, id_headers, problem_of, refusal
from gym_faces.gateway.mcp_api import MAX_BYTES, ToolServer
from gym_faces.gateway.model_pools import Ask, Question
from gym_faces.gateway.rollout_names import KEY, RolloutNames
from gym_faces.recordings.calls_file import make_entry

QUIET_S = 15.0
"""How often a stream that waits for the engine sends `ApiDialect.keep_alive`."""

DIALECTS = (RESPONSES, CHAT, MESSAGES, GEMINI, GEMINI_STREAM)
COUNTS = ((MESSAGES, MESSAGES_COUNT), (GEMINI, GEMINI_COUNT))
CAPACITY = 1024
LARGE_BYTES, LARGE_OBJECTS = 2**18, 10_000
"""Of a body that is read in a thread."""
_PREFIXES = (
    "",
    "/rollouts/{rollout}",
    "/ng-rollout/{rollout}",
    "/ng-rollout/{rollout}/training-token-capture",
)
_KEYS = ("x-api-key", "x-goog-api-key", "authorization")
# The scheme's case does not matter.
_BEARER = re.compile(r"^bearer\s+", re.IGNORECASE)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """Answers HTTP requests with the answers of ``ask``.

    Args:
        ask: asks a model; raises `GymError`; cancelled when the client disconnects.
        count: as ``ask``, for calls that only count; None where tokens are not counted.
        models: names for ``GET /models``.
        captures: captures the calls; None to capture none.
        names: of the rollouts; by default with a random secret.
        anonymous: whether calls that name no rollout are answered.
        admission: the limits on calls and their bytes.
        tools: of a gateway that belongs to one rollout, and is not ``anonymous``.
        hosts: host names of the gateway, in addition to addresses and the machine's own names.
        timeout_s: how long one call may take.
        quiet_s: how long a stream may be silent before a comment is sent.
        write_s: how long a client may take to read an answer.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        models: Sequence[str] = ("policy",),
        captures: Captures | None = None,
        names: RolloutNames | None = None,
        anonymous: bool = True,
        admission: Admission | None = None,
        tools: ToolServer | None = None,
        count: Ask | None = None,
        hosts: Sequence[str] = (),
        timeout_s: float = 600.0,
        quiet_s: float = QUIET_S,
        write_s: float = WRITE_S,
    ) -> None:
        self.names = names or RolloutNames()
        self.admission = admission or Admission(CAPACITY)
        self._ask = ask
        # The fields that OpenAI's and Anthropic's clients read.
        about = {"object": "model", "type": "model", "created": 0, "owned_by": "gym-runtime"}
        about["created_at"] = "1970-01-01T00:00:00Z"
        self._models = {name: {"id": name, "display_name": name, **about} for name in models}
        self._captures = captures
        self._anonymous = anonymous
        self._tools = tools
        self._count = count
        self._hosts = own_names(*hosts)
        self._timeout_s = timeout_s
        self._quiet_s = quiet_s
        self._write_s = write_s

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._guard])
        for prefix in _PREFIXES:
            for dialect in DIALECTS:
                app.router.add_post(prefix + dialect.path, partial(self._serve, dialect))
            for dialect, count in COUNTS:
                app.router.add_post(prefix + count.path, partial(self._serve_count, dialect, count))
            app.router.add_get(f"{prefix}/v1/models", self._list_models)
            if self._tools is not None:
                app.router.add_route("*", f"{prefix}/mcp", partial(self._serve_tools, self._tools))
            app.router.add_get(prefix + "/v1/models/{model}", self._show_model)
        app.router.add_post("/rollouts/{rollout}", self._name_rollout)
        app.router.add_get("/rollouts/{rollout}/calls", self._show_calls)
        app.router.add_delete("/rollouts/{rollout}/calls", self._forget_calls)
        app.router.add_get("/health", self._show_health)
        # Last: the first route that fits answers.
        app.router.add_route("*", "/{path:.*}", self._nothing_here)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse web pages; write every refusal in the dialect of the path."""
        try:
            check_caller(request, self._hosts)
            return await handler(request)
        except Refusal as error:
            return refusal(_dialect(request), error.problem)
        except TaskError as error:
            return refusal(_dialect(request), problem_of(error))
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a handler boundary: one bad request ends no gateway
            return refusal(_dialect(request), problem_of(_bug(error)))

    async def _serve_tools(self, tools: ToolServer, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":  # there are no streams to open and no sessions to end
            raise web.HTTPMethodNotAllowed(request.method, ["POST"])
        if not self.names.whose(*_said(request)):
            raise _nameless()
        with self.admission.admitted() as place:
            body = await place.read(request, MAX_BYTES)
            async with tools.answering(request.headers, body) as (status, said, events):
                kind = "text/event-stream" if events else "application/json" if said else None
                answer = web.Response(status=status, body=said, content_type=kind)
                if not await write(request, answer, self._write_s):
                    raise ConnectionResetError("the client does not read its answer")
        return answer

    async def _serve(self, dialect: ApiDialect, request: web.Request) -> web.StreamResponse:
        key = uuid4().hex
        try:
            rollout = self.names.whose(*_said(request))
            if not rollout and not self._anonymous:
                raise _nameless()
            with self.admission.admitted() as place:
                body = await place.read(request)
                if _is_large(body):  # in a thread: decoding it would block the event loop
                    asked = await anyio.to_thread.run_sync(dialect.read, body)
                else:
                    asked = dialect.read(body)
                # Gemini's clients name it in the path.
                asked = replace(asked, model=request.match_info.get("model", asked.model))
                return await self._answered(dialect, request, rollout, asked, key)
        except TaskError as error:
            return refusal(dialect, problem_of(error), key)
        except Refusal as error:
            return refusal(dialect, error.problem, key)

    async def _serve_count(
        self, dialect: ApiDialect, count: Count, request: web.Request
    ) -> web.StreamResponse:
        rollout = self.names.whose(*_said(request))
        if not rollout and not self._anonymous:
            raise _nameless()
        with self.admission.admitted() as place:
            body = await place.read(request)
            if self._count is None:
                why = "nothing is counted here; an answer's usage says how many"
                return refusal(dialect, Problem(kind=count.lacking, message=why))
            reading = anyio.to_thread.run_sync(count.read, body) if _is_large(body) else None
            asked = await reading if reading else count.read(body)
            question = Question(
                rollout=rollout,
                model=request.match_info.get("model", asked.model),
                call=asked.call,
                key=uuid4().hex,
                deadline_s=clock.monotonic() + self._timeout_s,
            )
            try:
                answer = await self._count(question)
                return web.Response(body=count.write(answer.response), content_type="application/json")
            except ModelRefused as error:
                return refusal(dialect, Problem(kind=count.lacking, message=error.message))
            except GymError as error:
                return refusal(dialect, problem_of(error))

    async def _answered(
        self, dialect: ApiDialect, request: web.Request, rollout: str, asked: Asked, key: str
    ) -> web.StreamResponse:
        question = Question(
            rollout=rollout,
            model=asked.model,
            call=await self._continued(rollout, asked.call),
            key=key,
            deadline_s=clock.monotonic() + self._timeout_s,
        )
        if asked.stream:
            return await self._stream(dialect, request, asked, question)
        body = await self._body(dialect, asked, question)
        if isinstance(body, Problem):
            return refusal(dialect, body, key)
        whole = web.Response(body=body, content_type="application/json", headers=id_headers(key))
        await write(request, whole, self._write_s)  # here, because the call still has its place
        return whole

    async def _body(self, dialect: ApiDialect, asked: Asked, question: Question) -> bytes | Problem:
        """The answer in its dialect, whole or as events; or the problem."""
        started_s = clock.monotonic()
        try:
            try:
                outcome = await self._ask(question)
                if is_overflow(outcome.response):
                    outcome = Overflow()
            except GymError as error:
                outcome = error
            await self._capture(dialect, question, outcome, started_s)
            if isinstance(outcome, GymError):
                return problem_of(outcome)
            if asked.stream:
                return b"".join(dialect.events(outcome.response, asked))
            return dialect.answer(outcome.response, asked)
        except GymError as error:  # of the capture, or of an answer that the dialect cannot carry
            return problem_of(error)
        except UNREADABLE as error:  # an item of the engine's, which a worker passes on unread
            return Problem(kind="internal", message=f"the engine's answer cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - a handler boundary: one bad call ends no gateway
            return problem_of(_bug(error))

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
                    # From here on the status is sent, and an error can only be an event.
                    stream = stream or await _begun(request, question.key)
                    # A lost connection: the handler is about to be cancelled.
                    with written(request, self._write_s), suppress(ConnectionError):
                        await stream.write(dialect.keep_alive)
        body = found[0]
        if isinstance(body, Problem):
            if stream is None and body.kind not in dialect.in_streams:
                return refusal(dialect, body, question.key)
            body = dialect.error_event(body)
        stream = stream or await _begun(request, question.key)
        with written(request, self._write_s):
            await stream.write(body)
            await stream.write_eof()
        return stream

    async def _capture(
        self, dialect: ApiDialect, question: Question, outcome: ModelAnswer | GymError, started_s: float
    ) -> None:
        if self._captures is None or not question.rollout:
            return
        failed = isinstance(outcome, GymError)
        took_s = clock.monotonic() - started_s
        entry = make_entry(
            question.call,
            outcome.fault() if failed else outcome,
            model_call_id=question.key,
            created_at=clock.now() - took_s,
            rollout_id=question.rollout,
            api=dialect.name,
            duration_s=round(took_s, 4),
        )
        await self._captures.add(entry, question.call.input, None if failed else outcome.tokens)

    async def _continued(self, rollout: str, call: ModelCall) -> ModelCall:
        if self._captures is None or not rollout:
            return call
        return await self._captures.continued(rollout, call)

    # -- captured calls, and names for the launcher -----------------------------------------------------

    async def _name_rollout(self, request: web.Request) -> web.Response:
        self.names.require_launcher(_said(request)[1])
        rollout = request.match_info["rollout"]
        made = self.names.of(rollout)
        return _json({"rollout_id": rollout, "name": made, "key": KEY + made})

    async def _show_calls(self, request: web.Request) -> web.Response:
        rollout = self.names.whose(*_said(request))
        calls = self._captures.calls(rollout) if self._captures is not None else None
        if calls is None:
            why = f"no call of rollout '{rollout}' is known: it made none, or they were forgotten"
            return refusal(RESPONSES, Problem(kind="not_found", message=why))
        # Joined, not encoded again: the calls are JSON already, and may be hundreds of megabytes.
        with self.admission.admitted() as place:
            place.hold(sum(map(len, calls)))
            body = b'{"rollout_id":%b,"calls":[%b]}' % (encode(rollout), b",".join(calls))
            whole = web.Response(body=body, content_type="application/json")
            await write(request, whole, self._write_s)
        return whole

    async def _forget_calls(self, request: web.Request) -> web.Response:
        self.names.require_launcher(_said(request)[1])
        rollout = self.names.whose(*_said(request))
        return _json({"forgotten": self._captures.forget(rollout) if self._captures is not None else 0})

    # -- models, health ---------------------------------------------------------------------------------

    async def _list_models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": list(self._models.values()), "has_more": False})

    async def _show_model(self, request: web.Request) -> web.Response:
        if (name := request.match_info["model"]) in self._models:
            return _json(self._models[name])
        message = f"there is no model '{name}'; use one of {', '.join(self._models)}"
        return refusal(_dialect(request), Problem(kind="not_found", message=message))

    async def _show_health(self, request: web.Request) -> web.Response:
        return _json({"in_use": self.admission.in_use, "capacity": self.admission.capacity})

    async def _nothing_here(self, request: web.Request) -> web.Response:
        dialect = _dialect(request)
        if request.method != "POST" and request.path.endswith(dialect.end):
            message = f"{request.method} {request.path}: it is asked by POST"
            return refusal(dialect, Problem(kind="method", message=message))
        hint = "unknown path; a base URL ends with /v1, or without it for Anthropic's and Google's clients"
        if request.path.count("/v1") == 1:  # the base URL is right
            there = ", ".join(one.path for one in (RESPONSES, CHAT, MESSAGES))
            hint = f"this is not served here; there are {there}, Gemini's generateContent and /v1/models"
        problem = Problem(kind="not_found", message=f"{request.method} {request.path}: {hint}")
        return refusal(dialect, problem)


def _is_large(body: bytes) -> bool:
    if len(body) > LARGE_BYTES:
        return True
    return len(body) > LARGE_OBJECTS and body.count(b"{") + body.count(b"[") > LARGE_OBJECTS


def _nameless() -> Refusal:
    message = "this gateway answers only calls that name a rollout in their path or their key"
    return Refusal(Problem(kind="unauthorized", message=message))


def _said(request: web.Request) -> tuple[str, str]:
    """The rollout's name in a request's path, and the request's key."""
    # Of Anthropic's clients, Google's, and OpenAI's. Some send two, of which one names the rollout.
    said = [_BEARER.sub("", request.headers.get(name, "")).strip() for name in _KEYS]
    key = next((one for one in said if one.startswith(KEY)), "") or next(filter(None, said), "")
    return request.match_info.get("rollout", ""), key


def _json(document: object) -> web.Response:
    return web.Response(body=encode(document), content_type="application/json")


def _bug(error: Exception) -> RuntimeFault:
    """The error that a client gets for a bug; the log has the details."""
    logger().exception("the gateway raised")
    return RuntimeFault(f"{type(error).__name__}; see the gateway's log")


def _dialect(request: web.Request) -> ApiDialect:
    if request.path.endswith(GEMINI_COUNT.end):
        return GEMINI
    # Of addresses that several APIs have, such as that of the models.
    usual = MESSAGES if "anthropic-version" in request.headers else RESPONSES
    if "x-goog-api-key" in request.headers:
        usual = GEMINI
    # `in`, because the path may begin with a rollout's prefix.
    return next((dialect for dialect in DIALECTS if dialect.end in request.path), usual)


async def _begun(request: web.Request, key: str) -> web.StreamResponse:
    headers = {**id_headers(key), "content-type": "text/event-stream", "cache-control": "no-cache"}
    stream = web.StreamResponse(headers=headers)
    await stream.prepare(request)
    return stream
