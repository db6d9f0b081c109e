"""Requests between workers: what an agent asks of a model and of a resource, and what comes back."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault
from gym_runtime.messages.responses import NULL


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of every request.

    Attributes:
        left_s: how long anybody may work for this request from when it was sent, in seconds. A duration,
            because clocks differ; None from peers that only know ``deadline_s``.
        deadline_s: the same as a time of day, in seconds since the epoch, by the clock of whoever holds the
            request: the sender's on the wire, for peers that know no ``left_s``; the receiver's after that.
        key: the same for every delivery of the same call, so that it is executed once.
        rollout: whose call this is (``<run_id>.<task_index>.<rollout_index>``), for logs and affinity.
        attempt: which execution of that rollout.
        body: the call itself; a router need not know it.
        retries: how often the worker may ask again on its part; None leaves it to the worker.
        deaths: how many workers in a row ended while they worked on it (`gym_runtime.rpc.suspects`).
        place: only a place for this request is asked for; it is sent when the worker has one.
        roles: which model pool serves which role, for a resource that asks models.
        durable: what models in roles answer is journaled, so that it is not asked for again.
        repeated: another delivery of this request may have been worked on, so a journal may hold answers; of
            an ``attempt`` above 1 that is known without it.
    """

    body: Raw
    deadline_s: float = 0.0
    key: str = ""
    rollout: str = ""
    attempt: int = 1
    retries: int | None = None
    left_s: float | None = None
    deaths: int = 0
    place: bool = False
    roles: dict[str, str] = {}
    durable: bool = False
    repeated: bool = False

    @property
    def run(self) -> str:
        """The run that it is part of, or empty."""
        return self.rollout.partition(".")[0]


class RpcReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a `Request`: a body, or a fault, how full the worker is (0 idle, 1 full), and how
    many of the rollout's retries it took.
    """

    body: Raw = NULL
    fault: Fault | None = None
    worker: str = ""
    load: float = 0.0
    retries: int = 0


# -- model --------------------------------------------------------------------------------------------


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a conversation has come to so far.

    Attributes:
        ids: int32, little-endian, shape (tokens,): the last call's prompt and completion.
        items: how many of the conversation's items they stand for.
    """

    ids: bytes
    items: int


# In the ``metadata`` of a call: an engine may leave out the hosted tools that it does not have.
HOSTED_TOOLS, OPTIONAL = "hosted_tools", "optional"


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a model to answer.

    On the wire only what is new of a conversation is sent to a worker that keeps the rest; an adapter
    always sees all of it.

    Attributes:
        params: a row's ``responses_create_params`` without its input.
        input: the conversation from item ``known`` on, raw Responses API items, in order.
        return_tokens: report token ids and log-probabilities.
        conversation: under which name the worker is to keep the conversation; empty: not at all.
        known: how many items the worker has kept; an adapter sees 0.
        prefix: the tokens of the turns so far, where they are known.
    """

    params: Raw
    input: list[Raw]
    return_tokens: bool = False
    conversation: str = ""
    known: int = 0
    prefix: Prefix | None = None


class WeightSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens ``[start, end)`` of a completion were sampled from this version of the weights."""

    version: str
    start: int
    end: int


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exactly what the engine saw and produced in one call.

    Attributes:
        prompt_ids: int32, little-endian, shape (prompt tokens,).
        generation_ids: int32, little-endian, shape (generated tokens,).
        log_probs: float32, little-endian, shape (generated tokens,): natural logarithms.
        weights: which version of the weights sampled which tokens; empty if the engine does not say.
    """

    prompt_ids: bytes = b""
    generation_ids: bytes = b""
    log_probs: bytes = b""
    weights: list[WeightSpan] = []


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's answer.

    Attributes:
        response: a Responses API response object.
        tokens: what was asked for with ``return_tokens``.
        weight_version: the version of the weights that answered, if the engine says; the last one, where
            they changed in mid-answer.
        kept: how many items of the conversation, this answer's included, the worker keeps; 0: none.
    """

    response: Raw
    tokens: Tokens | None = None
    weight_version: str | None = None
    kept: int = 0


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a model worker for something about the weights of its engine.

    Attributes:
        op: ``state`` only looks; ``pause`` holds all generation, losing nothing, until ``resume``;
            ``set_version`` says what the weights are called from now on; ``update`` loads weights.
        version: for ``set_version``, and for ``update`` the name of what is loaded.
        path: for ``update``: where the engine finds the weights.
    """

    op: Literal["state", "pause", "resume", "set_version", "update"]
    version: str = ""
    path: str = ""


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the engine is after a `Control`; ``version`` is empty where the engine does not say."""

    paused: bool = False
    version: str = ""


# -- resource -----------------------------------------------------------------------------------------


class SessionCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every call to a session carries.

    The first call of a session carries the task and thereby opens it: opening costs no hop of its own.
    """

    session: str = ""
    task: Raw = NULL


class OpenSession(SessionCall, tag_field="op", tag="open", frozen=True, kw_only=True, omit_defaults=True):
    """Open a session now; for step-by-step environments, whose first observation comes back."""


class CallTool(SessionCall, tag_field="op", tag="tool", frozen=True, kw_only=True, omit_defaults=True):
    """Call a tool; ``arguments`` is a JSON object as text."""

    name: str
    arguments: str


class Step(SessionCall, tag_field="op", tag="step", frozen=True, kw_only=True, omit_defaults=True):
    """One step of a step-by-step environment: the model's latest response in, an observation out."""

    response: Raw


class Verify(SessionCall, tag_field="op", tag="verify", frozen=True, kw_only=True, omit_defaults=True):
    """Judge the finished rollout."""

    response: Raw


class CloseSession(SessionCall, tag_field="op", tag="close", frozen=True, kw_only=True, omit_defaults=True):
    """The rollout is over; nobody waits for the answer."""


ResourceCall = OpenSession | CallTool | Step | Verify | CloseSession


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool answered, as the text that the model will read."""

    output: str


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An observation: items to append to the conversation, and what the step was worth.

    ``tools``, of the first one, are offered to the model besides those of the row.
    """

    items: list[Raw] = []
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tools: list[Raw] = []


encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_reply = msgspec.json.Decoder(RpcReply).decode
decode_model_call = msgspec.json.Decoder(ModelCall).decode
decode_model_answer = msgspec.json.Decoder(ModelAnswer).decode
decode_control = msgspec.json.Decoder(Control).decode
decode_control_answer = msgspec.json.Decoder(ControlAnswer).decode
decode_resource_call = msgspec.json.Decoder[ResourceCall](ResourceCall).decode
decode_tool_answer = msgspec.json.Decoder(ToolAnswer).decode
decode_step_answer = msgspec.json.Decoder(StepAnswer).decode


def opens(call: SessionCall) -> bool:
    """Whether a call brings the task and may thereby open its session."""
    return bytes(call.task) != b"null"


def pack(body: object) -> Raw:
    """A call or an answer as the body of an envelope."""
    return Raw(encode(body))


def prefix_after(tokens: Tokens | None, items: int) -> Prefix | None:
    """The tokens of a conversation of so many items, its last answer included; None if nobody said."""
    if tokens is None or not tokens.prompt_ids:
        return None
    return Prefix(ids=tokens.prompt_ids + tokens.generation_ids, items=items)
