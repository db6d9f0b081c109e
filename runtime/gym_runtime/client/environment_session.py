"""Sessions and verdicts for callers that are no agents: a trainer with an engine of its own, an HTTP server.

The session lives on a resource worker, as a rollout's does, and is rebuilt on another one if that worker
ends. Nothing is journaled or committed: what becomes of the answers is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replayed_session import executed, turns
from gym_runtime.environment.roles import JudgedVerdict
from gym_runtime.environment.verdict import Reply, Verdict, make_response
from gym_runtime.errors import UNREADABLE, ResourceError, SessionLost, TaskError
from gym_runtime.messages import calls
from gym_runtime.messages.chat import encoded
from gym_runtime.messages.items import encode_item
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.envelope import Envelope
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.remote_session import RemoteSession
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.retry_budget import RetryBudget

Said = str | bytes | Raw | Mapping[str, Any] | Sequence[Mapping[str, Any] | str]
"""What a model said: the text of a message; output items, where a string is a message; or a whole response of
the Responses API, as a mapping or as JSON bytes."""

_encode = msgspec.json.Encoder().encode
_decode_verdict = msgspec.json.Decoder(JudgedVerdict).decode


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of a step-by-step environment led to.

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
    """One session of an environment, driven by the caller. Made by `Client.session`.

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
        # As a rollout's first attempt names its session; there are no further ones.
        journal.session = f"{task.rollout_id}.1.0"
        envelope = Envelope(task, 1, task.timeout_s)
        self._session = RemoteSession(task, router, RetryBudget(), journal, envelope)
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

    async def call(self, name: str, arguments: str | Mapping[str, Any] = "{}") -> str:
        """Call a tool; the text that a model would read.

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
    if isinstance(said, (bytes, Raw)):
        # A copy that does not depend on the caller's buffer.
        return Raw(bytes(said))
    if isinstance(said, str):
        return Raw(make_response(said))
    return Raw(encoded(said) if isinstance(said, Mapping) else make_response(*said))


def _plain(items: Sequence[Raw]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in items]
