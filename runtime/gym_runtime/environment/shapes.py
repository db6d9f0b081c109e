"""What an environment's author writes: a task, and one of three shapes.

1. A function ``async def verify(task, reply) -> Verdict``: stateless. Parameters after these two are models
   in roles: ``async def verify(task, reply, judge: Model) -> Verdict``.
2. A `Session` with ``@tool`` methods and ``verify``: tools and state.
3. An `Episode` with ``reset`` and ``step``: step by step, for games and simulated users.

`gym_runtime.environment.resource` runs any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from gym_runtime.environment.roles import Models
from gym_runtime.environment.tool_packs import ToolPacks
from gym_runtime.environment.verdict import Pending, Reply, Verdict
from gym_runtime.errors import ResourceError
from gym_runtime.messages.responses import CreateParams


class Task(msgspec.Struct, kw_only=True):
    """A dataset row as an environment sees it. Subclass it and add the row's fields.

    Fields without a default are required; a field with a default may be null, which means the default. Fields
    of the row that are not declared are ignored here, and kept in the result row.
    """

    responses_create_params: CreateParams

    def check_assets(self) -> None:
        """Override this to find the files that a row needs, with `gym_runtime.assets.find`.

        It runs in a thread of the resource worker each time a session opens; if the environment declares
        ``assets``, this is before the first model call.

        Raises:
            AssetMissing: a file is missing.
        """


T = TypeVar("T", bound=Task)


class Session(Generic[T]):
    """An environment's state for one rollout. One instance per attempt; it is never shared.

    Methods may be plain or ``async``. Calls of one session never overlap, unless the environment sets
    ``parallel_tools``.

    Attributes:
        models: the models in the environment's roles; there from `open` on.
        packs: the tool packs of the environment, from `open` on, which may take further ones.
        row: the dataset row as JSON, also with fields that the task does not declare; there from `open` on.
        judged_by_transcript: ``verify`` needs nothing but the reply. So a recorded rollout is judged again
            without repeating its calls, which may cost money or find another world.
    """

    models: Models = Models()
    packs: ToolPacks
    row: bytes = b""
    judged_by_transcript: ClassVar[bool] = False

    def __init__(self, task: T) -> None:
        self.task = task
        self.packs = ToolPacks()

    async def open(self) -> None:
        """Prepare the state. Runs before all other methods."""

    async def verify(self, reply: Reply) -> Verdict | Pending:
        """Judge the finished rollout. Called at most once per attempt."""
        raise ResourceError(
            f"{type(self).__name__} has no verify; define: async def verify(self, reply: Reply) -> Verdict"
        )

    async def close(self) -> None:
        """Release what the session holds. Runs exactly once, also after errors and cancellation."""

    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        """Answer a call of a tool that the class does not have; None means that the tool does not exist."""
        return None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of an `Episode`.

    Attributes:
        observation: what the model reads next: the text of a user's message, or items; None for nothing.
        reward: the reward of this step; the rewards of all steps are added.
        terminated: the episode ended by its own rules.
        truncated: the episode was cut off by a limit.
        tool_outputs: answers to the reply's function calls, by ``call_id``.
        tools: function tools that the model gets from now on, in addition to those that it has.
        info: further top-level fields of the result row; those of the last step are used.
    """

    observation: str | list[dict[str, Any]] | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: dict[str, str] = {}
    tools: list[dict[str, Any]] = []
    info: dict[str, Any] = {}


class Episode(Session[T]):
    """A step-by-step environment. Its verdict is the sum of its steps' rewards, unless overridden.

    Attributes:
        offered_tools: function tools that the model gets in addition to the row's; set them in `reset`.
        begun: whether the agent has called `reset` or `step`; set by the runtime.
    """

    begun: bool = False
    total_reward: float = 0.0
    last_info: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed
    offered_tools: Sequence[dict[str, Any]] = ()

    async def reset(self) -> str | list[dict[str, Any]] | None:
        """The first observation: the text of a user's message, or items; None if the row has it all."""
        return None

    async def step(self, reply: Reply) -> Step:
        """Apply the model's latest answer. ``reply`` has that answer only."""
        raise ResourceError(
            f"{type(self).__name__} has no step; define: async def step(self, reply: Reply) -> Step"
        )

    async def verify(self, reply: Reply) -> Verdict | Pending:
        return Verdict(self.total_reward, fields=self.last_info)


VerifyFunction = Callable[..., Awaitable[Verdict | Pending] | Verdict | Pending]
"""``verify(task, reply, *roles)``"""

ReviewFunction = Callable[..., Awaitable[Verdict] | Verdict]
"""``review(task, reply, verdict, *roles)``"""
