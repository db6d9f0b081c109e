"""Requests between workers: what an agent asks of a model and of a resource, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, Fault, RuntimeFault
from gym_runtime.messages.call_tokens import Prefix as Prefix
from gym_runtime.messages.call_tokens import Tokens as Tokens
from gym_runtime.messages.call_tokens import WeightSpan as WeightSpan
from gym_runtime.messages.call_tokens import prefix_after as prefix_after
from gym_runtime.messages.repeated_images import RepeatedImages, read_alone
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.rollout_spec import Candidate
from gym_runtime.statistics import bounded


class RoleUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one role cost.

    Attributes:
        seconds: from the question to the answer, waiting for a free place included, over all calls.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: RoleUse) -> RoleUse:
        return RoleUse(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            seconds=round(bounded(self.seconds + other.seconds), 6),
        )


def role_numbers(use: Mapping[str, RoleUse]) -> dict[str, float]:
    """What roles cost as numbers for metrics: ``judge_calls``, ``judge_input_tokens`` and so on."""
    return {
        f"{role}_{name}": float(bounded(value))
        for role, one in use.items()
        for name, value in msgspec.structs.asdict(one).items()
    }


def add_use(use: dict[str, RoleUse], more: Mapping[str, RoleUse]) -> None:
    """Add the cost of roles to their earlier cost."""
    for role, one in more.items():
        before = use.get(role)
        use[role] = one if before is None else before + one


class RoleAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer.

    Attributes:
        digest: of the role, the parameters and the input; the same question finds its recorded answer by it.
        response: a Responses API response object.
        question: the text of the input's last item, for people who read the row; cut in the middle if it is
            long, and empty if an earlier answer in the row has the same digest.
    """

    role: str
    digest: str
    response: Raw
    question: str = ""


Body = TypeVar("Body")


class Request(msgspec.Struct, Generic[Body], frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of every request.

    Attributes:
        left_s: seconds from sending until the deadline. A duration, because clocks of machines differ; None
            from peers that only know ``deadline_s``.
        deadline_s: the same deadline, within a process a time of `gym_runtime.clock.monotonic`. On the wire
            it is a time of day of the sender, in seconds since the epoch, for peers that do not know
            ``left_s`` (`encode_request`, `receive_request`).
        key: the same for every delivery of the same call, so that it is executed once.
        rollout: the rollout that makes the call (``<run_id>.<task_index>.<rollout_index>``), for logs and
            affinity.
        attempt: which execution of that rollout.
        body: the call itself; a router need not know it. Its receiver has it as `Raw`. Its sender need not
            encode it before: so a large one is in memory once.
        retries: how many retries the worker may make itself; None leaves it to the worker.
        deaths: how many workers in a row ended while they worked on it (`gym_runtime.rpc.quarantine`).
        place: only a place for this request is asked for; it is sent when the worker has one. Without a
            ``key`` only the name of a worker of the pool is asked for.
        roles: which model pool serves which role, for a resource that asks models.
        role_sampling: how they sample, over what the resource says.
        durable: the rollout has a journal: what models in roles answer goes there, so that it is not asked
            for again, and a session that the call opens may save its state.
        repeated: another delivery of this request may have been worked on, so a journal may hold answers; of
            an ``attempt`` above 1 that is known without it.
        call_timeout_s: how long a call of an engine for it may take, in seconds, 0 for no limit; None for one
            that the model worker learns.
        images: images that come again have names on the wire (`gym_runtime.messages.repeated_images`), for
            workers only whose `Heartbeat` says ``names_images``.
    """

    body: Body
    deadline_s: float = 0.0
    key: str = ""
    rollout: str = ""
    attempt: int = 1
    retries: int | None = None
    left_s: float | None = None
    deaths: int = 0
    place: bool = False
    roles: dict[str, str] = {}
    role_sampling: dict[str, dict[str, Any]] = {}
    durable: bool = False
    repeated: bool = False
    call_timeout_s: float | None = None
    images: bool = False

    @property
    def run(self) -> str:
        """The run that it is part of, or empty."""
        return self.rollout.partition(".")[0]


class RpcReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a `Request`: a body, or a fault, how full the worker is (0 idle, 1 full), and how
    many of the rollout's retries it took.

    Attributes:
        role_use: what models in roles have cost in the session so far, also where the call failed.
    """

    body: Raw = NULL
    fault: Fault | None = None
    worker: str = ""
    load: float = 0.0
    retries: int = 0
    role_use: dict[str, RoleUse] = {}


# -- model --------------------------------------------------------------------------------------------


# In the ``metadata`` of a call: an engine may leave out the hosted tools that it does not have.
HOSTED_TOOLS, OPTIONAL = "hosted_tools", "optional"


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a model to answer.

    A worker that keeps the conversation is sent only its new items; an adapter always gets all of them.

    Attributes:
        params: a row's ``responses_create_params`` without its input.
        input: the conversation from item ``known`` on, raw Responses API items, in order.
        return_tokens: report token ids and log-probabilities.
        conversation: the name under which the worker keeps the conversation; empty if it must not keep it.
        known: how many items the worker has kept; 0 when an adapter gets the call.
        prefix: the tokens of the turns so far, if they are known.
        brief: the caller knows the tokens of the turns so far; the answer's prompt may be short on them.
        mark: the worker's mark on the last answer, so that both mean the same conversation.
        count: asks only how many tokens the conversation has: the answer says it in its usage.
        first: no answer came before it, so a prompt that does not fit the context is an error, and no answer
            that stops short.
    """

    params: Raw
    input: list[Raw]
    return_tokens: bool = False
    conversation: str = ""
    known: int = 0
    prefix: Prefix | None = None
    brief: bool = False
    mark: int = 0
    count: bool = False
    first: bool = False


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's answer.

    Attributes:
        response: a Responses API response object.
        tokens: present if ``return_tokens`` was set; an adapter gives them whole.
        weight_version: the version of the weights that answered, if the engine reports it; the last one if
            they changed during the answer.
        kept: how many items of the conversation, including this answer's, the worker keeps.
        mark: a number that is this answer's alone at its worker, where the worker keeps the conversation.
    """

    response: Raw
    tokens: Tokens | None = None
    weight_version: str | None = None
    kept: int = 0
    mark: int = 0


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a model worker for something about the weights of its engine.

    Attributes:
        op: ``state`` only reads; ``pause`` stops all generation until ``resume`` and aborts no call;
            ``set_version`` names the version that the engine has; ``update`` loads weights.
        version: for ``set_version`` and ``update``: the version's name.
        path: for ``update``: where the engine finds the weights.
    """

    op: Literal["state", "pause", "resume", "set_version", "update"]
    version: str = ""
    path: str = ""


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The engine's state after a `Control`; ``version`` is empty if the engine does not report it."""

    paused: bool = False
    version: str = ""


# -- any worker ---------------------------------------------------------------------------------------


class Draining(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker that was asked to leave takes no new work.

    Attributes:
        in_flight: how many rollouts, sessions or calls it has to finish.
        within_s: how many seconds it may take; unfinished tasks then go back to the queue.
    """

    in_flight: int = 0
    within_s: float = 0.0


# -- resource -----------------------------------------------------------------------------------------


class SessionCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of every call to a session.

    The first call carries the task, which opens the session: opening costs no extra request.
    """

    session: str = ""
    task: Raw = NULL


class OpenSession(SessionCall, tag_field="op", tag="open", frozen=True, kw_only=True, omit_defaults=True):
    """Open a session now; for step-by-step environments, whose first observation comes back.

    Attributes:
        restore: what a lost session has saved (`ToolAnswer`, `StepAnswer`); the new one continues from there,
            and the answer is empty.
        origins: rollouts whose parts it may refer to, if it is not this one's: those that a fork begins with.
    """

    restore: Raw = NULL
    origins: list[str] = []


class CallTool(SessionCall, tag_field="op", tag="tool", frozen=True, kw_only=True, omit_defaults=True):
    """Call a tool; ``arguments`` is a JSON object as text."""

    name: str
    arguments: str


class StepCall(SessionCall, tag_field="op", tag="step", frozen=True, kw_only=True, omit_defaults=True):
    """One step of a step-by-step environment: the model's latest response in, an observation out."""

    response: Raw


class Verify(SessionCall, tag_field="op", tag="verify", frozen=True, kw_only=True, omit_defaults=True):
    """Judge the finished rollout."""

    response: Raw


class Compare(SessionCall, tag_field="op", tag="compare", frozen=True, kw_only=True, omit_defaults=True):
    """Compare the rollouts of a group; ``task`` is their row. It needs no session and opens none."""

    candidates: list[Candidate]


class ComparedVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A comparison's verdict on one candidate: a reward with its reasons, or a fault.

    Attributes:
        reward: None exactly if there is a ``fault``.
        fields: values as JSON.
        rewards: of the rollout's seats, by their names.
    """

    rollout_index: int
    reward: float | None = None
    components: dict[str, float] = {}
    fields: dict[str, Raw] = {}
    fault: Fault | None = None
    rewards: dict[str, float] = {}


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A comparison's result, with what models in roles answered for it."""

    verdicts: list[ComparedVerdict]
    role_use: dict[str, RoleUse] = {}
    role_answers: list[RoleAnswer] = []


class CloseSession(SessionCall, tag_field="op", tag="close", frozen=True, kw_only=True, omit_defaults=True):
    """The rollout is over. The sender does not wait for an answer.

    Attributes:
        more: further sessions that are over; only for workers whose `Heartbeat` says ``closes_many``.
    """

    more: list[str] = []


class Declare(msgspec.Struct, tag_field="op", tag="declare", frozen=True):
    """Ask for the environment's `Declaration`. No session is involved."""


ResourceCall = OpenSession | CallTool | StepCall | Verify | Compare | CloseSession


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool's answer as the model will read it: a text, or parts where there are images.

    Attributes:
        saved: what the session has saved after this call, for `OpenSession.restore`.
    """

    output: str | list[dict[str, Any]]
    saved: Raw = NULL


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An observation: items to append to the conversation, and the step's reward.

    The ``tools`` are offered to the model from now on, in addition to the row's and those of earlier
    observations. ``saved`` is as in `ToolAnswer`.
    """

    items: list[Raw] = []
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tools: list[Raw] = []
    saved: Raw = NULL


class KeptState(msgspec.Struct, frozen=True):
    """What a session has saved (`ToolAnswer.saved`), by the name of the part that has it: a later fork may
    begin with it.
    """

    kept: str


encode = msgspec.json.Encoder().encode
decode_kept_state = msgspec.json.Decoder(KeptState).decode
decode_request = msgspec.json.Decoder[Request[Raw]](Request[Raw]).decode
decode_reply = msgspec.json.Decoder(RpcReply).decode
decode_model_call = msgspec.json.Decoder(ModelCall).decode
decode_model_answer = msgspec.json.Decoder(ModelAnswer).decode
decode_control = msgspec.json.Decoder(Control).decode
decode_draining = msgspec.json.Decoder(Draining).decode
decode_control_answer = msgspec.json.Decoder(ControlAnswer).decode
decode_resource_call = msgspec.json.Decoder[ResourceCall | Declare](ResourceCall | Declare).decode
decode_tool_answer = msgspec.json.Decoder(ToolAnswer).decode
decode_step_answer = msgspec.json.Decoder(StepAnswer).decode


def encode_request(request: Request[Any], *, names_images: bool = False) -> bytes:
    """A request as it is sent now: with the seconds that are left, and the time of day when they are over.

    Args:
        names_images: its receiver understands `Request.images`.
    """
    left_s = request.deadline_s - clock.monotonic()
    sent = msgspec.structs.replace(request, left_s=left_s, deadline_s=clock.now() + left_s)
    payload = encode(sent)
    if not names_images or RepeatedImages().packed(payload) is payload:
        return payload
    return RepeatedImages().packed(encode(msgspec.structs.replace(sent, images=True)))


def receive_request(payload: bytes) -> Request[Raw]:
    """A request as it is received now: its deadline is a time of this machine's steady clock.

    Raises:
        msgspec.DecodeError: it is no request.
    """
    request = decode_request(payload)
    if request.images:
        request = msgspec.structs.replace(request, body=read_alone(request.body), images=False)
    left_s = request.deadline_s - clock.now() if request.left_s is None else request.left_s
    return msgspec.structs.replace(request, deadline_s=clock.monotonic() + left_s)


def body_of(request: Request[Any], decode: Callable[[Raw], Body]) -> Body:
    """The body of a request: encoded, unless its caller lives in this process.

    Raises:
        RuntimeFault: it cannot be decoded.
    """
    try:
        return decode(request.body) if isinstance(request.body, Raw) else request.body
    except UNREADABLE as error:
        raise RuntimeFault(
            f"the request cannot be read ({error}); use one version of gym-runtime for all workers"
        ) from error


def opens(call: SessionCall) -> bool:
    """Whether a call carries the task, and so may open its session."""
    return bytes(call.task) != b"null"


def pack(body: object) -> Raw:
    """A call or an answer as the body of an envelope."""
    return Raw(encode(body))


def without_saved(call: ResourceCall, answer: Raw) -> tuple[Raw, Raw]:
    """A session's answer to a call without what it has saved, and what it has saved (null for nothing)."""
    if b'"saved":' not in bytes(answer) or not isinstance(call, OpenSession | CallTool | StepCall):
        return answer, NULL
    decode = decode_tool_answer if isinstance(call, CallTool) else decode_step_answer
    decoded = decode(answer)
    return pack(msgspec.structs.replace(decoded, saved=NULL)), decoded.saved


def kept_name(saved: Raw) -> str:
    """The name of the part with what a session has saved; empty if it is kept for its own rollout only."""
    return decode_kept_state(saved).kept if bytes(saved).startswith(b'{"kept":') else ""


class DeclaredRole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model that the environment asks besides the policy."""

    name: str
    optional: bool = False


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An environment's declaration, as far as making rollouts of rows needs it.

    Attributes:
        shape: ``verify``, ``session`` or ``episode``.
        fields: the fields of its rows besides ``responses_create_params``; True for those that are required.
        tools: as function tools of the Responses API.
        assets: the names of the files that its rows may need.
        settings: defaults of row fields, by the beginning of an agent's name.
        defaults: defaults of row fields, whatever the agent's name.
        agent_sampling: how the model samples, by the beginning of an agent's name.
        compares: it compares the rollouts of a row.
        agent_options: of its agent.
        agents: other agents and their options, by the beginning of the name in a row's ``agent_ref``.
        opens_first: a rollout opens its session before the first model call.
        repeats: rollouts per row where the run does not say.
        reads_input: its code reads the input of a row.
    """

    name: str
    agent: str
    shape: str
    max_turns: int | None = None
    timeout_s: float = 1800.0
    parallel_tools: bool = False
    replayable: bool = True
    roles: list[DeclaredRole] = []
    fields: dict[str, bool] = {}
    tools: list[Raw] = []
    assets: list[str] = []
    agent_refs: list[str] = []
    settings: dict[str, dict[str, Any]] = {}
    compares: bool = False
    opens_first: bool = False
    repeats: int = 1
    agent_options: dict[str, Any] = {}
    agents: dict[str, tuple[str, dict[str, Any]]] = {}
    defaults: dict[str, Any] = {}
    agent_sampling: dict[str, dict[str, Any]] = {}
    reads_input: bool = True


decode_declaration = msgspec.json.Decoder(Declaration).decode
