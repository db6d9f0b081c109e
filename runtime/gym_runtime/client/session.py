"""Sessions and verdicts for callers other than agents: a trainer with an engine, an HTTP server.

The session lives on a resource worker, as a rollout's does, and is rebuilt on another one if that worker
ends. Nothing is journaled or committed: what the caller does with the answers is the caller's affair.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.client.row_sources import AnyRow, Declared, line
from gym_runtime.client.runs import Runs
from gym_runtime.environment import catalogue
from gym_runtime.environment.declared import from_declaration as loaded
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replaying import executed, turns
from gym_runtime.environment.roles import JudgedVerdict
from gym_runtime.environment.verdict import Reply, Verdict, make_response
from gym_runtime.errors import UNREADABLE, GymError, ResourceError, SessionLost, TaskError
from gym_runtime.files.rows import Numbering, expand
from gym_runtime.messages import calls
from gym_runtime.messages.calls import decode_declaration
from gym_runtime.messages.images import Content
from gym_runtime.messages.responses import NULL, UNFINISHED, encode_item
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import new_run_id
from gym_runtime.messages.transcripts import encoded
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.remote_model import Envelope
from gym_runtime.rollout.remote_session import RemoteSession
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import all_workers
from gym_runtime.rpc.retry_budget import RetryBudget

CLIENT_CLOSE_S = 2.0
"""How long a client that leaves may take to close a session."""
DECLARED_S = 10.0
"""How long a resource worker may take to say what its environment declares."""

Said = str | bytes | Raw | Mapping[str, Any] | Sequence[Mapping[str, Any] | str]
"""What a model said: the text of a message; output items, where a string is a message; or a whole response of
the Responses API, as a mapping or as JSON bytes."""


class _Ending(msgspec.Struct, frozen=True):
    status: str | None = None
    error: Raw = NULL


_encode = msgspec.json.Encoder().encode
_decode_ending = msgspec.json.Decoder(_Ending).decode
_decode_verdict = msgspec.json.Decoder(JudgedVerdict).decode


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step of a step-by-step environment.

    Attributes:
        items: Responses API items to append to the conversation.
        reward: of this step.
        terminated: the episode ended by its own rules.
        truncated: the episode was cut off by a limit.
    """

    items: list[dict[str, Any]] = []
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


class EnvironmentSession:
    """One session of an environment, driven by the caller. Opened by `Client.session`.

    Calls that the environment answers with an error for the model (wrong arguments, an unknown tool) return
    that text. A `GymError` is a failure of the environment or of the system, and never a reward.

    Attributes:
        environment: the environment's name.
        tools: the function tools that a model gets, as the Responses API has them.
        observation: of a step-by-step environment: the items that it begins with.
    """

    def __init__(self, task: RolloutSpec, environment: LoadedEnvironment, router: Router) -> None:
        self.environment = task.environment
        self.tools = [tool.definition() for tool in environment.resource.tools.values()]
        self.observation: list[dict[str, Any]] = []
        self._shape = environment.definition.shape
        self._task = task
        self._router = router
        journal = Journal(None, "")
        # Named like the session of a rollout's first attempt; there are no further attempts.
        journal.session = f"{task.rollout_id}.1.0"
        envelope = Envelope(task, 1, task.timeout_s)
        self._session = RemoteSession(task, router, RetryBudget(), journal, envelope, task.row)
        self._closed = False
        self._asking: dict[anyio.CancelScope, None] = {}

    async def open(self) -> None:
        """Open it now; otherwise its first call does.

        Raises:
            TaskError: the row does not fit the environment.
            GymError: the environment could not prepare its state, or no worker serves it.
        """
        answer = calls.decode_step_answer(await self._ask(calls.OpenSession()))
        self.observation = _plain(answer.items)
        self.tools += _plain(answer.tools)

    async def call(self, name: str, arguments: str | Mapping[str, Any] = "{}") -> Content:
        """Call a tool; the text that a model would read, or content parts where the tool returns images.

        Args:
            arguments: a JSON object as text, as a model writes it, or a mapping.

        Raises:
            GymError: the environment or its worker failed.
        """
        text = arguments if isinstance(arguments, str) else encoded(arguments).decode()
        answer = await self._ask(calls.CallTool(name=name, arguments=text))
        return calls.decode_tool_answer(answer).output

    async def step(self, response: Said) -> Observation:
        """One step of a step-by-step environment: the model's latest answer in, an observation out.

        Raises:
            ResourceError: the environment has no steps, or its step raised.
        """
        answer = calls.decode_step_answer(await self._ask(calls.StepCall(response=_response(response))))
        return Observation(
            items=_plain(answer.items),
            reward=answer.reward,
            terminated=answer.terminated,
            truncated=answer.truncated,
        )

    async def verify(self, response: Said) -> Verdict:
        """The verdict on what the model said, given the state that the calls before led to.

        Raises:
            GymError: the verifier raised or compares whole groups, a judge failed, or the worker was lost.
        """
        answer = await self._ask(calls.Verify(response=_response(response)))
        try:
            verdict = _decode_verdict(answer)
        except msgspec.ValidationError as error:
            raise ResourceError(
                f"verify returned no verdict ({error}): an environment that compares the rollouts of a row "
                "has none for a single one",
                stage="verify",
            ) from error
        verdict.checked()
        return verdict

    async def judge(self, response: Said) -> Verdict:
        """The verdict on a whole transcript: its executed tool calls, or its turns, are repeated first.

        Raises:
            TaskError: the response cannot be read.
            GymError: as `verify`.
        """
        said = _response(response)
        try:
            transcript = Reply(said).items
        except UNREADABLE as error:
            raise TaskError(f"the response cannot be read: {error}") from error
        if self._shape == "episode":
            await self.open()
            for turn in turns(transcript):
                step = await self.step(_encode({"output": [encode_item(item) for item in turn]}))
                if step.terminated or step.truncated:
                    break
        elif self._shape == "session":
            for call in executed(transcript):
                await self.call(call.name, call.arguments)
        return await self.verify(said)

    async def _ask(self, call: calls.ResourceCall) -> Raw:
        """
        Raises:
            SessionLost: the session is closed. Another call would open it again, and nothing would close it.
        """
        if not self._closed:
            with anyio.CancelScope() as scope:
                self._asking[scope] = None
                try:
                    return await self._session.ask(call)
                finally:
                    del self._asking[scope]
        raise SessionLost("the session is over: open another one", stage="resource")

    async def close(self) -> None:
        """Release it; nothing waits for the worker, and calls in progress end with `SessionLost`."""
        self._closed = True
        for scope in self._asking:
            scope.cancel()
        await self._session.close()


def _response(said: Said) -> Raw:
    if isinstance(said, str):
        return Raw(make_response(said))
    if isinstance(said, (bytes, Raw, Mapping)):
        # A copy that does not depend on the caller's buffer.
        whole = encoded(said) if isinstance(said, Mapping) else bytes(said)
        # A chat completion would be judged as an empty answer.
        if whole.lstrip()[:1] == b"{" and b'"output"' not in whole:
            what = "give a response of the Responses API, a list of its items, or a text"
            raise TaskError(f"the response has no 'output': {what}")
        with suppress(*UNREADABLE):  # the worker says what cannot be read
            ending = _decode_ending(whole)
            failed = ending.status == "incomplete" and ending.error != NULL
            if failed or ending.status in UNFINISHED:
                why = " and an error" if failed else ""
                raise TaskError(f"the response has the status '{ending.status}'{why}: ask the model again")
        return Raw(whole)
    try:
        return Raw(make_response(*said))
    except TypeError as error:  # such as None, where an engine said nothing
        given = type(said).__name__
        raise TaskError(f"the response is a {given}, and no text, list of items or response") from error


def _plain(items: Sequence[Raw]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in items]


class Environments:
    """The environments that resource workers serve, and sessions on them.

    If this process cannot find an environment's module, it uses the declaration of the environment's workers,
    which it asks once.

    Args:
        roles: which pool serves which role.
        startable: refuses what no worker of the system can ever serve.
    """

    def __init__(
        self,
        runs: Runs,
        roles: Mapping[str, str],
        startable: Callable[[Iterable[RolloutSpec]], Iterable[RolloutSpec]],
    ) -> None:
        self._runs, self._roles, self._startable = runs, roles, startable
        self._router: Router | None = None
        self._declared: dict[str, LoadedEnvironment] = {}
        self._sessions_run, self._sessions = new_run_id(), 0

    async def declared(self, environment: str | None) -> Declared:
        """The environments that rows may need and that are not found here.

        Args:
            environment: the only one that is needed; None for all that rows may name.

        Raises:
            GymError: the workers of one do not answer.
        """
        if environment is not None and (
            environment in self._declared or catalogue.exists("environments", environment)
        ):
            return self._declared
        served = await self._names()
        for name in sorted(served if environment is None else served & {environment}):
            # A file in the working directory is taken only where the user has named it.
            found = catalogue.exists if environment is not None else catalogue.is_known
            if name not in self._declared and not found("environments", name):
                self._declared[name] = await self._ask(name)
        return self._declared

    async def served(self) -> dict[str, LoadedEnvironment]:
        """Every environment that is served now, by its name.

        Raises:
            GymError: the workers of one do not answer.
        """
        served: dict[str, LoadedEnvironment] = {}
        for name in await self._names():
            if catalogue.is_known("environments", name):
                served[name] = catalogue.known_environment(name)
            else:
                served[name] = self._declared[name] = self._declared.get(name) or await self._ask(name)
        return served

    @asynccontextmanager
    async def session(
        self, row: AnyRow, environment: str | None, timeout_s: float | None
    ) -> AsyncGenerator[EnvironmentSession]:
        """A session that is not open yet, and is closed when the context ends."""
        declared = await self.declared(environment)
        number, self._sessions = self._sessions, self._sessions + 1
        specs = expand(
            [line(row)],
            RolloutSettings(roles=dict(self._roles), repeats=1, timeout_s=timeout_s, durability="result"),
            run=self._sessions_run,
            environment=environment,
            numbering=Numbering(number, apart=True),
            declared=declared,
        )
        (task,) = self._startable(specs)
        known = declared.get(task.environment) or catalogue.known_environment(task.environment)
        session = EnvironmentSession(task, known, self._routed())
        try:
            yield session
        finally:
            # Shielded: a caller that was cancelled releases its session as well.
            with anyio.move_on_after(CLIENT_CLOSE_S, shield=True), suppress(GymError):
                await session.close()  # if the workers do not hear of it, its time limit releases it

    async def _names(self) -> set[str]:
        workers = await all_workers(self._runs.bus)
        return {pool for worker in workers if worker.kind == "resource" for pool in worker.pools}

    async def _ask(self, name: str) -> LoadedEnvironment:
        request = calls.Request(body=calls.Declare(), deadline_s=clock.monotonic() + DECLARED_S)
        answer = await self._routed().ask("resource", name, request, RetryBudget())
        return loaded(decode_declaration(answer.body))

    def _routed(self) -> Router:
        """The way to the resource workers; from its first use on it follows who they are."""
        if self._router is None:
            self._router = Router(self._runs.bus, "resource", watches=False)
            # In the group of the connection: the router outlives the session that needed it first.
            self._runs.tasks.start_soon(self._router.run)
        return self._router
