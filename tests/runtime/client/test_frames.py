"""Records as plain Python and as data frames of the real libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from gym_runtime import frame
from gym_runtime.errors import Fault, TaskError, UsageError
from gym_runtime.messages.calls import RoleUse
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord, Truncated
from msgspec import Raw
from msgspec.structs import replace

RIGHT = RolloutRecord(
    run="r",
    task_index=0,
    rollout_index=1,
    environment="sums",
    outcome=Truncated(reason="max_turns"),
    row=Raw(b'{"responses_create_params":{"input":"1+1"},"reward":1.0,"_ng_task_index":0}'),
    reward=1,
    numbers={"reward": 1.0, "format": 0.5, "turns": 99, "output_tokens": 7},
    roles={"judge": RoleUse(calls=1)},
    turns=3,
)
LOST = replace(RIGHT, rollout_index=2, outcome=Failed(fault=Fault(kind="model", message="down")), reward=None)
LOST = replace(LOST, numbers={"late": 2.5})
RECORDS = [LOST] * 200 + [RIGHT, replace(RIGHT, reward=0.5, outcome=Completed())]
"""Many without a reward come first: the type of a column follows from all of its values."""


def test_a_record_is_a_dictionary_that_json_can_hold() -> None:
    found = RIGHT.to_dict()
    assert found["row"]["responses_create_params"] == {"input": "1+1"}
    assert found["outcome"] == {"type": "truncated", "reason": "max_turns"}
    assert (found["rollout_id"], found["ending"]) == ("r.0.1", "truncated: max_turns")
    assert (found["reward"], LOST.to_dict()["reward"]) == (1, None)
    assert LOST.to_dict()["outcome"]["fault"]["message"] == "down"
    assert found["roles"]["judge"]["calls"] == 1
    assert not {"tokens", "group", "waiting", "comparison"} & {*found}
    assert json.loads(json.dumps(found)) == found


def test_a_damaged_row_is_one_error() -> None:
    with pytest.raises(TaskError, match="not a row: Input data was truncated"):
        replace(RIGHT, row=Raw(b'{"a":')).to_dict()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_of_each_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = pytest.importorskip(library, reason="needs pip install 'gym-runtime[dev]'")
    other = {"pandas": "polars", "polars": "pandas"}[library]
    monkeypatch.setitem(sys.modules, other, None)
    found = frame(iter(RECORDS))
    assert isinstance(found, made.DataFrame)
    assert found.shape == (202, 12 + 3)
    assert found["reward"].mean() == 0.75
    assert list(found["outcome"])[-3:] == ["failed", "truncated", "completed"]
    assert list(found["turns"])[-1] == 3  # the record's own, whatever the row calls its own number
    assert list(found["format"])[-2:] == [0.5, 0.5]
    assert found["late"].sum() == 500
    assert "failed: down" in list(found["ending"])
    assert frame([]).shape == (0, 12)
    assert len(frame(RIGHT)) == 1
    with pytest.raises(UsageError, match=r"value of type int; 'gym-runtime export .* of a result file"):
        frame([1])  # pyright: ignore[reportArgumentType]


def test_without_a_library_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError) as caught:
        frame([RIGHT])
    assert caught.value.message == "gym_runtime.frame needs pandas or polars: pip install pandas"


@pytest.mark.slow
def test_of_two_libraries_it_takes_the_one_in_use() -> None:
    for library in ("pandas", "polars"):
        pytest.importorskip(library, reason="needs pip install 'gym-runtime[dev]'")
    code = "import gym_runtime, {}; print(type(gym_runtime.frame([])).__module__.partition('.')[0])"
    said = subprocess.run(
        [sys.executable, "-c", code.format("polars")], capture_output=True, text=True, check=True
    )
    assert said.stdout == "polars\n"
