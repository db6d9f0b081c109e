"""Proofs checked by a Lean that only speaks the protocols (`stubs.stub_lean`), on each kind of Lean."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_resources.lean import checker, repl_pool
from gym_resources.lean.program import build, proof_in
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import ResourceError, UsageError
from gym_sandbox import Limits, bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from gym_testing.checks import contract
from resources.judging import NEMO_GYM_ROWS, judge, row
from stubs.stub_lean import StubServer, lean_folder, stub_server

pytestmark = pytest.mark.anyio
HEADER = "import Mathlib\n\n"
STATEMENT = "theorem gold (n : ℕ) : n + 0 = n := by\n"
KINDS = ("/verify", "/api/check", "/execute", "repl", "lake")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the asset's; skipped where nothing can be isolated."""
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    monkeypatch.setenv(checker.FOLDER, str(tmp_path))
    return lean_folder(tmp_path)


@pytest.fixture(params=KINDS)
async def lean(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StubServer]:
    """Each kind of Lean."""
    with stub_server() as server:
        kind: str = request.param
        monkeypatch.setenv(checker.SETTING, f"{server.address}{kind}" if kind.startswith("/") else kind)
        yield server
        await checker.close()


async def proved(
    proof: str, *, header: str = HEADER, statement: str = STATEMENT, limit_s: float = 20
) -> Verdict:
    task = row(header=header, formal_statement=statement, name="gold", compilation_timeout=limit_s)
    return await judge("math_formal_lean", task, f"Here it is.\n\n```lean4\n{proof}\n```")


@pytest.mark.parametrize(
    ("proof", "status"),
    [
        ("  rfl", "completed"),
        (f"{HEADER}{STATEMENT}  simp", "completed"),
        ("  unsolved", "failed"),
        ("  quiet_hole", "has_sorry"),
        ("  sorry", "has_sorry"),
        ("  by_native", "forbidden"),
        ("  by_native\n  trace_forged", "forbidden"),
        ("  native_decide", "forbidden"),
        ("", "empty_generation"),
    ],
)
async def test_what_lean_says_decides(lean: StubServer, proof: str, status: str) -> None:
    verdict = await proved(proof)
    assert verdict.fields["proof_status"] == status
    assert verdict.reward == float(status == "completed")


@pytest.mark.slow
async def test_a_proof_that_takes_too_long_is_stopped(lean: StubServer) -> None:
    assert (await proved("  hang_here", limit_s=1)).fields["proof_status"] == "timeout"
    assert (await proved("  rfl")).reward == 1.0


async def test_lines_are_counted_from_the_proofs_first_one(lean: StubServer) -> None:
    verdict = await proved("  have h := 1\n  unsolved")
    assert "line 2: unsolved goals" in verdict.fields["error_feedback"].replace("line 3", "line 2")


@pytest.mark.slow
async def test_the_environment_keeps_the_contract(lean: StubServer) -> None:
    findings = await contract.check(catalogue.environment("math_formal_lean"))
    assert not [finding for finding in findings if not finding.passed]


@pytest.mark.parametrize("kind", ["/verify", "/api/check", "/execute"])
async def test_a_server_that_fails_is_no_reward(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_server() as server:
        monkeypatch.setenv(checker.SETTING, server.address + kind)
        for status in (429, 500, 302):
            server.failing = status
            with pytest.raises(ResourceError, match=str(status)) as caught:
                await proved("  rfl")
            assert caught.value.retryable
        server.failing = 0
        if kind != "/execute":
            with pytest.raises(ResourceError, match="header command timed out"):
                await proved("  rfl", header="import Slow\n")
    with pytest.raises(ResourceError, match="cannot be reached"):
        await proved("  rfl")


async def test_a_header_is_loaded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = repl_pool.Pool(checker._command(), str(folder))
    seen: set[str] = set()
    for proof in ("  who_am_i", "  who_am_i -- again"):
        seen.add((await pool.check(build(HEADER, STATEMENT, proof), 20)).errors[0].data)
    assert len(seen) == 1
    assert "home /tmp" in seen.pop()
    await pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("trick", ["end_here", "no_json", "hang_here"])
async def test_a_process_that_a_proof_spoils_is_replaced(folder: Path, trick: str) -> None:
    pool = repl_pool.Pool(checker._command(), str(folder))
    spoiled = await pool.check(build(HEADER, STATEMENT, f"  {trick}"), 1)
    assert spoiled.status != "completed"
    assert (await pool.check(build(HEADER, STATEMENT, "  rfl"), 20)).status == "completed"
    await pool.close()


@pytest.mark.slow
async def test_memory_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repl_pool, "LIMITS", Limits(memory_bytes=200 << 20, open_files=256))
    pool = repl_pool.Pool(checker._command(), str(folder))
    assert (await pool.check(build(HEADER, STATEMENT, "  fill_memory"), 60)).status == "failed"
    assert (await pool.check(build(HEADER, STATEMENT, "  rfl"), 20)).status == "completed"
    await pool.close()


async def test_a_header_that_cannot_be_loaded_is_no_reward(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(checker.SETTING, "repl")
    with pytest.raises(ResourceError, match="unknown module prefix"):
        await proved("  rfl", header="import Missing\n")
    await checker.close()


async def test_many_proofs_share_the_processes(folder: Path) -> None:
    pool = repl_pool.Pool(checker._command(), str(folder))
    statuses: list[str] = []

    async def one(number: int) -> None:
        proof = "  rfl" if number % 2 else "  unsolved"
        statuses.append((await pool.check(build(HEADER, STATEMENT, proof), 30)).status)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(one, number)
    assert sorted(statuses) == ["completed"] * 6 + ["failed"] * 6
    assert len(pool._idle) <= (os.cpu_count() or 2)
    await pool.close()


def test_without_lean_the_environment_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(checker.SETTING, "")
    monkeypatch.setenv(checker.FOLDER, str(tmp_path))
    with pytest.raises(UsageError, match="prepare --assets math_formal_lean"):
        checker.require()
    monkeypatch.setenv(checker.SETTING, "mathlib")
    with pytest.raises(UsageError, match="it is repl, lake, or the address"):
        checker.require()


@pytest.mark.parametrize("name", ["nemotron_clean_easy", "nemotron_very_easy_simple_agent"])
def test_all_configurations_are_this_environment(name: str) -> None:
    assert catalogue.resolve_agent_ref(name) == "math_formal_lean"
    assert catalogue.resolve_agent_ref("math_formal_lean_refinement_agent") == "math_formal_lean"


def test_rows_are_read_as_they_are() -> None:
    resource = catalogue.environment("math_formal_lean").resource
    task = resource.task(row(header="", formal_statement=STATEMENT, split="test", informal_prefix=None))
    assert msgspec.structs.asdict(task)["max_correction_turns"] == 2


@pytest.mark.parametrize("path", sorted((NEMO_GYM_ROWS / "math_formal_lean").glob("multi_turn_*.jsonl")))
def test_the_proofs_of_recorded_rollouts_are_found(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        recorded = msgspec.json.decode(line)
        text = Reply(msgspec.json.encode(recorded["response"])).text
        proof = proof_in(text).removeprefix("by").strip()
        assert proof
        assert proof in recorded["predicted_proof"]
