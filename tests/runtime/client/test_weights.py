"""New weights by name: all workers agree, or it is an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from gym_models.scripted import Adapter
from gym_runtime.client import Client
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import Control, ControlAnswer, encode
from gym_runtime.workers.adapter import ModelSettings
from gym_runtime.workers.current_weights import current
from gym_testing.small_system import small_system

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Weights(Adapter):
    """The scripted engine, which can keep its old weights, refuse a command, and bring another worker."""

    def __init__(self) -> None:
        super().__init__(ModelSettings.parse("scripted/message"))
        self.commands: list[str] = []
        self.keeps_old = False
        self.refuses = ""
        self.meanwhile: Any = None

    async def control(self, command: Control) -> ControlAnswer:
        self.commands.append(command.op)
        if command.op == self.refuses:
            raise ModelRefused(f"this engine cannot {command.op}")
        if command.op == "update" and self.meanwhile is not None:
            joining, self.meanwhile = self.meanwhile, None
            await joining()
        if self.keeps_old and command.op in ("update", "set_version"):
            return await super().control(Control(op="state"))
        return await super().control(command)


@asynccontextmanager
async def two_engines() -> AsyncGenerator[tuple[Client, Weights, Weights, Any]]:
    first, second = Weights(), Weights()
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(first, name="model-1")
        await system.add_model(second, name="model-2")
        for engine in (first, second):
            engine.commands.clear()
        yield system.client, first, second, system


async def versions(gym: Client) -> dict[str, tuple[str, bool]]:
    answers = await gym.control(Control(op="state"))
    return {worker: (answer.version, answer.paused) for worker, answer in sorted(answers.items())}


async def test_all_workers_have_new_weights_afterwards() -> None:
    async with two_engines() as (gym, *_):
        await gym.update_weights("/weights/1", "step-1")
        assert await versions(gym) == {"model-1": ("step-1", False), "model-2": ("step-1", False)}


async def test_a_command_that_names_no_subject_for_its_answer_is_not_obeyed() -> None:
    """Any key of a secured broker can have an answer of JetStream delivered there, which names none."""
    async with two_engines() as (gym, *_, system):
        forged = Control(op="update", path="/weights/forged", version="forged")
        async with system.broker.connect("stranger") as stranger:
            await stranger.publish("control.model-1", encode(forged))
        assert await versions(gym) == {"model-1": ("", False), "model-2": ("", False)}


async def test_a_worker_that_dies_during_an_update_is_an_error_at_once() -> None:
    async with two_engines() as (gym, first, _, system):

        async def die() -> None:
            system.kill("model-1")
            await anyio.sleep_forever()

        first.meanwhile = die
        began_s = anyio.current_time()
        with pytest.raises(ModelUnavailable, match="model-1 died before it answered"):
            await gym.update_weights("/weights/1", "step-1")
        assert anyio.current_time() - began_s < 60


async def test_a_worker_that_starts_later_has_the_newest_weights_before_its_first_call() -> None:
    async with two_engines() as (gym, *_, system):
        await gym.update_weights("/weights/1", "step-1")
        await gym.update_weights("/weights/2", "step-2")
        third = Weights()
        worker = await system.add_model(third, name="model-3")
        assert (third.commands, worker.weight_version) == (["state", "update"], "step-2")
        # An update that fails is not what the next one loads, and no path is known of transferred weights.
        third.refuses = "update"
        with pytest.raises(ModelRefused):
            await gym.update_weights("/weights/3", "step-3")
        assert (await system.add_model(Weights(), name="model-4")).weight_version == "step-2"
        async with gym.weights_paused("step-4"):
            pass
        fresh = await system.add_model(Weights(), name="model-5")
        assert fresh.weight_version == ""


async def test_a_worker_that_starts_during_an_update_has_the_new_weights() -> None:
    async with two_engines() as (gym, *_, system):
        third = Weights()

        async def update() -> None:
            await gym.update_weights("/weights/2", "step-2")

        await gym.update_weights("/weights/1", "step-1")
        third.meanwhile = update
        worker = await system.add_model(third, name="model-3")
        assert worker.weight_version == "step-2"


async def test_a_worker_that_cannot_load_the_current_weights_serves_those_that_it_has(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with two_engines() as (gym, *_, system):
        await gym.update_weights("/weights/1", "step-1")
        third = Weights()
        third.refuses = "update"
        worker = await system.add_model(third, name="model-3")
        assert worker.weight_version == ""
    assert "does not have the current weights" in "".join(capfd.readouterr())


async def test_a_worker_that_keeps_its_old_weights_is_an_error_that_names_it() -> None:
    async with two_engines() as (gym, _, second, _):
        await gym.update_weights("/weights/1", "step-1")
        second.keeps_old = True
        with pytest.raises(
            ModelUnavailable, match="1 of 2 workers do not serve version 'step-2': model-2 has"
        ):
            await gym.update_weights("/weights/2", "step-2")


async def test_an_engine_that_stays_paused_is_an_error() -> None:
    async with two_engines() as (gym, *_):
        await gym.control(Control(op="pause"))
        with pytest.raises(ModelUnavailable, match=r"is paused .*gym-runtime weights resume"):
            await gym.update_weights("/weights/1", "step-1")


async def test_a_worker_that_joins_meanwhile_gets_them_too() -> None:
    third = Weights()
    async with two_engines() as (gym, first, _, system):

        async def join() -> None:
            await system.add_model(third, name="model-3")

        first.meanwhile = join
        await gym.update_weights("/weights/1", "step-1")
        assert third.commands[-1] == "update"
        assert set(await versions(gym)) == {"model-1", "model-2", "model-3"}


async def test_an_update_that_is_cancelled_is_not_what_later_engines_load() -> None:
    async with two_engines() as (gym, first, *_):
        await gym.update_weights("/weights/1", "step-1")
        scope = anyio.CancelScope()

        async def cancel() -> None:
            scope.cancel()

        first.meanwhile = cancel
        with scope:
            await gym.update_weights("/weights/2", "step-2")
        assert scope.cancelled_caught
        assert (await current(gym.driver.bus, "policy")).version == "step-1"


async def test_paused_while_the_trainer_transfers_them() -> None:
    async with two_engines() as (gym, *_):
        async with gym.weights_paused("step-1"):
            assert {paused for _, paused in (await versions(gym)).values()} == {True}
        assert await versions(gym) == {"model-1": ("step-1", False), "model-2": ("step-1", False)}


async def test_a_transfer_that_fails_leaves_generation_paused_and_says_so() -> None:
    async with two_engines() as (gym, *_):
        with pytest.raises(OSError, match="half of it") as caught:
            async with gym.weights_paused("step-1"):
                raise OSError("half of it")
        assert "stays paused" in caught.value.__notes__[0]
        assert {paused for _, paused in (await versions(gym)).values()} == {True}


async def test_if_one_cannot_pause_the_others_go_on() -> None:
    async with two_engines() as (gym, first, second, _):
        second.refuses = "pause"
        with pytest.raises(ModelRefused):
            async with gym.weights_paused("step-1"):
                pytest.fail("the body ran")
        assert first.commands[-1] == "resume"
        assert {paused for _, paused in (await versions(gym)).values()} == {False}


async def test_a_name_is_needed_and_a_model_that_is_served() -> None:
    async with two_engines() as (gym, *_):
        with pytest.raises(UsageError, match="version is empty"):
            await gym.update_weights("/weights/1", "")
        for number in (4, None):
            with pytest.raises(UsageError, match=f"version is {number}; it must be text, such as"):
                await gym.update_weights("/weights/1", cast("str", number))
            with pytest.raises(UsageError, match=f"version is {number}; it must be text, such as"):
                async with gym.weights_paused(cast("str", number)):
                    pytest.fail("nothing is paused")
        with pytest.raises(TypeError):
            await gym.update_weights(cast("str", None), "step-1")
        with pytest.raises(UsageError, match="no worker serves model 'critic'"):
            await gym.update_weights("/weights/1", "step-1", model="critic")


async def test_engines_go_on_when_the_caller_gives_up_while_they_are_being_paused() -> None:
    async with two_engines() as (gym, _, second, _):
        answered = second.control

        async def slow(command: Control) -> ControlAnswer:
            if command.op == "pause":
                await anyio.sleep(6)  # it ends a long generation first
            return await answered(command)

        second.control = slow
        with anyio.move_on_after(4) as given_up:
            async with gym.weights_paused("step-5"):
                raise AssertionError("it was given up before")
        assert given_up.cancelled_caught
        await anyio.sleep(6)
        assert {paused for _, paused in (await versions(gym)).values()} == {False}
