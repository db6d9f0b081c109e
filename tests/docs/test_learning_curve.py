"""The pages on the runs that learned show what their recorded figures say."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from docs.pages import ROOT

EXAMPLES = ROOT / "examples"


def plot(example: str, module: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module, EXAMPLES / example / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("example", "module", "picture", "page"),
    [
        ("grpo_cpu", "plot", "grpo-cpu", "explanation/a-run-that-learns"),
        ("signal_cpu", "curves", "signal-cpu", "how-to/signal"),
    ],
)
def test_the_curve_and_the_table_are_those_of_the_recorded_runs(
    example: str, module: str, picture: str, page: str
) -> None:
    drawn = plot(example, module)
    recorded = drawn.runs(EXAMPLES / example / "figures")
    assert (ROOT / "docs" / "images" / f"{picture}.svg").read_text() == drawn.drawing(recorded)
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for line in drawn.table(recorded):
        assert line in text
