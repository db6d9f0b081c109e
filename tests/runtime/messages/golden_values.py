"""Values that occur in several messages, and their bytes."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime.errors import Fault
from gym_runtime.messages.metric_names import Count, Distribution, Figures
from runtime.messages.examples import Decode

FAULT = Fault(kind="model", name="ModelUnavailable", message="503", stage="model", retryable=True)


FAULT_JSON = b'{"kind":"model","name":"ModelUnavailable","message":"503","stage":"model","retryable":true}'


FIGURES = Figures(
    counts=[
        Count("gym.rollouts", ("e", "failed", "", ""), 3),
        Count("gym.role.time", ("e", "judge"), 0.5),
    ],
    distributions=[Distribution("gym.rollout.reward", ("mcqa",), (1, 0, 2), 0.5)],
    since_s=2.5,
    cpu_s=1.25,
    memory_bytes=4096,
)


FIGURES_JSON = (
    b'{"counts":[["gym.rollouts",["e","failed","",""],3],["gym.role.time",["e","judge"],0.5]],'
    b'"distributions":[["gym.rollout.reward",["mcqa"],[1,0,2],0.5]],"since_s":2.5,"cpu_s":1.25,"memory_bytes":4096}'
)


NULLS = b'"max_output_tokens":null,"max_tool_calls":null'


def decoder(kind: Any) -> Decode:
    return msgspec.json.Decoder(kind).decode
