"""What an environment's author writes: a task, and one of three shapes.

1. A function ``async def verify(task, reply) -> Verdict``: stateless. Parameters after these two are models
   in roles: ``async def verify(task, reply, judge: Model) -> Verdict``.
2. A `Session` with ``@tool`` methods and ``verify``: tools and state.
3. An `Episode` with ``reset`` and ``step``: step by step, for games and simulated users.

Rewards may exist only for a whole group: then ``verify`` returns `Pending` instead of a verdict, and when all
rollouts of the task have ended, ``compare`` gets those that did not fail as `Candidates`, and returns their
verdicts. `gym_runtime.environment.resource` runs any of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

from gym_runtime.environment.roles import Models
from gym_runtime.environment.tools import ToolPacks, place
from gym_runtime.environment.verdict import Pending, Reply, Verdict, finite
from gym_runtime.errors import NOT_JSON, UNREADABLE, GymError, ResourceError, UsageError
from gym_runtime.messages.calls import ComparedVerdict
from gym_runtime.messages.images import Image
from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_spec import Candidate
from gym_runtime.messages.transcripts import encoded


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


class Store(Protocol):
    """Keeps parts of what sessions of one rollout have saved, each once, until the rollout is over.

    Attributes:
        limit_bytes: how much one rollout may put there, over all its sessions.
    """

    limit_bytes: int

    async def put(self, part: bytes) -> str:
        """Keep a part; the name by which it is found, which is a digest.

        Raises:
            GymError: it cannot be kept now; the session goes on unsaved.
        """
        ...

    async def get(self, name: str) -> bytes:
        """A part, checked by its digest.

        Raises:
            GymError: it is gone, or damaged.
        """
        ...


class Session(Generic[T]):
    """An environment's state for one rollout. One instance per attempt; it is never shared.

    Methods may be plain or ``async``. Calls of one session never overlap, unless the environment sets
    ``parallel_tools``.

    Attributes:
        models: the models in the environment's roles; there from `open` on.
        packs: the tool packs of the environment, from `open` on, which may take further ones.
        row: the dataset row as JSON, also with fields that the task does not declare; there from `open` on.
        store: keeps what `save` is too large for; None where nothing is saved.
        judged_by_transcript: ``verify`` needs nothing but the task, the reply and the models. So a recorded
            rollout is judged again without `open`, which may want a service's key, and without repeating its
            calls, which may cost money or find another world.
    """

    models: Models = Models()
    packs: ToolPacks
    row: bytes = b""
    store: Store | None = None
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
        """Release the session's resources. Runs exactly once, also after errors and cancellation."""

    async def save(self) -> Any:
        """Override this where repeating a lost session's calls takes long or answers differently.

        It runs after each tool call and each step, before their answer is sent. What it returns, as JSON of a
        few kilobytes, is all that a new session on another worker gets (`on_restore`), with what it has put
        into `store`. None saves nothing: then the calls since the last state that was saved are repeated.
        """
        return None

    async def on_restore(self, saved: Any) -> None:
        """Continue, after `open`, where a lost session has saved this. What no file holds, such as a service
        that the session had started, is started again here.
        """
        raise ResourceError(f"{type(self).__name__} has save but no on_restore")

    async def call_unknown_tool(self, name: str, arguments: str) -> str | Sequence[str | Image] | None:
        """Answer a call of a tool that the class does not have, by a text, or by texts and images; None means
        that the tool does not exist.
        """
        return None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of an `Episode`.

    Attributes:
        observation: what the model reads next: the text of a user's message, or items; None for nothing.
        reward: the reward of this step; the rewards of all steps are added.
        terminated: the episode ended by its own rules.
        truncated: the episode was cut off by a limit.
        tool_outputs: answers to the reply's function calls, by ``call_id``: a text, or texts and images.
        tools: function tools that the model gets from now on, in addition to its present ones.
        info: further top-level fields of the result row; those of the last step are used.
    """

    observation: str | list[dict[str, Any]] | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: Mapping[str, str | Sequence[str | Image]] = {}
    tools: list[dict[str, Any]] = []
    info: dict[str, Any] = {}

    def checked(self) -> Step:
        """This step with plain values: those of numpy are taken, too.

        Raises:
            ResourceError: a field has another type, or the reward is not a finite number.
        """
        outputs = cast("object", self.tool_outputs)
        if not isinstance(outputs, Mapping) or not all(
            isinstance(one, Sequence) for one in cast("Mapping[str, object]", outputs).values()
        ):
            what = f"step returned tool_outputs = {outputs!r}; it must be a dict of texts or lists by call_id"
            raise ResourceError(what, stage="step")
        try:
            given = {name: getattr(self, name) for name in _Plain.__struct_fields__}
            plain = _decode_plain(encoded(given))
        except (msgspec.ValidationError, *NOT_JSON) as error:
            what = f"what step returned must be JSON: bools, a list of tools, a dict as info; {error}"
            raise ResourceError(what, stage="step") from error
        reward = finite("reward", self.reward, "step")
        return msgspec.structs.replace(self, reward=reward, **msgspec.structs.asdict(plain))


class _Plain(msgspec.Struct, frozen=True):
    terminated: bool
    truncated: bool
    tools: list[dict[str, Any]]
    info: dict[str, Any]


_decode_plain = msgspec.json.Decoder(_Plain).decode


class Episode(Session[T]):
    """A step-by-step environment. Its verdict is the sum of its steps' rewards, unless overridden.

    Attributes:
        offered_tools: function tools that the model gets in addition to the row's; set them in `reset`.
        begun: whether the agent has called `reset` or `step`; set by the runtime.
        total_reward: the sum of its steps' rewards so far; an episode with `save` is restored with it.
        last_info: the `Step.info` of its last step, restored likewise.
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


def check_methods(session: type[Session[Any]]) -> None:
    """Refuse a method that the runtime cannot call, or whose code would not run when it is called.

    Raises:
        UsageError: it takes other arguments, or has a ``yield``; with its file and line.
    """
    kind = Episode if issubclass(session, Episode) else Session
    for name, known in inspect.getmembers(kind, inspect.isfunction):
        own = inspect.getattr_static(session, name)
        if own is known or not inspect.isfunction(own):
            continue
        where = f"{place(own)}{session.__name__}.{name}"
        signature = inspect.signature(own, follow_wrapped=False)
        given = tuple(inspect.signature(known).parameters)
        try:
            signature.bind(*given)
        except TypeError:
            also = "; prepare the state in open" if name == "__init__" else ""
            called = f"({', '.join(signature.parameters)}) is called with ({', '.join(given)})"
            raise UsageError(f"{where}{called}{also}") from None
        if inspect.isgeneratorfunction(own) or inspect.isasyncgenfunction(own):
            raise UsageError(f"{where} has a yield, so a call of it would run nothing: return a value")


VerifyFunction = Callable[..., Awaitable[Verdict | Pending] | Verdict | Pending]
"""``verify(task, reply, *roles)``"""

ReviewFunction = Callable[..., Awaitable[Verdict] | Verdict]
"""``review(task, reply, verdict, *roles)``"""


F = TypeVar("F")


class Candidates(Generic[T]):
    """The rollouts of one task that are compared, in the order of their ``rollout_index``; at least two.

    Attributes:
        task: the row, which they share.
        rollout_indices: the indices of these rollouts; failed rollouts are left out.
    """

    def __init__(self, task: T, candidates: Sequence[Candidate]) -> None:
        self.task = task
        self.rollout_indices = [one.rollout_index for one in candidates]
        self._candidates = candidates

    def __len__(self) -> int:
        return len(self._candidates)

    def features(self, kind: type[F]) -> list[F]:
        """What ``verify`` returned for each of them, in their order.

        Args:
            kind: the type of the features.

        Raises:
            ResourceError: they are not of this type.
        """
        try:
            return [msgspec.json.decode(one.features, type=kind) for one in self._candidates]
        except UNREADABLE as error:
            raise ResourceError(f"the features are no {kind.__name__}: {error}", stage="compare") from error


CompareFunction = Callable[..., Awaitable[Sequence[Verdict | GymError]] | Sequence[Verdict | GymError]]
"""``compare(candidates, *roles)``: a verdict for each candidate, or why this one has none."""


def no_verdicts(problem: str) -> ResourceError:
    """The error of a ``compare`` that broke its contract."""
    return ResourceError(f"compare returned {problem}", stage="compare")


def as_features(features: Any) -> msgspec.Raw:
    """Features as JSON.

    Raises:
        ResourceError: they are not JSON.
    """
    try:
        return msgspec.Raw(encoded(features))
    except NOT_JSON as error:
        raise ResourceError(f"the features of Pending are not JSON: {error}", stage="verify") from error


def compared(verdict: object, rollout_index: int) -> ComparedVerdict:
    """What an environment's ``compare`` returned for one candidate, as it travels.

    Raises:
        ResourceError: it is not a verdict that may be given.
    """
    if isinstance(verdict, GymError):
        verdict.stage = verdict.stage or "compare"
        return ComparedVerdict(rollout_index=rollout_index, fault=verdict.fault())
    if not isinstance(verdict, Verdict):
        raise no_verdicts(f"{verdict!r} for a candidate; it must be a Verdict")
    try:
        verdict = verdict.checked()
        fields = {name: Raw(msgspec.json.encode(value)) for name, value in verdict.fields.items()}
    except ResourceError as error:
        raise ResourceError(error.message, stage="compare") from error
    return ComparedVerdict(
        rollout_index=rollout_index,
        reward=verdict.reward,
        components=verdict.components,
        fields=fields,
        rewards=verdict.rewards,
    )
