"""Interrupts that the interpreter wraps or drops, because they come while it imports a module."""

from __future__ import annotations

import os
import signal
import time

import pytest
from gym_runtime.cli import main
from gym_runtime.cli.interruption import held_back, terminable

LINE = "interrupted; run the same command with --resume to run the other rollouts"


class Interrupted:
    def __set_name__(self, owner: type, name: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)


def test_one_that_comes_while_a_class_is_made_is_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as raised, terminable():
        type("Made", (), {"field": Interrupted()})
    assert main.report(raised.value, resumable=True) == 130
    assert capsys.readouterr().err == LINE + "\n"


def test_one_that_comes_while_an_event_loop_starts_is_noted() -> None:
    with terminable():
        with held_back() as noted:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert sorted(noted) == [signal.SIGINT, signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)


class Dropping:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)


def test_one_that_is_dropped_is_raised_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), terminable():
        Dropping()
        time.sleep(5)
    assert capsys.readouterr().err == ""
