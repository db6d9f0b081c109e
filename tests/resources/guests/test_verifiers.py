"""Environments of verifiers 0.4, the package itself: one turn, tools, turns, judges, seats."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gym_runtime.cli.main import run
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed, Failed, Truncated
from gym_testing.small_system import Engine, answer, function_call
from resources.guests.guest_runs import OWN, guest, made, own_rows, result, said

pytest.importorskip("verifiers.v1", reason="needs verifiers 0.4: pip install 'gym-runtime[verifiers]'")
pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

SUMS = f"verifiers:{OWN / 'sums.py'}"
LEDGER = f"verifiers:{OWN / 'ledger.py'}"
HIGHER = f"verifiers:{OWN / 'higher.py'}"


def add(amount: int, call_id: str = "c") -> dict[str, Any]:
    return function_call("book_add", json.dumps({"amount": amount}), call_id)


async def test_one_turn_with_rewards_and_metrics() -> None:
    name = f"{SUMS}?rows=2&system=hint.txt"
    assert len(own_rows(SUMS)) == 3
    rows = own_rows(name)
    assert own_rows(name) == rows
    async with guest(name, answer("2")) as system:
        wrong, right = await made(system, name, rows)
    assert (wrong.reward, right.reward) == (0.5, 1.5)
    row = result(right)
    assert row["reward_components"] == {"right": 1.0, "short": 0.5}
    assert row["letters"] == 1.0
    assert said(right) == [("system", "hint.txt"), ("user", "1+1="), ("assistant", "2")]


async def test_tools_work_on_the_rollouts_state() -> None:
    turns = [
        answer(add(1, "a"), add(1, "b")),
        answer(function_call("book_fail", "{}", "d"), function_call("nothing", "{}", "e")),
        answer(function_call("book_add", '{"amount": "x"}', "f"), function_call("book_add", "[", "g")),
        answer("done"),
    ]
    async with guest(LEDGER, *turns) as system:
        wrong, right = await made(system, LEDGER, own_rows(LEDGER, 2))
    assert (wrong.reward, right.reward) == (0.0, 1.0)
    outputs = [text for kind, text in said(right) if kind == "function_call_output"]
    assert outputs[:2] == ["201", "202"]
    assert "tool fail" in outputs[2]  # mcp 2.3 leaves out why
    assert "unknown tool" in outputs[3]
    assert "amount" in outputs[4]
    assert "invalid JSON" in outputs[5]
    offered = result(right)["responses_create_params"]["tools"]
    assert {tool["name"] for tool in offered} == {"book_add", "book_fail"}


async def test_a_stop_of_the_task_ends_the_rollout() -> None:
    name = f"{LEDGER}?task.most=1"
    async with guest(name, answer(add(1)), answer(add(1)), answer("never")) as system:
        (record,) = await made(system, name, own_rows(name, 2)[1:])
    assert isinstance(record.outcome, Completed)
    assert record.reward == 1.0
    assert result(record)["stop_condition"] == "too_much"


async def test_a_game_over_turns_is_the_same_for_all_rollouts_of_a_row() -> None:
    turns = [answer(str(guess)) for guess in range(1, 9)]
    silent = {"roles": {"commentator": "policy"}}
    async with guest(HIGHER, *turns) as system:
        records = await made(system, HIGHER, own_rows(HIGHER), repeats=3, **silent)
        rewards = {record.reward for record in records}
        (reward,) = rewards
        assert reward is not None
        tries = round(1 / reward)
        record = records[0]
        assert said(record)[:3] == [("system", "a game"), ("user", "Guess"), ("assistant", "1")]
        assert result(record)["tries"] == tries
        if tries > 1:
            (cut,) = await made(system, HIGHER, own_rows(HIGHER), max_turns=1, **silent)
            assert isinstance(cut.outcome, Truncated)
            assert cut.reward == 0.0


async def test_a_judge_is_the_model_in_the_role_judge() -> None:
    name = f"{LEDGER}?task.judged=true"
    rows = own_rows(name, 1)
    judge = Engine(answer("yes"))
    async with guest(name, answer("one"), judge=judge) as system:
        (record,) = await made(system, name, rows, roles={"judge": "judge"})
        assert record.reward == 2.0, record.ending
        (call, _) = judge.calls.items[0]
        assert "one" in str(bytes(call.input[-1]))
        assert result(record)["_gym"]["roles"]["judge"]["calls"] == 1
        (alone,) = await made(system, name, rows, max_attempts=1)
        assert alone.reward is None
        assert "--judge" in alone.ending


async def test_a_seat_that_is_not_trained_is_a_role() -> None:
    name = f"{HIGHER}?env.commented=true"
    roles = [role.name for role in catalogue.environment(name).definition.declared_roles]
    assert roles == ["commentator", "judge"]
    turns = [answer(str(guess)) for guess in range(1, 9)]
    async with guest(name, *turns, commentator=Engine(answer("0.25"))) as system:
        (record,) = await made(system, name, own_rows(name), roles={"commentator": "commentator"})
    assert result(record)["reward_components"]["style"] == 0.25


async def test_a_reward_that_raises_is_a_failure_and_no_reward() -> None:
    name = f"{LEDGER}?task.broken=true"
    async with guest(name, answer("x")) as system:
        (record,) = await made(system, name, own_rows(name, 1), max_attempts=1)
    assert record.reward is None
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.kind == "resource"
    assert "the reward is broken" in record.outcome.fault.message


async def test_a_row_of_another_taskset_is_the_tasks_failure() -> None:
    async with guest(SUMS, answer("x")) as system:
        (record,) = await made(system, SUMS, own_rows(HIGHER), max_attempts=1)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.kind, "answer" in record.outcome.fault.message) == ("task", True)


def test_names_and_settings(tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text("import no_such_library\n")
    for wrong, problem in (
        ("verifiers:no-such-taskset", "there is no taskset 'no-such-taskset'"),
        (f"{SUMS}?rowz=1", "rowz"),
        (f"verifiers:{tmp_path / 'raises.py'}", r"no_such_library.*raises\.py:1"),
        (f"{HIGHER}?env.trained_both=true", "trains 2 seats"),
        (f"verifiers:{OWN / 'harnessed.py'}", "has the harness 'harnessed'"),
    ):
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(wrong)
    with pytest.raises(UsageError, match="--limit N"):
        own_rows(LEDGER)


def test_a_run_from_the_command_line_can_be_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = ["run", SUMS, "--model", "scripted/echo", "--output", "out.jsonl"]
    assert run(command) == 0
    assert run([*command, "--resume"]) == 0
    assert "no rollouts are left" in capfd.readouterr().err
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3


def test_an_environment_for_an_older_verifiers_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "old_names.py").write_text(
        "from verifiers import SingleTurnEnv\ndef load_environment(): ...\n"
    )
    (tmp_path / "old_module.py").write_text("def load_environment(): ...\n")
    (tmp_path / "no_names.py").write_text("from verifiers import SingleTurnEnv\n")
    for name, old in (("old_names", True), ("old_module", True), ("no_names", False)):
        with pytest.raises(UsageError) as caught:
            catalogue.environment(f"verifiers:{tmp_path / name}.py")
        assert ("it is for verifiers before 0.4" in caught.value.message) == old, caught.value.message


async def test_arguments_that_are_nested_too_deep_are_the_models_mistake() -> None:
    from gym_resources.guests.played.verifiers_loop import Tools

    call = SimpleNamespace(name="add", arguments="[" * 100_000)
    assert "invalid JSON in tool arguments" in await Tools().call(call)
