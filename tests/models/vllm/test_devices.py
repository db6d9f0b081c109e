"""Which accelerators a worker takes; no accelerator is needed for that."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from gym_models.vllm_engine.devices import hold_devices
from gym_runtime.errors import UsageError


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")


def test_each_worker_has_its_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_devices(2) as first:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")  # as another worker finds it
        with hold_devices(2) as second:
            assert (first, second) == (("4", "5"), ("6", "7"))
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
            with (
                pytest.raises(UsageError, match="no 2 of the accelerators 4, 5, 6, 7 are free"),
                hold_devices(2),
            ):
                pass


def test_a_group_that_was_left_is_free_again() -> None:
    for _ in range(2):
        with hold_devices(4) as held:
            assert held == ("4", "5", "6", "7")


def test_more_than_there_are() -> None:
    with pytest.raises(UsageError, match="no 8 of"), hold_devices(8):
        pass


def test_a_machine_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with hold_devices(1) as held:
        assert held == ()
