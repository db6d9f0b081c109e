"""Any task set of an Aviary server: the environments run there, and are played from here, step by step.

``AVIARY_SERVER_URL``, in the environment of the resource workers, names the server, and
``AVIARY_SERVER_API_KEY`` its key, if it asks for one. A row has the ``task_idx`` of a task of the server's
set, or, with a ``task_idx`` of null, the ``task_kwargs`` that its set makes a task of. Messages, tools and
rewards come from the server; the reward is the sum over the steps. Images reach the model as images.

A server that cannot be reached, fails, or answers something else than its protocol says fails the rollout; it
is never text for the model, and no call is repeated. Arguments that do not fit a tool are a call of the tool
``INVALID``, as in the library. Each environment is closed, also after a cancellation; a worker that begins
has the server close those that were not used for an hour.

Rows as of NeMo Gym's ``bbh_remote``, which this is with a server of BixBench-Hypothesis.
Source: the protocol of github.com/Future-House/aviary (Apache-2.0); the example rows belong to a server of
the library's ``DummyEnv``.
"""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from gym_runtime import Environment, Episode, GymError, Reply, ServiceUnavailable, Step, Task, UsageError
from msgspec import Meta

from gym_resources.aviary_episodes import server_messages, task_server

LAST_ANSWER_S = 5.0
"""How long a cancelled rollout waits for the id of the environment that it has asked for."""


class RemoteTask(Task, kw_only=True):
    task_idx: Annotated[int, Meta(ge=0)] | None
    task_kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.task_idx is None) == (self.task_kwargs is None):
            raise ValueError("a row has a 'task_idx', or a 'task_idx' of null and 'task_kwargs'")

    @property
    def wanted(self) -> dict[str, Any]:
        """The task as the server names it."""
        if self.task_kwargs is not None:
            return {"task_kwargs": self.task_kwargs}
        return {"task_idx": self.task_idx}


class Remote(Episode[RemoteTask]):
    """Plays one environment of the server.

    Attributes:
        env_id: its id there; empty before it was started and after it was closed.
    """

    env_id: str = ""

    async def open(self) -> None:
        failed: list[GymError] = []
        answered = anyio.Event()
        # Without its id an environment cannot be closed, so a cancellation does not cut this request off.
        scope = anyio.CancelScope(shield=True)

        async def start() -> None:
            with scope:
                try:
                    self.env_id = await task_server.start(self.task.wanted)
                except GymError as error:
                    failed.append(error)
                answered.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            try:
                await answered.wait()
            finally:
                scope.deadline = anyio.current_time() + LAST_ANSWER_S
        if failed:
            raise failed[0]

    async def reset(self) -> list[dict[str, Any]]:
        messages, tools = await task_server.reset(self.env_id)
        self.takes = {tool.name: tool for tool in tools}
        self.offered_tools = [server_messages.definition(tool) for tool in tools]
        return [item for message in messages for item in server_messages.read(message)]

    async def step(self, reply: Reply) -> Step:
        done = await task_server.step(self.env_id, server_messages.action(reply, self.takes))
        called = {call.call_id for call in reply.function_calls}
        outputs: dict[str, str] = {}
        observation: list[dict[str, Any]] = []
        for message in done.messages:
            if message.role == "tool" and message.tool_call_id in called:
                outputs[message.tool_call_id] = message.text
                observation += server_messages.shown(message.images)
            else:
                observation += server_messages.read(message)
        return Step(
            tool_outputs=outputs,
            observation=observation,
            reward=done.reward,
            terminated=done.terminated,
            truncated=done.truncated,
        )

    async def close(self) -> None:
        env_id, self.env_id = self.env_id, ""
        if env_id:
            await task_server.close(env_id)


def require() -> None:
    """Refuse to run without a server.

    Raises:
        UsageError: it is not configured.
    """
    try:
        task_server.SERVER.check()
    except ServiceUnavailable as error:
        raise UsageError(error.message) from error


environment = Environment(
    resource=Remote,
    description="Any task set of an Aviary server, whose environments are played from here.",
    domain="agent",
    max_turns=30,
    replayable=False,
    opens_first=True,
    data_license="that of the server's task set",
    require=require,
)
