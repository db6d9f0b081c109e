"""The HTTP side: routes, access, sizes, and responses.

    GET  /global_config_dict_yaml                the head server: which agents there are, and where
    GET  /server_instances                       the head server: none that NeMo Gym started
    POST /run                                    a row in, its rollout's result row out
    POST /aggregate_metrics                      result rows in, metrics out
    POST /seed_session, /TOOL, /verify           a session, known by its cookie
    GET  /                                       alive
    GET  /health                                 alive, without the key: for the probes of a platform

The paths of ``POST`` may begin with an environment's name, as in ``/mcqa/verify``; else the row's
``agent_ref`` or the session's cookie decides, or there is only one. As the gateway, it refuses web pages,
foreign names of its host and bodies that are too large. With a key it answers only requests that have it, as
a bearer's token or as a password: NeMo Gym's clients send none, but take ``gym:KEY@HOST`` as a host's name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web
from anyio.abc import TaskStatus
from gym_data.web.listener import own_names
from gym_runtime import RolloutSettings
from gym_runtime.client import Client, StandingRun, background
from gym_runtime.environment import NOT_FOUND, SERVER_ERROR, VALIDATION, LoadedEnvironment
from gym_runtime.errors import UNREADABLE, GymError, RuntimeFault, TaskError
from gym_runtime.logs import logger
from gym_runtime.messages import Content

from gym_faces.dialects.dialect import Problem, Refusal
from gym_faces.gateway.admission import Admission, Place, check_caller, write
from gym_faces.gateway.gateway_server import LARGE_BYTES
from gym_faces.gym_server import agent_directory, answers
from gym_faces.gym_server.answers import Answer, of_error, refused
from gym_faces.gym_server.asked_runs import Runs
from gym_faces.gym_server.seeded_sessions import COOKIE, SeededSessions
from gym_faces.gym_server.served_environments import Asked, Served

CAPACITY = 65_536
"""Requests in progress. NeMo Gym's collection begins with all rollouts of a job at once."""
USER = "gym"
HEALTH = "/health"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Take = Callable[[web.Request, Place, bytes], Awaitable[web.StreamResponse]]


class GymServer:
    """Serves some environments of a running system.

    Args:
        client: is open as long as the server.
        environments: the served ones.
        settings: how the rollouts of ``/run`` are run; ``repeats`` is 1.
        key: which requests must send; empty for none.
        hosts: host names of the server, in addition to addresses and the machine's own names.
        admission: the limits on requests and their bytes.
    """

    def __init__(
        self,
        client: Client,
        environments: Iterable[LoadedEnvironment],
        settings: RolloutSettings | None = None,
        *,
        key: str = "",
        hosts: Sequence[str] = (),
        admission: Admission | None = None,
    ) -> None:
        self.served = Served(environments)
        self.admission = admission or Admission(CAPACITY)
        self.sessions = SeededSessions(client)
        self._client = client
        self._settings = settings
        self._key = key
        self._hosts = own_names(*hosts)
        self._runs: Runs | None = None
        self._standing: StandingRun | None = None

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[Runs]:
        """Accept requests until the context ends; then sessions and rollouts in progress end."""
        async with background() as tasks:
            await tasks.start(self._keep_run)
            self._runs = Runs(tasks)
            tasks.start_soon(self._runs.sweep)
            tasks.start_soon(self.sessions.sweep)
            yield self._runs

    async def _keep_run(self, *, task_status: TaskStatus[None]) -> None:
        """Keep a standing run open; start another one when it ends."""
        began = False
        while True:
            async with self._client.standing_run(self._settings) as self._standing:
                if not began:
                    task_status.started()
                    began = True
                await self._standing.ended()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._guard])
        get, post = app.router.add_get, app.router.add_post
        get(HEALTH, self._show_health)
        get("/global_config_dict_yaml", self._show_config)
        get("/server_instances", self._show_instances)
        takes: dict[str, Take] = {
            "run": self._take_run,
            "aggregate_metrics": self._aggregate,
            "seed_session": self._seed,
            "verify": self._verify,
            "{tool}": self._call_tool,  # last: the first route that fits answers
        }
        for prefix in ("", "/{environment}"):
            get(prefix or "/", self._show_alive)
            for path, take in takes.items():
                post(f"{prefix}/{path}", partial(self._admitted, take))
        app.router.add_route("*", "/{path:.*}", self._nothing_here)
        return app

    # -- who may ask ----------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse web pages and requests without the key; write every error in the same form."""
        try:
            check_caller(request, self._hosts)
            # Only GET: a POST there calls a tool of that name.
            open_to_all = (request.method, request.path) == ("GET", HEALTH)
            if self._key and not open_to_all and not hmac.compare_digest(_key(request), self._key.encode()):
                message = "this server needs its key: Authorization: Bearer KEY, or gym:KEY@HOST as its host"
                raise Refusal(Problem(kind="unauthorized", message=message))
            return await handler(request)
        except Refusal as error:
            return refused(error.problem).response()
        except GymError as error:
            return of_error(error).response()
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a handler boundary: one bad request ends no server
            logger().exception("the server raised")
            return of_error(RuntimeFault(f"{type(error).__name__}; see the server's log")).response()

    async def _admitted(self, take: Take, request: web.Request) -> web.StreamResponse:
        with self.admission.admitted() as place:
            return await take(request, place, await place.read(request))

    # -- the head server ------------------------------------------------------------------------------

    async def _show_config(self, request: web.Request) -> web.Response:
        # A client reaches the agents by the name by which it has reached this.
        url = request.url
        host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
        at = f"{USER}:{self._key}@{host}" if self._key else host
        body = agent_directory.head_answer(self.served.environments.values(), at, url.port or 80)
        return Answer(200, body).response()

    async def _show_instances(self, request: web.Request) -> web.Response:
        return Answer(200, b"[]").response()

    async def _show_health(self, request: web.Request) -> web.Response:
        return Answer(200, b'{"status":"ok"}').response()

    async def _show_alive(self, request: web.Request) -> web.Response:
        name = request.match_info.get("environment")
        if name is not None:
            self.served.get(name)
        return Answer(200, b'{"status":"ok"}').response()

    # -- an agent -------------------------------------------------------------------------------------

    async def _take_run(self, request: web.Request, place: Place, body: bytes) -> web.StreamResponse:
        asked = await self._read(request, body)
        given = request.headers.get("idempotency-key", "")
        key = _hash(body, asked.environment.name, given)
        assert self._runs is not None
        work = partial(self._rollout, asked)
        async with self._runs.asked(key, work, named=bool(given)) as run:
            assert run.answer is not None
            answer = run.answer.response()
            run.delivered = await write(request, answer)
            return answer

    async def _rollout(self, asked: Asked) -> Answer:
        assert self._standing is not None
        record = await self._standing.rollout(asked.row)
        if len(record.row) > LARGE_BYTES:
            return await anyio.to_thread.run_sync(answers.of_record, record, asked.fields)
        return answers.of_record(record, asked.fields)

    async def _aggregate(self, request: web.Request, place: Place, body: bytes) -> web.StreamResponse:
        return (await anyio.to_thread.run_sync(answers.of_batch, body)).response()

    # -- a resources server ---------------------------------------------------------------------------

    async def _seed(self, request: web.Request, place: Place, body: bytes) -> web.StreamResponse:
        asked = await self._read(request, body)
        answer = Answer(200, b"{}").response()
        if asked.environment.definition.shape != "verify":
            cookie, _ = await self.sessions.open(asked)
            answer.set_cookie(COOKIE, cookie, httponly=True, samesite="Strict")
        return answer

    async def _call_tool(self, request: web.Request, place: Place, body: bytes) -> web.StreamResponse:
        named = request.match_info.get("environment")
        if named is not None:
            self.served.get(named)
        seeded = self.sessions.get(request.cookies.get(COOKIE), named)
        try:
            arguments = body.decode() or "{}"
        except UnicodeDecodeError as error:
            raise TaskError(f"the arguments are not UTF-8: {error.reason} at byte {error.start}") from None
        output = await seeded.session.call(request.match_info["tool"], arguments)
        return _tool_answer(output)

    async def _verify(self, request: web.Request, place: Place, body: bytes) -> web.StreamResponse:
        asked = await self._read(request, body)
        response = asked.fields.get("response")
        if response is None:
            raise TaskError("the body has no 'response': POST /verify judges a row with its response")
        cookie = request.cookies.get(COOKIE)
        environment = asked.environment
        if environment.definition.shape == "verify" or not cookie:
            verdict = await self._client.verify(asked.row, bytes(response), environment=environment.name)
            return answers.of_verdict(verdict, asked.fields).response()
        seeded = self.sessions.get(cookie, environment.name)
        key = _hash(body)
        async with seeded.judging:
            if seeded.verdict is None:
                verdict = await seeded.session.verify(bytes(response))
                await self.sessions.end(seeded, key, answers.of_verdict(verdict, asked.fields))
        known, answer = seeded.verdict or (b"", Answer(503, b"{}"))
        if known != key:
            raise TaskError("the session has its verdict already, on another response: seed another session")
        return answer.response()

    async def _nothing_here(self, request: web.Request) -> web.Response:
        message = f"{request.method} {request.path[:200]}: unknown path; see gym-runtime gym-server --help"
        return refused(Problem(kind="not_found", message=message)).response()

    async def _read(self, request: web.Request, body: bytes) -> Asked:
        named = request.match_info.get("environment")
        if len(body) > LARGE_BYTES:  # in a thread: decoding it would block the event loop
            return await anyio.to_thread.run_sync(self.served.read, body, named)
        return self.served.read(body, named)


def _key(request: web.Request) -> bytes:
    """The key of a request: a bearer's token, or the password of basic authorization."""
    kind, _, said = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(said, validate=True).partition(b":")[2]
        except ValueError:  # not base64, or not ASCII
            return b""
    return said.strip().encode() if kind.lower() == "bearer" else b""


def _hash(body: bytes, *more: str) -> bytes:
    found = hashlib.blake2b(body, digest_size=16)
    for text in more:
        found.update(b"\0" + text.encode(errors="surrogateescape"))
    return found.digest()


def _tool_answer(output: Content) -> web.Response:
    """A tool's output, unchanged (parts as JSON); the status tells programs what the text tells a model."""
    if not isinstance(output, str):
        return web.Response(body=msgspec.json.encode(output), content_type="application/json")
    known = {NOT_FOUND: 404, SERVER_ERROR: 500}
    status = known.get(output, 422 if output.startswith(VALIDATION) else 200)
    kind = "application/json" if _is_json(output) else "text/plain"
    return web.Response(status=status, text=output, content_type=kind)


def _is_json(output: str) -> bool:
    try:
        msgspec.json.decode(output, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True
