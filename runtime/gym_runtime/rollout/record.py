"""The result row of a rollout, with NeMo Gym's field names, and the record that carries it.

The row has ``responses_create_params`` and ``response`` with every field, ``reward``, the dataset's own
fields, the verifier's fields, ``_ng_task_index``, ``_ng_rollout_index`` and ``agent_ref``. Fields that only
this runtime writes, such as how long the rollout's parts took, are under ``_gym``. Large parts are not
decoded, only joined as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, RoleLog
from gym_runtime.errors import UNREADABLE, GymError
from gym_runtime.messages.branches import Branches
from gym_runtime.messages.call_tokens import CallTokens, Tokens, chained, with_tokens
from gym_runtime.messages.calls import RoleUse, role_numbers
from gym_runtime.messages.metric_names import HOP_DURATION
from gym_runtime.messages.names import is_own
from gym_runtime.messages.outcomes import Failed, Outcome, RolloutRecord, Waiting, number_of, without_input
from gym_runtime.messages.repeated_images import RepeatedImages
from gym_runtime.messages.responses import NULL, CreateParams, Response
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rpc.meter import Meter

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass(eq=False)
class RolloutTimes:
    """Seconds, by turn; ``meter`` counts them, too.

    ``queue_s`` is how long the rollout waited for an agent. A model's time includes waiting for a worker and
    every retry. ``role_use`` is what the environment's roles have cost so far, kept by its owner.
    """

    _meter: Meter
    _environment: str
    _role_use: Mapping[str, RoleUse]
    _turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _roles_s: dict[str, float] = field(default_factory=dict[str, float])
    _verify_s: float = 0.0
    _verify_roles_s: dict[str, float] = field(default_factory=dict[str, float])
    _told_s: dict[str, float] = field(default_factory=dict[str, float])
    queue_s: float = 0.0

    def __post_init__(self) -> None:
        self._environment_roles()  # an earlier attempt's

    @contextmanager
    def hop(self, name: Literal["model", "tool", "verify"]) -> Generator[None]:
        """Time a turn's model call, the tool calls (or the step) of the latest turn, or the verification.

        A block that raises counts nothing.
        """
        began_s = clock.monotonic()
        yield
        took_s = round(clock.monotonic() - began_s, 4)
        self._meter.observe(HOP_DURATION, took_s, name, self._environment)
        if name == "model":
            if not self._turns:  # those that the environment asked when it was opened
                _add(self._roles_s, self._environment_roles())
            self._turns.append({"model_s": took_s})
        elif name == "verify":
            self._verify_s = took_s
            self._verify_roles_s = self._environment_roles()
        # The first observation of a step-by-step environment comes before any turn.
        elif self._turns:
            turn = self._turns[-1]
            turn["tool_s"] = round(turn.get("tool_s", 0.0) + took_s, 4)
            if asked_s := self._environment_roles():
                _add(turn.setdefault("tool_roles_s", {}), asked_s)

    def _environment_roles(self) -> dict[str, float]:
        """Seconds of the environment's roles since this was last asked, by role."""
        use, told_s = self._role_use, self._told_s
        self._told_s = {role: one.seconds for role, one in use.items()}
        grown = {role: round(one.seconds - told_s.get(role, 0.0), 4) for role, one in use.items()}
        return {role: seconds for role, seconds in grown.items() if seconds > 0}

    @contextmanager
    def role(self, name: str) -> Generator[None]:
        """Time the agent's question to a model in a role: after the latest turn, or before all of them."""
        began_s = clock.monotonic()
        yield
        seconds = self._turns[-1].setdefault("roles_s", {}) if self._turns else self._roles_s
        _add(seconds, {name: clock.monotonic() - began_s})

    def fields(self) -> dict[str, Any]:
        """``turns``, a list of ``model_s``, ``tool_s`` and ``roles_s``; further times, where known.

        These are ``queue_s``, ``verify_s``, and of roles that were asked before the first turn ``roles_s``,
        by role. ``tool_roles_s`` is the time that the environment's roles took during a turn's tool calls,
        and ``verify_roles_s`` during the verification. Questions that ran at the same time are added up, so
        ``tool_roles_s`` may exceed ``tool_s``, and ``verify_roles_s`` may exceed ``verify_s``.
        """
        around = {
            "queue_s": round(self.queue_s, 4),
            "roles_s": self._roles_s,
            "verify_s": self._verify_s,
            "verify_roles_s": self._verify_roles_s,
        }
        return {"turns": self._turns, **{name: seconds for name, seconds in around.items() if seconds}}


def _add(seconds: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        seconds[name] = round(seconds.get(name, 0.0) + value, 4)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt's part of its row. The defaults are those of a rollout that never began.

    Attributes:
        row_fields: the fields of the dataset's row.
        params: ``responses_create_params``, as the model was last asked.
        tokens: the model calls' tokens, by the index of the call's last item in the response's output.
        branches: all model calls, if they are more than one line.
        seat: the main one of several.
        timing: how long its parts took.
        roles: the answers of models in roles to the agent.
        shared_items: how many items of the transcript a fork shares, up to the last shared answer.
        differed: the shared turns, from 1, after which the environment answered differently.
        restored_turns: so many shared turns' calls were not repeated: the session began with a saved state.
        saved: the names of the states that forks may begin with, by the turn, from 1.
        repeated_calls: calls that rebuilt sessions were asked again.
        drifted_calls: a program's calls that got a recorded answer and were not exactly the recorded ones.
    """

    row_fields: Mapping[str, Raw]
    params: CreateParams | Raw | None = None
    response: Response | None = None
    tokens: Mapping[int, Tokens] = {}
    branches: Branches = Branches()
    seat: str = ""
    turns: int = 0
    tool_calls: int = 0
    resumed_turns: int = 0
    rebuilt_sessions: int = 0
    weight_versions: Sequence[str] = ()
    timing: Mapping[str, Any] = {}
    roles: RoleLog = msgspec.field(default_factory=RoleLog)
    shared_items: int = 0
    differed: Sequence[int] = ()
    restored_turns: int = 0
    saved: Mapping[int, str] = {}
    repeated_calls: int = 0
    drifted_calls: int = 0

    @classmethod
    def of_row(cls, row: Raw) -> Facts:
        """The facts of a rollout that never began; its row may be unreadable."""
        try:
            fields = _fields(row)
        except UNREADABLE:
            fields = {}
        return cls(row_fields=fields, params=fields.get("responses_create_params"))


def make_record(
    task: RolloutSpec,
    outcome: Outcome,
    facts: Facts,
    *,
    attempt: int,
    verdict: JudgedVerdict | JudgedPending | None = None,
    duration_s: float = 0.0,
    worker: str,
    role_use: Mapping[str, RoleUse] | None = None,
    started_anew: Sequence[str] = (),
) -> RolloutRecord:
    """The record of one rollout; its row has a reward if there is a `JudgedVerdict`.

    Args:
        role_use: what the environment's roles have cost; not needed with a verdict, which has it.
        started_anew: the reasons why earlier attempts' work was discarded.
    """
    pending = verdict if isinstance(verdict, JudgedPending) else None
    roles = RoleLog(facts.roles.answers, facts.roles.use)
    if verdict is None:
        roles.extend(RoleLog(use=role_use))
    else:
        roles.extend(RoleLog(verdict.role_answers, verdict.role_use))
    verdict = verdict if isinstance(verdict, JudgedVerdict) else None
    tokens = chained(facts.tokens)
    numbers: dict[str, float] = {}
    row: dict[str, Any] = {}
    params, left_out = facts.params, None
    if task.has_row and isinstance(params, CreateParams):
        params, left_out = without_input(task.row, params)
    if params is not None:
        row["responses_create_params"] = params
    if (response := facts.response) is not None:
        # Each item carries its own tokens, unless the client writes them.
        if tokens and not task.packed_tokens:
            response = msgspec.structs.replace(response, output=with_tokens(response.output, tokens))
        row["response"] = response
    if verdict is not None:
        row["reward"] = verdict.reward
    _add_fields(row, numbers, facts.row_fields)
    if verdict is not None:
        add_verdict(row, numbers, verdict.reward, verdict.components, verdict.fields)
    if facts.response is not None and facts.response.usage is not None:
        usage = facts.response.usage
        numbers["input_tokens"] = usage.input_tokens
        numbers["output_tokens"] = usage.output_tokens
        numbers["total_tokens"] = usage.total_tokens
    if roles.use:
        numbers.update(role_numbers(roles.use))
    row["_ng_task_index"] = task.task_index
    row["_ng_rollout_index"] = task.rollout_index
    row["agent_ref"] = {"name": task.environment} if task.agent_ref is NULL else task.agent_ref
    row["_gym"] = {
        "rollout_id": task.rollout_id,
        "environment": task.environment,
        "attempt": attempt,
        "outcome": outcome,
        "turns": facts.turns,
        "tool_calls": facts.tool_calls,
        "resumed_turns": facts.resumed_turns,
        "rebuilt_sessions": facts.rebuilt_sessions,
        "duration_s": round(duration_s, 4),
        **_where_known(task, facts, tokens, roles, started_anew),
        **({"rewards": verdict.rewards} if verdict is not None and verdict.rewards else {}),
    }
    encoded = _encode(row)
    packed = RepeatedImages().packed(encoded) if task.names_images else encoded
    return RolloutRecord(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        environment=task.environment,
        outcome=outcome,
        row=Raw(packed),
        images=packed is not encoded,
        left_out=left_out,
        attempt=attempt,
        reward=None if verdict is None else verdict.reward,
        numbers=numbers,
        roles=roles.use,
        turns=facts.turns,
        tool_calls=facts.tool_calls,
        duration_s=duration_s,
        worker=worker,
        group=task.group,
        # Without the row, which the record has already.
        waiting=None
        if pending is None
        else Waiting(features=pending.features, task=msgspec.structs.replace(task, row=NULL, fork=None)),
        tokens=tokens if task.packed_tokens else [],
        seat=facts.seat,
        rewards={} if verdict is None else verdict.rewards,
    )


def refused_record(task: RolloutSpec, error: GymError, worker: str) -> RolloutRecord:
    """The record of a rollout that failed before it began."""
    outcome = Failed(fault=error.fault())
    return make_record(task, outcome, Facts.of_row(task.row), attempt=task.attempt_base + 1, worker=worker)


def add_verdict(
    row: dict[str, Any],
    numbers: dict[str, float],
    reward: float,
    components: Mapping[str, float],
    fields: Mapping[str, Any],
) -> None:
    """Add a verdict's fields to a row that has the ``reward`` already, and its numbers."""
    for name, value in components.items():
        _count(numbers, name, value)
    _add_fields(row, numbers, fields)
    if components:
        row["reward_components"] = components
    numbers["reward"] = reward


def _add_fields(row: dict[str, Any], numbers: dict[str, float], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        # Neither a dataset nor a verifier may replace the runtime's own fields.
        if not is_own(name):
            row[name] = value
            _count(numbers, name, value)


def _where_known(
    task: RolloutSpec,
    facts: Facts,
    tokens: Sequence[CallTokens],
    roles: RoleLog,
    started_anew: Sequence[str],
) -> dict[str, Any]:
    """The fields of ``_gym`` that most rows lack."""
    fork = task.fork
    known = {
        "fork": fork
        and {
            "rollout_id": fork.rollout_id,
            "task_index": fork.task_index,
            "rollout_index": fork.rollout_index,
            "turn": len(fork.turns),
            "items": facts.shared_items,
            "changed": fork.changed,
            "differed": facts.differed,
            **({"restored_turns": facts.restored_turns} if facts.restored_turns else {}),
        },
        "saved": facts.saved and {"turns": facts.saved, "origins": fork.saved_in if fork else []},
        "started_anew": started_anew,
        "repeated_calls": facts.repeated_calls,
        "drifted_calls": facts.drifted_calls,
        "weight_versions": facts.weight_versions,
        "token_segments": tokens[-1].segment + 1 if tokens else 0,
        "tokens_resampled": facts.branches.resampled,
        "calls": facts.branches.calls,
        "seat": facts.seat,
        "timing": facts.timing,
        "roles": roles.use,
        "role_answers": roles.answers if roles.use else (),
        "role_sampling": task.role_sampling if roles.use else {},
    }
    return {name: value for name, value in known.items() if value}


def _count(numbers: dict[str, float], name: str, value: object) -> None:
    """Store a field if it is a number; an earlier number under its name is removed in any case."""
    numbers.pop(name, None)
    value = number_of(value) if isinstance(value, Raw) else value
    if isinstance(value, (bool, int, float)):
        # An integer of JSON may be larger than any float.
        with suppress(OverflowError):
            number = float(value)
            # JSON has no infinity or NaN: a record with them could not be decoded.
            if math.isfinite(number):
                numbers[name] = number
