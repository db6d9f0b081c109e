"""Our own loop of 20 turns in containers, while a resource worker is killed every few seconds."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.test_journal import gym_part
from faults.test_killed_programs import LONG_S, Loop, assert_like_twin, boxed, played
from gym_resources.swe import local_rows
from sandbox import images

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.soak, pytest.mark.anyio]


@pytest.fixture(params=["bubblewrap", "podman"])
def contained(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Loop]:
    """Our own loop in containers, with the same files without an image and in one, of which none is left."""
    if request.param == "bubblewrap":
        yield boxed()
        return
    with imaged(monkeypatch, tmp_path) as loop:
        yield loop


@contextmanager
def imaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Loop]:
    """Our own loop in containers of an image, of which none is left."""
    loop = boxed()
    with images.used("podman", monkeypatch) as found:
        repository = tmp_path / "testbed"
        for path, text in next(local_rows.agent_rows(1, 7))["files"].items():
            (repository / path).parent.mkdir(parents=True, exist_ok=True)
            (repository / path).write_text(text)
        git = ("git", "-c", "user.name=g", "-c", "user.email=g@g")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
            subprocess.run([*git, *words], cwd=repository, check=True)
        name = f"{images.NAME}-killed"
        if problem := images.imported(found, name, tmp_path):
            pytest.skip(problem)
        yield loop._replace(image=name)
        left = found.run("ps", "--all", "--quiet", f"--filter=ancestor={name}").stdout.split()
        assert not left


@pytest.mark.timeout(LONG_S)
async def test_hardly_a_call_is_repeated_in_a_box_whose_worker_is_killed(
    contained: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``GYM_TEST_ROLLOUTS`` says how many rollouts of 20 turns; a resource worker is killed every 5 s, if
    eight turns have been asked since."""
    loop, count = contained._replace(turns=20), int(os.environ.get("GYM_TEST_ROLLOUTS", "12"))
    twin = await played(loop, 1, monkeypatch)
    # A call that alone was at work in three workers that ended counts as what has ended them: none is alone,
    # and workers live until they have answered, however busy the machine is.
    start_s = time.monotonic()
    disturbed = await played(
        loop, count, monkeypatch, ["resource"] * 1000, every_s=(5.0, 5.0), left=4, turns=8
    )
    parts = [gym_part(record) for record in disturbed.records.values()]
    lost = [(part["rebuilt_sessions"], part.get("repeated_calls", 0)) for part in parts]
    again = sum(len(times) - 1 for times in disturbed.asked.values())
    with capsys.disabled():
        print(
            f"\n{count} rollouts in {time.monotonic() - start_s:.0f} s, {len(disturbed.killed)} kills, "
            f"{sum(one for one, _ in lost)} boxes lost, {sum(calls for _, calls in lost)} calls repeated, "
            f"at most {max(calls for _, calls in lost)} in a rollout, "
            f"{statistics.median(calls / one for one, calls in lost if one):.2f} a loss in the median one; "
            f"{again} of {len(disturbed.asked)} turns asked twice"
        )
    assert_like_twin(disturbed, twin, count)
    assert again == 0, "no agent was killed"
    assert any(one for one, _ in lost)
    assert all(calls <= 2 * one for one, calls in lost), "a state is saved after each call, but for a few"
