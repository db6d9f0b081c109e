"""The pages on runs that learned show what their recorded figures say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs.pages import ROOT

EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"


def drawn_by(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(script).stem, EXAMPLES / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("script", "figures", "picture", "page"),
    [
        ("grpo_cpu/plot.py", "figures", "grpo-cpu.svg", "explanation/a-run-that-learns.md"),
        ("grpo_cpu/plot.py", "figures/signal", "grpo-cpu-signal.svg", "explanation/a-run-that-learns.md"),
        ("grpo_cpu/plot.py", "figures/gpu", "grpo-gpu.svg", "explanation/a-run-that-learns.md"),
        ("self_play_cpu/curve.py", "figures", "self-play.svg", "how-to/several-seats.md"),
        ("signal_cpu/curves.py", "figures", "signal-cpu.svg", "how-to/signal.md"),
    ],
)
def test_the_curve_and_the_table_are_those_of_the_recorded_runs(
    script: str, figures: str, picture: str, page: str
) -> None:
    drawn = drawn_by(script)
    recorded = drawn.runs((EXAMPLES / script).parent / figures)
    assert (DOCS / "images" / picture).read_text() == drawn.drawing(recorded)
    text = (DOCS / page).read_text()
    for line in drawn.table(recorded):
        assert line in text


def test_the_table_of_proposer_and_critic_is_that_of_the_recorded_runs() -> None:
    text = (DOCS / "how-to" / "several-seats.md").read_text()
    for seed in (1, 2, 3):
        figures = EXAMPLES / "self_play_cpu" / "critic_figures" / f"critic-{seed}.jsonl"
        first, *_, last = map(json.loads, figures.read_text().splitlines())
        means = [f"{one[seat]:.2f}" for seat in ("proposer", "critic") for one in (first, last)]
        assert f"| {seed} | {' | '.join(means)} |" in text


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_proposer_and_a_critic_are_trained_by_the_command(tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    script = str(EXAMPLES / "self_play_cpu" / "critic.py")
    command = [sys.executable, script, "--steps", "1", "--repeats", "2", "--log", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
    (step,) = map(json.loads, log.read_text().splitlines())
    assert step["samples"] > 32  # of both seats
    assert step["logp_difference"] == 0.0


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_self_play_is_repeated_by_its_command(tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    script = str(EXAMPLES / "self_play_cpu" / "train.py")
    command = [sys.executable, script, "--steps", "1", "--games", "8", "--every", "9", "--log", str(log)]
    logs: list[str] = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=80)
        assert done.returncode == 0, done.stderr
        logs.append(log.read_text())
    assert logs[0] == logs[1]
    first, step, last = map(json.loads, logs[0].splitlines())
    assert (first["step"], step["step"], last["step"]) == (0, 1, 1)
    assert step["samples"] > 8
    assert step["logp_difference"] == 0.0  # what is trained on is what was sampled
    assert set(step["baselines"]) == {"first", "second"}
