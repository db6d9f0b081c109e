"""What every command says on the terminal."""

from __future__ import annotations

import pytest
from gym_runtime.cli import terminal


def test_an_untested_python_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note_untested_python((3, 15))
    assert capsys.readouterr().err == "Python 3.15 is untested; the tests run on 3.11 to 3.13\n"


@pytest.mark.parametrize("version", [(3, 11), (3, 13)])
def test_a_tested_python_is_not(version: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note_untested_python(version)
    assert capsys.readouterr().err == ""
