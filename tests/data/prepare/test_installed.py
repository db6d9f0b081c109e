"""Files of an installed package as a source of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_data.prepare.hub import find_installed
from gym_runtime import DatasetSource
from gym_runtime.errors import UsageError
from msgspec.structs import replace

SOURCE = DatasetSource(repo_id="own-numbers", installed=True, file="own_numbers/a.json", license="MIT")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution that is installed in its own folder."""
    (tmp_path / "own_numbers").mkdir()
    (tmp_path / "own_numbers/a.json").write_text("{}")
    described = tmp_path / "own_numbers-3.1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: own-numbers\nVersion: 3.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_file_of_a_package_is_found_with_its_version(package: Path) -> None:
    found = find_installed(SOURCE)
    assert (found.path, found.commit) == (package / "own_numbers/a.json", "3.1")
    with pytest.raises(UsageError, match=r"own-numbers 3.1 has no file own_numbers/b.json"):
        find_installed(replace(SOURCE, file="own_numbers/b.json"))


def test_a_package_that_is_missing_is_named_with_the_remedy() -> None:
    with pytest.raises(UsageError, match="pip install --no-deps own-numbers"):
        find_installed(SOURCE)
