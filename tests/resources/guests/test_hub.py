"""``hub:`` names lead to installed packages of other libraries, by what these require."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_resources.guests import hub
from gym_runtime import UsageError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages as pip leaves them."""
    for name, required, points in (
        ("word-sums", "verifiers>=0.4", ""),
        ("capital_evals", "inspect-ai>=0.3 ; python_version > '3'", ""),
        ("plain-games", "numpy", ""),
        ("own-games", "gym-runtime", "[gym_runtime.environments]\nown = own_games\n"),
    ):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {required}\n"
        )
        (folder / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("address", "guest"),
    [
        ("someone/word-sums", "verifiers:word_sums"),
        ("word-sums?rows=3", "verifiers:word_sums?rows=3"),
        ("capital-evals/capitals?brief=true", "inspect:capital_evals/capitals?brief=true"),
    ],
)
def test_an_installed_package_is_its_librarys_guest(installed: None, address: str, guest: str) -> None:
    assert hub.guest(address) == guest


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("someone/absent", "pip install absent, .* prime env install someone/absent"),
        ("capital_evals", "name one: hub:capital_evals/TASK"),
        ("plain-games", "requires neither verifiers nor inspect-ai.*numpy"),
        ("own-games", "package of gym-runtime.*own_games"),
        ("..", "is not installed"),
    ],
)
def test_what_cannot_run_says_why(installed: None, address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        hub.environment(address)
