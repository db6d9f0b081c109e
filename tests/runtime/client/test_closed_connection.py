"""The end of a client's connection is an error where something still waits for it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_runtime.client import Client
from gym_runtime.errors import BrokerError, ConnectionLost
from gym_testing.background import hosting
from gym_testing.small_system import Hang
from runtime.client.running_client import NAME, rows, running_client

pytestmark = pytest.mark.anyio


async def test_a_loop_whose_connection_is_closed_raises() -> None:
    async with running_client(Hang()) as here, anyio.create_task_group() as reader:
        said: list[str] = []

        async def read(gym: Client) -> None:
            try:
                async for _ in gym.rollouts(rows(3), environment=NAME):
                    pass
            except ConnectionLost as error:
                said.append(str(error))

        async with here.system.broker.connect("leaving") as bus, hosting() as tasks:
            reader.start_soon(read, Client(bus, tasks))
            await here.engine.calls.until(3)
        with anyio.fail_after(10):
            while not said:
                await anyio.sleep(0.01)
    assert said == ["the connection was closed before this was complete"]


async def test_a_run_that_may_not_be_announced_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_client() as here, here.system.broker.connect("refused") as bus:
        serve = bus.serve

        def refused(subject: str, *arguments: Any, **keywords: Any) -> Any:
            if subject.startswith("alive.client"):
                raise BrokerError("not with these credentials")
            return serve(subject, *arguments, **keywords)

        said: list[str] = []

        async def stand(gym: Client) -> None:
            try:
                async with gym.standing_run(environment=NAME):
                    raise AssertionError("it is not announced")
            except BrokerError as error:
                said.append(str(error))

        monkeypatch.setattr(bus, "serve", refused)
        with anyio.fail_after(10):
            async with hosting() as tasks:
                gym = Client(bus, tasks)
                await stand(gym)
                monkeypatch.undo()
                assert len([one async for one in gym.rollouts(rows(1), environment=NAME)]) == 1
    assert said == ["not with these credentials"]
