"""The messages between workers: every struct of the wire."""

from __future__ import annotations

from docstrings import fields_table, parsed, prose
from gym_runtime.errors import Fault
from gym_runtime.messages import (
    alarms,
    call_tokens,
    calls,
    metric_names,
    outcomes,
    rollout_spec,
    run_control,
    stored_records,
)
from gym_runtime.rollout.journal import Answered, TurnRecord
from gym_runtime.rpc.members import Heartbeat

INTRODUCTION = """# Messages on the wire

JSON, encoded and decoded by [msgspec](https://jcristharif.com/msgspec/) structs. Unknown fields are ignored
and new fields have defaults, so workers of neighbouring versions understand each other; a test holds the
bytes of every message. Fields that have their default are left out. `Raw` is JSON that is passed on as it
came.

Subjects are written without the system's prefix (`gym.` unless `--prefix` says otherwise).
"""
CHAPTERS = {
    "Tasks and results": [
        (rollout_spec.RolloutSpec, "`task.<agent>.>` in the stream TASKS"),
        (outcomes.RolloutRecord, "`rollout.<run>.<task>.<rollout>` in the stream ROLLOUTS, stored once"),
        (outcomes.Waiting, ""),
        (outcomes.LeftOut, ""),
        (rollout_spec.GroupSpan, ""),
        (rollout_spec.Candidate, ""),
        (calls.Comparison, "in an `RpcReply`, and in the record of a comparison"),
        (calls.ComparedVerdict, ""),
        (outcomes.Completed, ""),
        (outcomes.Truncated, ""),
        (outcomes.Failed, ""),
        (outcomes.Cancelled, ""),
        (Fault, ""),
        (stored_records.RunInfo, "`runs.<run>` in the stream RUNS"),
        (alarms.Alarm, ""),
        (
            stored_records.Asked,
            "the payload of `cancel.<run>…` and `drain.<kind>.<worker>`, and `runs.<run>.cancelled.<task>…` "
            "in the stream RUNS; an empty one says nothing",
        ),
        (
            run_control.RunControl,
            "`runs.<run>.control` in the stream RUNS; an empty `cancel.<run>.control` says that it changed",
        ),
        (stored_records.CurrentWeights, "`runs.weights.<pool>` in the stream RUNS"),
    ],
    "Requests": [
        (calls.Request, "`model.<pool>`, `model.<pool>.<worker>`, and the same with `resource`"),
        (calls.RpcReply, "the subject that the request names for its answer"),
    ],
    "Calls to models": [
        (calls.ModelCall, "in a `Request`"),
        (call_tokens.Prefix, ""),
        (calls.ModelAnswer, "in an `RpcReply`"),
        (call_tokens.Tokens, ""),
        (call_tokens.WeightSpan, ""),
        (calls.Control, "`control.<worker>`"),
        (calls.ControlAnswer, "in an `RpcReply`"),
    ],
    "Calls to environments": [
        (calls.OpenSession, "in a `Request`"),
        (calls.CallTool, "in a `Request`"),
        (calls.StepCall, "in a `Request`"),
        (calls.Verify, "in a `Request`"),
        (calls.Compare, "in a `Request`"),
        (calls.CloseSession, "in a `Request`"),
        (calls.ToolAnswer, "in an `RpcReply`"),
        (calls.StepAnswer, "in an `RpcReply`"),
        (calls.Declare, "in a `Request`"),
        (calls.Declaration, "in an `RpcReply`"),
        (calls.DeclaredRole, ""),
    ],
    "The journal": [
        (TurnRecord, "`journal.<run>.<block>.<task>.<rollout>` in the stream JOURNAL, one per turn"),
        (Answered, ""),
    ],
    "Workers": [
        (
            Heartbeat,
            "`join.<kind>.<worker>`, `gone.<kind>.<worker>`, and the answer on `alive.<kind>.<worker>`",
        ),
        (metric_names.Figures, "in a `Heartbeat` or a `RunInfo`"),
        (metric_names.Count, "an array in `Figures`"),
        (metric_names.Distribution, "an array in `Figures`"),
        (calls.Draining, "the answer on `drain.<kind>.<worker>`"),
    ],
}


def page() -> str:
    """The page."""
    parts = [INTRODUCTION]
    for title, structs in CHAPTERS.items():
        parts.append(f"## {title}")
        for struct, where in structs:
            config = struct.__struct_config__
            tag = f'`"{config.tag_field}": "{config.tag}"`' if config.tag_field else ""
            said = "; ".join(
                filter(None, [f"where: {where}" if where else "", f"told apart by {tag}" if tag else ""])
            )
            said = said[:1].upper() + said[1:] + "." if said else ""
            parts += [f"### `{struct.__name__}`", prose(parsed(struct)), said, fields_table(struct)]
    return "\n\n".join(filter(None, parts))
