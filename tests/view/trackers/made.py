"""Records for trackers, and what an event file of TensorBoard holds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import Fault
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from msgspec import Raw


def record(
    task: int,
    rollout: int,
    reward: float | None,
    *,
    environment: str = "quiz",
    answer: str = "It is B.",
    **own: Any,
) -> RolloutRecord:
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": f"question {task}"}]},
        "response": {"output": [{"type": "message", "role": "assistant", "content": answer}]},
        "_gym": {"timing": {"turns": [{"model_s": 0.5, "tool_s": 0.1}], "verify_s": 0.01}, **own},
    }
    failed = Failed(fault=Fault(kind="model", message="the engine is gone"))
    return RolloutRecord(
        run="r",
        task_index=task,
        rollout_index=rollout,
        environment=environment,
        outcome=Completed() if reward is not None else failed,
        row=Raw(msgspec.json.encode(row)),
        reward=reward,
        numbers={"input_tokens": 10.0, "output_tokens": 5.0},
        turns=1,
        tool_calls=2,
        duration_s=2.0,
    )


def events(folder: Path) -> Iterator[Any]:
    """The events of the only event file in a folder: frames of length, checksum, data, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    data = path.read_bytes()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """The curves in an event file: values by step, by name."""
    found: dict[str, dict[int, float]] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def texts(folder: Path) -> dict[str, str]:
    """The latest text of each name in an event file."""
    found: dict[str, str] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.tensor.string_val:
                found[value.tag.removesuffix("/text_summary")] = value.tensor.string_val[0].decode()
    return found
