"""Virtual time passes at once, in order, and the same way each time."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import cast

import anyio
import anyio.to_thread
import pytest
from gym_runtime import clock as epoch
from gym_testing import virtual_clock


def test_hours_pass_at_once() -> None:
    async def main() -> float:
        began_s = epoch.now()
        await anyio.sleep(100 * 3600)
        return epoch.now() - began_s

    assert virtual_clock.run(main) == 100 * 3600


def test_the_epochs_clock_is_the_loops_while_it_runs_and_no_longer() -> None:
    async def main() -> tuple[float, float]:
        await anyio.sleep(2.5)
        return anyio.current_time(), epoch.now()

    assert virtual_clock.run(main, start_s=1e9) == (2.5, 1e9 + 2.5)
    assert virtual_clock.run(main) == (2.5, virtual_clock.EPOCH_S + 2.5)
    assert abs(epoch.now() - time.time()) < 60


def test_timers_go_off_in_order_of_their_time() -> None:
    order: list[float] = []

    async def wait(seconds: float) -> None:
        await anyio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for seconds in (3.0, 0.1, 86400.0 * 400, 0.2, 1e-6):
                tasks.start_soon(wait, seconds)

    virtual_clock.run(main)
    assert order == sorted(order)
    assert len(order) == 5


def test_a_time_limit_is_virtual_too() -> None:
    async def main() -> float:
        with anyio.move_on_after(3600):
            await anyio.sleep(7200)
        return anyio.current_time()

    assert virtual_clock.run(main) == 3600


def test_chance_is_seeded_and_put_back() -> None:
    async def main() -> list[float]:
        return [random.random() for _ in range(3)]

    random.seed(1)
    expected = random.random()
    random.seed(1)
    assert (
        virtual_clock.run(main, seed=5) == virtual_clock.run(main, seed=5) != virtual_clock.run(main, seed=6)
    )
    assert random.random() == expected


def test_cancelled_tasks_end_in_the_same_order_each_time() -> None:
    def once() -> list[int]:
        order: list[int] = []

        async def wait(number: int) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                order.append(number)

        async def main() -> None:
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(wait, number)
                await anyio.sleep(1)
                tasks.cancel_scope.cancel()

        virtual_clock.run(main)
        return order

    first = once()
    assert sorted(first) == list(range(200))
    assert all(once() == first for _ in range(5))


def test_who_waits_for_what_cannot_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "PATIENCE_S", 0.01)

    async def main() -> None:
        await anyio.sleep(10)
        await anyio.Event().wait()

    with pytest.raises(virtual_clock.Deadlock, match="main"):
        virtual_clock.run(main)


def test_time_stands_still_while_a_thread_works() -> None:
    go = threading.Event()

    async def work() -> float:
        await anyio.to_thread.run_sync(go.wait)
        return anyio.current_time()

    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 10)
            timer = threading.Timer(0.05, go.set)
            timer.start()
            finished_s = await work()
        timer.join()
        return finished_s

    assert virtual_clock.run(main) == 0.0


def test_an_error_of_the_program_comes_out() -> None:
    async def main() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        virtual_clock.run(main)
    assert abs(epoch.now() - time.time()) < 60


def test_readings_nest() -> None:
    with epoch.reading(lambda: 1.0, lambda: 10.0):
        with epoch.reading(lambda: 2.0, lambda: 20.0):
            assert (epoch.now(), epoch.monotonic()) == (2.0, 20.0)
        assert (epoch.now(), epoch.monotonic()) == (1.0, 10.0)


def test_setting_the_time_of_day_changes_no_duration_and_wakes_no_one() -> None:
    async def main() -> None:
        loop = cast("virtual_clock.VirtualLoop", asyncio.get_running_loop())
        before_s, began_s = epoch.now(), epoch.monotonic()
        loop.set_clock(-3600)
        await anyio.sleep(5)
        assert epoch.now() == pytest.approx(before_s - 3595)
        assert epoch.monotonic() == pytest.approx(began_s + 5)

    virtual_clock.run(main)
