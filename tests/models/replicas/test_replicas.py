"""Several engines behind one adapter: joining, dying, coming back."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from gym_models.wire.engine import Engine
from gym_models.wire.load import Load
from gym_models.wire.replicas import Replicas
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import ModelAnswer
from gym_runtime.retrying import Pauses
from models.model_calls import output
from models.replicas.fleets import ask, fleet, homes, until, up
from ports import free_port
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def ask_many(replicas: Replicas[Engine], count: int, **more: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(lambda number=number: ask(replicas, f"r.{number}.0", **more))


async def test_one_that_is_late_joins() -> None:
    port = free_port()
    with stub_engine.running() as one:
        async with fleet(one.url, f"http://127.0.0.1:{port}/v1") as replicas:
            assert up(replicas) == {one.url}
            await ask_many(replicas, 16)
            with stub_engine.running("--port", str(port)) as late:
                await until(lambda: late.url in up(replicas))
                await ask(replicas, homes(replicas, late.url))
                assert late.stats().requests == 1


async def test_none_at_all_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match="none of 2 replicas can be used: nothing listens at"):
        await fleet("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1").__aenter__()


async def test_one_without_the_model_stays_out(stubs: Callable[..., StubEngine]) -> None:
    good, other = stubs(), stubs("--models", "another")
    async with fleet(good.url, other.url) as replicas:
        assert up(replicas) == {good.url}
        await ask_many(replicas, 16)
        assert other.stats().requests == 0


@pytest.mark.slow
async def test_one_that_dies_is_out_and_comes_back() -> None:
    port = str(free_port())
    with stub_engine.running() as stays, ExitStack() as mortal:
        dies = mortal.enter_context(stub_engine.running("--port", port))
        async with fleet(stays.url, dies.url) as replicas:
            rollout = homes(replicas, dies.url)
            mortal.close()
            with pytest.raises(ModelUnavailable):
                await ask(replicas, rollout)
            assert up(replicas) == {stays.url}
            assert output(await ask(replicas, rollout))
            with stub_engine.running("--port", port) as back:
                await until(lambda: len(up(replicas)) == 2)
                await ask(replicas, rollout)
                assert back.stats().requests == 1


async def test_calls_in_flight_at_one_that_dies_go_elsewhere_when_asked_again() -> None:
    with stub_engine.running() as stays, ExitStack() as mortal:
        dies = mortal.enter_context(stub_engine.running("--latency-s", "60"))
        async with fleet(stays.url, dies.url) as replicas:
            rollout = homes(replicas, dies.url)
            answers: list[ModelAnswer] = []

            async def as_a_worker_does() -> None:
                with pytest.raises(ModelUnavailable):
                    await ask(replicas, rollout)
                answers.append(await ask(replicas, rollout))

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(as_a_worker_does)
                await until(lambda: dies.stats().in_flight == 8)
                mortal.close()
            assert len(answers) == 8
            assert stays.stats().requests == 8
            assert {one.in_flight for one in replicas.states()} == {0}


async def test_one_that_answers_503_is_left_at_once_and_checked(stubs: Callable[..., StubEngine]) -> None:
    broken, sound = stubs("--fault", "503"), stubs()
    async with fleet(broken.url, sound.url, look_s=60) as replicas:
        rollout = homes(replicas, broken.url)
        with pytest.raises(ModelUnavailable, match="503"):
            await ask(replicas, rollout)
        assert output(await ask(replicas, rollout))
        await until(lambda: broken.url in up(replicas))


async def test_one_whose_checks_succeed_and_whose_calls_fail_rests(
    stubs: Callable[..., StubEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_models.wire.replica.RESTS", Pauses(first_s=600, longest_s=600))
    broken, sound = stubs(), stubs()
    async with fleet(broken.url, sound.url) as replicas:
        rollout = homes(replicas, broken.url)
        (state,) = (one for one in replicas.states() if one.url == broken.url)
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match="503"):
                await ask(replicas, rollout, x_stub_fault="503")
            await until(lambda: broken.url in up(replicas))
        await ask(replicas, rollout)
        assert sound.stats().requests == 1
        state.rests_until_s = 0.0
        await ask(replicas, rollout)
        assert (sound.stats().requests, state.failed) == (1, 0)


async def test_one_whose_calls_hang_rests(
    stubs: Callable[..., StubEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, sound = stubs(), stubs()
    async with fleet(hangs.url, sound.url) as replicas:
        rollout = homes(replicas, hangs.url)
        (state,) = (one for one in replicas.states() if one.url == hangs.url)

        async def give_up_a_call(then: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: ask(replicas, rollout, x_stub_fault="hang"))
                await until(lambda: state.in_flight == 1)
                await then()
                tasks.cancel_scope.cancel()

        await give_up_a_call()
        assert not state.failed, "it was asked for a moment only"
        monkeypatch.setattr("gym_models.wire.replica.SILENT_S", 0.0)
        await give_up_a_call(lambda: ask(replicas, rollout))
        assert not state.failed, "another call was answered"
        await give_up_a_call()
        assert state.failed == 1
        state.rests_until_s = inf
        await ask(replicas, rollout)
        assert sound.stats().requests == 1
        assert hangs.url in up(replicas)


@pytest.mark.parametrize("fault", ["401", "404"])
async def test_one_with_a_wrong_key_that_lists_its_models_rests(
    stubs: Callable[..., StubEngine], fault: str
) -> None:
    wrong, sound = stubs("--fault", fault), stubs()
    async with fleet(wrong.url, sound.url) as replicas:
        rollout = homes(replicas, wrong.url)
        with pytest.raises(ModelUnavailable, match=f"answered {fault}.*; another replica is asked"):
            await ask(replicas, rollout)
        assert output(await ask(replicas, rollout))
        assert up(replicas) == {wrong.url, sound.url}


async def test_a_key_that_is_wrong_everywhere_is_said_at_once(stubs: Callable[..., StubEngine]) -> None:
    urls = [stubs("--fault", "401").url for _ in range(3)]
    async with fleet(*urls) as replicas:
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match="another replica"):
                await ask(replicas)
        for _ in range(5):
            with pytest.raises(ModelRefused, match="OPENAI_API_KEY is empty"):
                await ask(replicas)


@pytest.mark.parametrize(
    ("fault", "error"), [("429", ModelUnavailable), ("filter", ModelRefused), ("404", ModelUnavailable)]
)
async def test_what_is_no_fault_of_a_replica_keeps_it(
    stubs: Callable[..., StubEngine], fault: str, error: type[Exception]
) -> None:
    one, other = stubs(), stubs()
    async with fleet(one.url, other.url, look_s=60) as replicas:
        with pytest.raises(error):
            await ask(replicas, homes(replicas, one.url), x_stub_fault=fault)
        assert up(replicas) == {one.url, other.url}


async def test_rollouts_are_held_while_every_engine_has_more_than_it_can_keep(
    stubs: Callable[..., StubEngine],
) -> None:
    one, other = stubs("--slow-s", "60"), stubs("--slow-s", "60")
    async with fleet(one.url, other.url, hold_kv_usage=0.9) as replicas, anyio.create_task_group() as calls:
        for engine in (one, other):
            engine.set_kv_usage(0.95)
            rollout = homes(replicas, engine.url)
            await until(lambda url=engine.url: _load(replicas, url).kv_usage == 0.95)
            assert not replicas.held, "the engine has no work, or the other one has room"
            calls.start_soon(lambda rollout=rollout: ask(replicas, rollout, x_stub_fault="slow", limit_s=60))
            await until(lambda url=engine.url: _load(replicas, url).running == 1)
        assert replicas.held == "95% of the cache of keys and values is in use, above hold_kv_usage 90%"
        one.set_kv_usage(0.5)
        await until(lambda: not replicas.held)
        calls.cancel_scope.cancel()


@pytest.mark.parametrize("public", [False, True])
async def test_rollouts_wait_for_engines_that_have_answered_and_then_are_all_away(public: bool) -> None:
    with stub_engine.running() as engine:
        url, port = engine.url, engine.url.removesuffix("/v1").rpartition(":")[2]
        async with (
            fleet(url, hold_outage_s=60, public=public) as replicas,
            fleet(url, hold_outage_s=60, public=public) as unasked,
        ):
            await ask(replicas)
            assert not replicas.held
            os.kill(engine.pid, signal.SIGKILL)
            if public:  # whose health is not looked at between its calls
                for one in (replicas, unasked):
                    with pytest.raises(ModelUnavailable):
                        await ask(one)
            await until(lambda: not up(replicas) and not up(unasked))
            await until(lambda: bool(replicas.held))
            assert replicas.held.startswith(f"nothing listens at {url}")
            assert replicas.held.endswith(" (they wait for 60 s at most)")
            assert not unasked.held, "it has never answered: its calls fail, and the run says why"
            with stub_engine.running("--port", port):
                await until(lambda: not replicas.held)
                await ask(replicas)


async def test_a_provider_that_fails_and_still_lists_its_models_is_asked_again_and_not_waited_for(
    stubs: Callable[..., StubEngine],
) -> None:
    engine = stubs()
    async with fleet(engine.url, public=True) as replicas:
        await ask(replicas)
        for _ in range(20):
            with pytest.raises(ModelUnavailable, match="503"):
                await ask(replicas, x_stub_fault="503")
            assert not replicas.held
            await anyio.sleep(0.01)
        assert up(replicas)
        await ask(replicas)


async def test_engines_that_stay_away_are_not_waited_for_without_end() -> None:
    with stub_engine.running() as engine:
        async with (
            fleet(engine.url, hold_outage_s=1.5) as replicas,
            fleet(engine.url, hold_outage_s=0) as never,
        ):
            for one in (replicas, never):
                await ask(one)
            os.kill(engine.pid, signal.SIGKILL)
            await until(lambda: bool(replicas.held))
            await until(lambda: not replicas.held)
            assert not up(replicas)
            await until(lambda: not up(never))
            assert not never.held
            with pytest.raises(ModelUnavailable, match="nothing listens"):
                await ask(replicas)


def _load(replicas: Replicas[Engine], url: str) -> Load:
    return next(one.load for one in replicas.states() if one.url == url) or Load()
