"""The page on the run that learned shows what its recorded figures say."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from docs.pages import ROOT

EXAMPLE = ROOT / "examples" / "grpo_cpu"
PAGE = ROOT / "docs" / "explanation" / "a-run-that-learns.md"


def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot", EXAMPLE / "plot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_curve_and_the_table_are_those_of_the_recorded_runs() -> None:
    drawn = plot()
    recorded = drawn.runs(EXAMPLE / "figures")
    assert (ROOT / "docs" / "images" / "grpo-cpu.svg").read_text() == drawn.drawing(recorded)
    page = PAGE.read_text()
    for line in drawn.table(recorded):
        assert line in page
