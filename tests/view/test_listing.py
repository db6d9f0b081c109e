"""``ls``: which environments a listing shows."""

from __future__ import annotations

import pytest
from gym_runtime.errors import UsageError
from gym_view.commands.ls import EnvironmentEntry, describe_environment, ls
from tables import table

ENTRY = EnvironmentEntry(
    name="proofs",
    domain="math",
    extra="sandbox",
    data_license="CC-BY-4.0",
    description="Proofs of olympiads.",
    roles=["judge"],
)


@table(
    ("asked", "fits"),
    [
        (("", "", "", "", ""), True),
        (("OLYMPIADS proof", "math", "text", "cc-by", "judge"), True),
        (("olympiads geometry", "", "", "", ""), False),
        (("", "coding", "", "", ""), False),
        (("", "", "image", "", ""), False),
        (("", "", "", "MIT", ""), False),
        (("", "", "", "", "sandbox"), True),
        (("", "", "", "", "nothing"), False),
    ],
)
def test_an_entry_fits_what_is_asked_for(asked: tuple[str, str, str, str, str], fits: bool) -> None:
    assert ENTRY.fits(*asked) is fits


def test_an_environments_entry_has_its_modality_roles_and_kind() -> None:
    hle, clicks, mcqa = map(describe_environment, ("hle", "circle_click", "mcqa"))
    assert (hle.modality, hle.roles, hle.benchmark) == ("image", ["judge"], True)
    assert (clicks.modality, clicks.benchmark) == ("image", False)
    assert (mcqa.modality, mcqa.fits("", "", "", "", "nothing")) == ("text", True)


def test_a_recipe_lists_its_environments(capsys: pytest.CaptureFixture[str]) -> None:
    ls(recipe="nano-3", markdown=True)
    said = capsys.readouterr().out
    assert "| `code_gen` |" in said
    assert "| `gpqa` |" not in said


def test_what_cannot_be_answered_is_one_line() -> None:
    with pytest.raises(UsageError, match="there is no recipe 'nano'; did you mean"):
        ls(recipe="nano")
    with pytest.raises(UsageError, match="only environments are filtered"):
        ls("agents", search="loop")
    with pytest.raises(UsageError, match="no environment is like that"):
        ls(search="nothing has these words")
