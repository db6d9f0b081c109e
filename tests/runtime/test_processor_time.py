from __future__ import annotations

import signal
import time
from contextlib import suppress

import pytest
from gym_sandbox.processes.processor_time import within


@pytest.mark.slow
def test_a_step_is_bounded_by_the_time_of_the_processor() -> None:
    def waits() -> str:
        time.sleep(0.4)  # as on a machine that has no processor for it
        return "done"

    assert within(0.2, waits, "stopped") == "done"
    assert within(0.0, waits, "stopped") == "stopped"
    start_s = time.process_time()
    assert within(0.1, busy_outside_the_handler, "stopped") == "stopped"
    assert time.process_time() - start_s < 5
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def busy_outside_the_handler() -> str:
    """Catches the first stop, as sympy may, and goes on."""
    with suppress(BaseException):
        while True:
            sum(range(1000))
    while True:
        sum(range(1000))
