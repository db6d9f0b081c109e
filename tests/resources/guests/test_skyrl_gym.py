"""Environments of skyrl-gym, the package itself: its own, and one of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.main import run
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed, Failed, Truncated
from gym_testing.small_system import answer
from installed import needs
from resources.guests.guest_runs import OWN, guest, made, own_rows, result, said

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs("skyrl_gym", "skyrl-gym")]

GUESS = f"skyrl-gym:{OWN / 'guess.py'}:Guess"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": []},
    "prompt": [{"role": "system", "content": "a game"}],
    "skyrl_gym": {"reward_spec": {"ground_truth": "7"}},
}


async def test_an_environment_of_its_own_over_turns() -> None:
    name = "skyrl-gym:gsm8k_multi_turn?max_turns=3"
    row = {**ROW, "skyrl_gym": {"reward_spec": {"ground_truth": "18"}, "extra_info": {}}}
    async with guest(name, answer("I think #### 17"), answer("#### 18")) as system:
        (record,) = await made(system, name, [row])
    assert isinstance(record.outcome, Completed)
    assert record.reward == pytest.approx(1 + 0.2 / 3)
    assert result(record)["steps"] == 2.0
    assert [role for role, _ in said(record)] == ["system", "assistant", "user", "assistant"]


async def test_an_environment_of_a_file_with_settings_and_a_limit() -> None:
    name = f"{GUESS}?hint=Warm&max_turns=9"
    async with guest(name, answer("1"), answer("2"), answer("7")) as system:
        (record,) = await made(system, name, [ROW])
        assert said(record) == [
            ("system", "a game"),
            ("user", "Guess!"),
            ("assistant", "1"),
            ("user", "No. Warm"),
            ("assistant", "2"),
            ("user", "No. Warm"),
            ("assistant", "7"),
        ]
        assert record.reward == pytest.approx(0.8)
        assert "note" not in result(record)
        (record,) = await made(system, name, [ROW], max_turns=2)
        assert isinstance(record.outcome, Truncated)
        assert record.reward == pytest.approx(-0.2)


async def test_an_answer_that_stops_short_is_judged_too() -> None:
    short = answer("7", incomplete_details={"reason": "max_output_tokens"}, status="incomplete")
    async with guest(GUESS, answer("1"), short) as system:
        (record,) = await made(system, GUESS, [ROW])
    assert isinstance(record.outcome, Truncated)
    assert record.reward == pytest.approx(0.9)


async def test_a_scorer_that_raises_is_a_failure_and_no_reward() -> None:
    name = f"skyrl-gym:{OWN / 'guess.py'}:Broken"
    async with guest(name, answer("7")) as system:
        (record,) = await made(system, name, [ROW], max_attempts=1)
    assert record.reward is None
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.kind == "resource"
    assert "the scorer is broken" in record.outcome.fault.message


async def test_a_reply_that_takes_over_its_fork_changes_no_other_rollout() -> None:
    name = f"skyrl-gym:{OWN / 'guess.py'}:Trusting"
    forge = "kind.right = True; import os, glob; open(os.path.join(os.environ['HOME'], 'right'), 'w')"
    look = "import os; assert not os.path.exists(os.path.join(os.environ['HOME'], 'right'))"
    async with guest(name, answer(forge)) as system:
        (forged,) = await made(system, name, [ROW])
    catalogue._guests.clear()
    async with guest(name, answer(look), answer("7 == 8"), answer("0")) as system:
        (other,) = await made(system, name, [ROW])
    assert forged.reward == 1.0  # its own: nothing else can be asked of a scorer that executes answers
    assert other.reward is not None
    assert other.reward < 0


def test_rows_in_skyrls_format(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"prompt": [{"role": "user", "content": "2+2"}], "env_class": "os", "reward_spec": {"a": 1}}
    file.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    wanted = {
        "responses_create_params": {"input": []},
        "prompt": row["prompt"],
        "skyrl_gym": {"reward_spec": {"a": 1}},
    }
    assert own_rows(f"skyrl-gym:gsm8k?data={file}") == [wanted, wanted]
    assert own_rows(f"skyrl-gym:gsm8k?data={file}", 1) == [wanted]
    for data, problem in (
        ("", "has no rows"),
        ("nowhere.jsonl", "cannot be read"),
        (str(OWN), "cannot be read"),
    ):
        with pytest.raises(UsageError, match=problem):
            own_rows(f"skyrl-gym:gsm8k?data={data}")
    for text, problem in (("[1]", "row 1 is no object"), ("[" * 100_000, "cannot be read")):
        file.write_text(text)
        with pytest.raises(UsageError, match=problem):
            own_rows(f"skyrl-gym:gsm8k?data={file}")


def test_rows_of_parquet_are_exact(tmp_path: Path) -> None:
    """Numbers had ten digits after the point, and a whole number beside an empty field became a fraction."""
    arrow: Any = pytest.importorskip("pyarrow", reason="needs pip install 'gym-runtime[parquet]'")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    prompt = [{"role": "user", "content": "a\u2028b"}]
    rows = [{"prompt": prompt, "spec": {"tolerance": 1e-12, "answer": 2 / 3}, "limit": n} for n in (5, None)]
    parquet.write_table(arrow.Table.from_pylist(rows), file)
    found = own_rows(f"skyrl-gym:gsm8k?data={file}")
    assert json.dumps([{"prompt": one["prompt"], **one["skyrl_gym"]} for one in found]) == json.dumps(rows)


def test_names() -> None:
    for wrong, problem in (
        ("skyrl-gym:gsm9k", "There are aime, gsm8k"),
        (f"skyrl-gym:{OWN / 'guess.py'}:Guest", "has no class 'Guest'"),
        (f"skyrl-gym:{OWN / 'guess.py'}:Any", "has no class 'Any'"),
    ):
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(wrong)
    with pytest.raises(UsageError, match="there is no environment"):
        catalogue.known_environment(GUESS)  # data names no guest


def test_a_run_from_the_command_line_can_be_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    row = {"prompt": [{"role": "user", "content": "2+2"}], "reward_spec": {"ground_truth": "Guess!"}}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 3)
    command = ["run", f"{GUESS}?data=rows.jsonl", "--model", "scripted/echo", "--output", "out.jsonl"]
    assert run([*command, "--limit", "2"]) == 0
    assert run([*command, "--limit", "2", "--resume"]) == 0
    assert "no rollouts are left" in capfd.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [1.0, 1.0]
