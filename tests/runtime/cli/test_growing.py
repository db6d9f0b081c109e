"""``run`` on files that are there already: resumed, grown, complete, replaced."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from runtime.cli.in_process import Ran, ran
from runtime.cli.started import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def run(folder: Path, *more: str, output: str = "out.jsonl") -> tuple[int, dict[str, Any], str]:
    """``run mcqa``; its status, its document and what it said."""
    command = ("run", "mcqa", "--model", "scripted/message", "-o", output, "--json")
    status, out, said = ran(folder, *command, *more)
    return status, json.loads(out) if out else {}, said


def keys(folder: Path) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def test_a_run_grows_is_complete_and_is_replaced(tmp_path: Path) -> None:
    status, document, _ = run(tmp_path, "--limit", "2")
    assert (status, document["summary"]["rollouts"]) == (0, 2)
    first = (tmp_path / "out.jsonl").read_bytes()

    status, _, said = run(tmp_path, "--limit", "3", "--resume")
    assert status == 2
    assert "limit was 2, is 3" in said
    assert "--resume --extend makes the run larger" in said

    status, document, _ = run(tmp_path, "--limit", "3", "--repeats", "2", "--resume", "--extend")
    assert (status, document["summary"]["rollouts"], document["rollouts"]) == (0, 6, 4)
    assert sorted(keys(tmp_path)) == [(task, rollout) for task in range(3) for rollout in range(2)]
    assert (tmp_path / "out.jsonl").read_bytes().startswith(first)

    # No broker is there: whatever was started would fail.
    status, document, said = run(
        tmp_path, "--limit", "3", "--repeats", "2", "--resume", "--nats", "nats://127.0.0.1:1"
    )
    assert (status, document["summary"]["rollouts"], document["rollouts"]) == (0, 6, 0)
    assert said == "the run is complete: no rollouts are left; --extend makes it larger\n"

    # So much takes seconds to be read.
    (tmp_path / "out.jsonl").write_bytes(b" " * 60 * 10**6 + b"\n" + (tmp_path / "out.jsonl").read_bytes())
    status, _, said = run(tmp_path, "--limit", "3", "--repeats", "2", "--resume")
    assert (status, said.splitlines()[0]) == (0, "reading out.jsonl, 60 MB …")

    status, _, said = run(tmp_path, "--limit", "1")
    assert status == 2
    assert "(--overwrite)" in said
    status, document, _ = run(tmp_path, "--limit", "1", "--overwrite")
    assert (status, keys(tmp_path)) == (0, [(0, 0)])


def test_names_of_files_need_not_be_utf_8(tmp_path: Path) -> None:
    rows = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    rows.write_bytes(catalogue.environment("mcqa").examples.read_bytes())
    output = tmp_path / os.fsdecode(b"out\xe9.jsonl")
    for more in ((), ("--resume",)):
        status, document, said = run(tmp_path, "-i", str(rows), *more, output=str(output))
        assert (status, document.get("summary", {}).get("rollouts")) == (0, 5), said
    assert len(output.read_bytes().splitlines()) == 5


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--extend"], "--resume --extend"), (["--overwrite", "--resume"], "leave one of them out")],
)
def test_flags_that_contradict_each_other(flags: list[str], message: str, tmp_path: Path) -> None:
    status, _, said = run(tmp_path, *flags)
    assert (status, message in said, said.count("\n")) == (2, True, 1)


def test_a_budget_stops_a_run_which_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    limits = ["--repeats", "40", "--concurrency", "1"]
    status, document, said = run(tmp_path, *limits, "--max-tokens-total", "1")
    made = document["summary"]["rollouts"]
    assert status == 1
    assert 1 <= made < 200
    assert document["not_made"] == 200 - made
    assert document["rollouts"] == made
    assert f"Finished {made} / 200 rollouts" in said
    assert "--max-tokens-total 1 is reached: " in said
    assert "run the same command with --resume" in said
    assert len(keys(tmp_path)) == made

    status, document, said = run(tmp_path, *limits, "--max-tokens-total", "1", "--resume")
    assert (status, document["rollouts"], "is reached" in said) == (1, 0, True)

    prices = ["--price-in", "1000000", "--price-out", "2000000"]
    status, document, said = run(tmp_path, *limits, *prices, "--max-cost", "1e9", "--resume")
    summary = document["summary"]
    assert (status, summary["rollouts"]) == (0, 200)
    assert document["cost"] == summary["input_tokens"] + 2 * summary["output_tokens"]


def test_money_without_prices_is_refused(tmp_path: Path) -> None:
    status, _, said = run(tmp_path, "--max-cost", "1")
    assert (status, "--price-in" in said) == (2, True)


def test_a_shuffled_run_is_resumed_in_its_order(tmp_path: Path) -> None:
    flags = ["--shuffle-seed", "5", "--limit", "4"]
    status, _, _ = run(tmp_path, *flags)
    assert (status, sorted(keys(tmp_path))) == (0, [(task, 0) for task in range(4)])
    asked = [
        json.loads(row)["_ng_task_index"]
        for row in (tmp_path / "out_materialized_inputs.jsonl").read_text().splitlines()
    ]
    assert sorted(asked) == [0, 1, 2, 3]
    assert asked != sorted(asked)
    assert run(tmp_path, *flags, "--resume")[0] == 0
    status, _, said = run(tmp_path, "--limit", "4", "--resume")
    assert (status, "shuffle_seed was 5, is not set" in said) == (2, True)


def test_a_run_s_standard_error_has_one_format_and_says_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_LOG_LEVEL", "info")
    command = [SCRIPT, "run", "mcqa", "--model", "scripted/message", "--limit", "1", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    said = ended.stderr
    assert [line for line in said.splitlines() if line.startswith("{")] == []
    [loading] = [line for line in said.splitlines() if "loading environments" in line]
    assert "environments=['mcqa'] worker=resource-" in loading


GROUPED = '''"""Everybody of a group gets its size."""

from gym_runtime import Candidates, Environment, Pending, Reply, Task, Verdict


class AnyTask(Task):
    pass


async def verify(task: AnyTask, reply: Reply) -> Pending:
    return Pending(reply.text)


async def compare(candidates: Candidates[AnyTask]) -> list[Verdict]:
    return [Verdict(float(len(candidates)))] * len(candidates)


environment = Environment(resource=verify, compare=compare, agent="single_turn", description="Sizes.")
'''


def test_a_run_of_groups_grows_by_groups_and_is_judged_again(tmp_path: Path) -> None:
    def grown(*more: str) -> Ran:
        return ran(tmp_path, "run", "sizes", "--model", "scripted/message", "-o", "out.jsonl", *more)

    (tmp_path / "sizes.py").write_text(GROUPED)
    rows = [{"responses_create_params": {"input": f"q{number % 2}"}, "gold": "x"} for number in range(3)]
    (tmp_path / "sizes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    alone = grown("--repeats", "1")
    assert alone.status == 2
    assert "repeats must be at least 2 (--repeats N)" in alone.err
    assert grown("--repeats", "2").status == 0
    # A rollout that nothing could be compared with is not made.
    lone = grown("--repeats", "3", "--resume", "--extend")
    assert (lone.status, "task 0 would get one new rollout, with nothing to compare" in lone.err) == (2, True)
    assert grown("--repeats", "5", "--resume", "--extend").status == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [(row["_ng_task_index"], row["reward"]) for row in found[:4]].count((0, 2.0)) == 2
    groups = sorted((row["_ng_task_index"], row["_gym"]["compared"], row["reward"]) for row in found)
    parts = ([0, 1], [2, 3, 4])
    assert groups == [(task, part, float(len(part))) for task in (0, 1) for part in parts for _ in part]
    again = ran(tmp_path, "reverify", "sizes", "--rollouts", "out.jsonl", "-o", "again.jsonl", "--strict")
    assert again.status == 0, again.err
    assert "10 rewards equal" in again.out
    # A row that stands twice in the file is one task, and all of its rollouts are one group.
    (tmp_path / "sizes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    second = ran(tmp_path, "run", "sizes", "--model", "scripted/message", "-o", "two.jsonl", "--repeats", "2")
    assert second.status == 0, second.err
    found = [json.loads(line) for line in (tmp_path / "two.jsonl").read_bytes().splitlines()]
    assert sorted(row["reward"] for row in found) == [2.0] * 2 + [4.0] * 4
