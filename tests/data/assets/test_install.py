"""The script that installs an asset."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from gym_data.prepare.asset_files import install
from gym_runtime import assets as cache
from gym_runtime.assets import Asset
from gym_runtime.errors import UsageError


def test_an_asset_is_installed_once_and_again_when_its_script_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path))
    asset = Asset(name="tool", description="a tool", licence="MIT", install="echo once >>made")
    made = cache.cached(asset) / "made"
    assert [install(asset), install(asset)] == [True, False]
    assert made.read_text() == "once\n"
    changed = msgspec.structs.replace(asset, install="echo twice >>made; exit 3")
    for _ in range(2):
        with pytest.raises(UsageError, match="exit code 3"):
            install(changed)
    assert made.read_text() == "once\ntwice\ntwice\n"
    assert not install(msgspec.structs.replace(asset, install=""))
