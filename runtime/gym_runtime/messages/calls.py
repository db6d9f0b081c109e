"""Requests between workers: what an agent asks of a model and of a resource, and what comes back."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault
from gym_runtime.messages.responses import NULL


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of every request.

    Attributes:
        deadline_s: absolute, in seconds since the epoch; nobody works for this request after it.
        key: the same for every delivery of the same call, so that it is executed once.
        rollout: whose call this is (``<run_id>.<task_index>.<rollout_index>``), for logs and affinity.
        attempt: which execution of that rollout.
        body: the call itself; a router need not know it.
    """

    body: Raw
    deadline_s: float
    key: str = ""
    rollout: str = ""
    attempt: int = 1


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a `Request`: a body, or a fault, and how full the worker is (0 idle, 1 full)."""

    body: Raw = NULL
    fault: Fault | None = None
    worker: str = ""
    load: float = 0.0


# -- model --------------------------------------------------------------------------------------------


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a model to answer.

    Attributes:
        params: a row's ``responses_create_params`` without its input.
        input: the conversation so far, raw Responses API items, in order.
        return_tokens: report token ids and log-probabilities.
    """

    params: Raw
    input: list[Raw]
    return_tokens: bool = False


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
        weight_version: the version that answered, if the engine says.
    """

    response: Raw
    tokens: Tokens | None = None
    weight_version: str | None = None


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
    """An observation: items to append to the conversation, and what the step was worth."""

    items: list[Raw] = []
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_reply = msgspec.json.Decoder(Reply).decode
decode_model_call = msgspec.json.Decoder(ModelCall).decode
decode_model_answer = msgspec.json.Decoder(ModelAnswer).decode
decode_resource_call = msgspec.json.Decoder[ResourceCall](ResourceCall).decode
decode_tool_answer = msgspec.json.Decoder(ToolAnswer).decode
decode_step_answer = msgspec.json.Decoder(StepAnswer).decode


def opens(call: SessionCall) -> bool:
    """Whether a call brings the task and may thereby open its session."""
    return bytes(call.task) != b"null"


def pack(body: object) -> Raw:
    """A call or an answer as the body of an envelope."""
    return Raw(encode(body))
