"""The bytes of every message, of this version and of older ones."""

from __future__ import annotations

import inspect
import json
from types import ModuleType
from typing import Any

import msgspec
import pytest
from gym_runtime import errors
from gym_runtime.environment import roles as role_models
from gym_runtime.environment.roles import Role
from gym_runtime.errors import Fault
from gym_runtime.messages import (
    branches,
    call_tokens,
    calls,
    outcomes,
    responses,
    routed_experts,
    run_control,
    stored_records,
)
from gym_runtime.messages import rollout_spec as tasks
from gym_runtime.messages.calls import (
    CloseSession,
    ModelAnswer,
    ModelCall,
    Request,
    RpcReply,
    StepAnswer,
    ToolAnswer,
)
from gym_runtime.messages.metric_names import Figures
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.messages.responses import (
    CreateParams,
    Item,
    Response,
    Usage,
)
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rpc.members import Heartbeat
from msgspec import Raw
from runtime.messages import golden_calls, golden_rollouts, golden_runs
from runtime.messages.examples import Decode, encode
from runtime.messages.golden_values import decoder
from tables import table

GOLDEN = [*golden_calls.GOLDEN, *golden_rollouts.GOLDEN, *golden_runs.GOLDEN]


IDS = [f"{type(message).__name__}-{number}" for number, (_, message, _) in enumerate(GOLDEN)]


WIRE = [golden for golden in GOLDEN if not isinstance(golden[1], CreateParams)]


ABSTRACT = {Item, calls.SessionCall, Role}


def structs(module: ModuleType) -> set[type]:
    return {
        cls
        for name, cls in vars(module).items()
        if inspect.isclass(cls)
        and issubclass(cls, msgspec.Struct)
        and cls.__module__ == module.__name__
        and not name.startswith("_")
    }


def test_every_message_has_golden_bytes() -> None:
    modules = (
        *(calls, outcomes, responses, role_models, tasks),
        *(stored_records, run_control, branches, call_tokens, routed_experts, errors),
    )
    there = set[type]().union(*map(structs, modules))
    elsewhere = {Figures, Heartbeat}
    assert there - ABSTRACT == {type(message) for _, message, _ in GOLDEN} - elsewhere


def test_every_field_is_in_golden_bytes() -> None:
    shown: dict[type, set[str]] = {}
    for _, message, golden in GOLDEN:
        shown.setdefault(type(message), set()).update(json.loads(golden))
    hidden = {
        f"{cls.__name__}.{field}"
        for cls, fields in shown.items()
        for field in cls.__struct_encode_fields__
        if field not in fields
    }
    # A closing call carries no task; it only inherits the field.
    assert hidden == {"CloseSession.task"}


@table(("decode", "message", "golden"), GOLDEN, ids=IDS)
def test_golden_bytes(decode: Decode, message: Any, golden: bytes) -> None:
    assert encode(message) == golden
    assert decode(golden) == message
    assert encode(decode(golden)) == golden


@table(("decode", "message", "golden"), WIRE, ids=[i for i in IDS if "Params" not in i])
def test_fields_of_a_newer_version_are_ignored(decode: Decode, message: Any, golden: bytes) -> None:
    comma = b"" if golden == b"{}" else b","
    newer = b'{"zz_new":{"deep":[1,null,"x"]}' + comma + golden[1:-1] + b',"zz_too":[]}'
    assert decode(newer) == message


@pytest.mark.parametrize(
    ("decode", "old", "message"),
    [
        (decoder(Fault), b'{"kind":"task"}', Fault(kind="task", retryable=False, stage="")),
        (
            calls.decode_request,
            b'{"body":{},"deadline_s":1}',
            Request(body=Raw(b"{}"), deadline_s=1.0, key="", rollout="", attempt=1),
        ),
        (calls.decode_reply, b"{}", RpcReply(body=Raw(b"null"), fault=None, worker="", load=0.0)),
        (calls.decode_model_call, b'{"params":{},"input":[]}', ModelCall(params=Raw(b"{}"), input=[])),
        (calls.decode_model_answer, b'{"response":{}}', ModelAnswer(response=Raw(b"{}"), tokens=None)),
        (calls.decode_step_answer, b"{}", StepAnswer(items=[], reward=0.0)),
        (
            outcomes.decode_record,
            b'{"run":"r","task_index":0,"rollout_index":0,"environment":"e","outcome":{"type":"completed"},'
            b'"row":{}}',
            RolloutRecord(
                run="r", task_index=0, rollout_index=0, environment="e", outcome=Completed(), row=Raw(b"{}")
            ),
        ),
        (responses.decode_response, b"{}", Response()),
        (decoder(Usage), b"{}", Usage()),
    ],
)
def test_fields_that_an_older_version_lacks_have_defaults(decode: Decode, old: bytes, message: Any) -> None:
    assert decode(old) == message


@pytest.mark.parametrize("op", [b'"dance"', b"null", b"1"])
def test_an_unknown_call_is_refused(op: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        calls.decode_resource_call(b'{"op":' + op + b',"session":"s"}')


def test_whether_a_call_opens_its_session() -> None:
    assert not calls.opens(CloseSession(session="s"))
    assert not calls.opens(calls.decode_resource_call(b'{"op":"close","session":"s","task":null}'))
    assert calls.opens(calls.decode_resource_call(b'{"op":"open","session":"s","task":{}}'))


def test_an_envelope_does_not_decode_its_body() -> None:
    body = b'{"a" :\t[1.0, 1e400],"a":2}'
    request = calls.decode_request(b'{"body":' + body + b',"deadline_s":1}')
    assert bytes(request.body) == body
    assert bytes(calls.pack(ToolAnswer(output="x"))) == b'{"output":"x"}'


def test_the_rollout_id_is_the_same_from_task_to_record() -> None:
    where = {"run": "r", "task_index": 4, "rollout_index": 2, "environment": "e"}
    task = RolloutSpec(**where, agent="a", row=Raw(b"{}"))
    record = RolloutRecord(**where, outcome=Completed(), row=Raw(b"{}"))
    assert task.rollout_id == record.rollout_id == "r.4.2"
