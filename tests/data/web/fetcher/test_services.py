"""Services: retries, pauses, keys in turn; what is an answer and what is a failure."""

from __future__ import annotations

import time

import msgspec
import pytest
from data.web.fetcher.oracle import ORACLE, answers, ask, failure, used_keys
from data.web.site import Site, site
from gym_runtime.environment import usage
from gym_runtime.errors import ServiceUnavailable

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [200, 400, 404, 422])
async def test_what_is_an_answer_of_a_service(served: Site, status: int) -> None:
    answers(served, status)
    assert (await ask()).status == status
    assert len(served.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_service_that_recovers(served: Site, status: int) -> None:
    answers(served, status, status)
    assert (await ask()).status == 200
    assert len(served.asked) == 3


@pytest.mark.parametrize("status", [429, 503, 301])
async def test_a_service_that_does_not_recover(served: Site, status: int) -> None:
    answers(served, *[status] * 10)
    error = await failure()
    assert error.retryable
    assert f"oracle is unavailable: it answered with HTTP {status}" == error.message
    assert len(served.asked) == 4


async def test_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as gone:
        monkeypatch.setenv("GYM_ORACLE_URL", gone.url)
    error = await failure()
    assert error.retryable
    assert "cannot be reached" in error.message
    assert usage.taken() == {("oracle", "failed"): 4}


async def test_a_pause_that_is_too_long_is_not_waited_for(served: Site) -> None:
    answers(served, 429, 429, **{"Retry-After": "3600"})
    start_s = time.monotonic()
    assert (await failure()).retryable
    assert time.monotonic() - start_s < 15
    assert len(served.asked) == 1


@pytest.mark.slow
async def test_a_pause_that_the_service_asks_for(served: Site) -> None:
    answers(served, 429, **{"Retry-After": "1"})
    start_s = time.monotonic()
    assert (await ask()).status == 200
    assert time.monotonic() - start_s >= 0.99


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_key_that_is_not_taken_fails_for_good(served: Site, status: int) -> None:
    answers(served, status)
    error = await failure()
    assert not error.retryable
    assert f"HTTP {status} to a key in ORACLE_KEY" in error.message
    assert "no key in ORACLE_KEY can be used now" in (await failure()).message
    assert len(served.asked) == 1, "a key that was refused rests"


async def test_keys_take_turns(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_KEY", "a, b ,c,")
    answers(served)
    for _ in range(6):
        await ask()
    assert sorted(used_keys(served)) == ["a", "a", "b", "b", "c", "c"]
    assert used_keys(served)[:3] == used_keys(served)[3:]


async def test_the_next_key_takes_over_from_one_that_is_limited(
    served: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_KEY", "a,b")
    answers(served, 429, **{"Retry-After": "20"})
    start_s = time.monotonic()
    assert (await ask()).status == 200
    assert time.monotonic() - start_s < 15
    assert sorted(used_keys(served)) == ["a", "b"]


async def test_keys_that_are_used_up_rest_one_by_one(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_KEY", ",".join(f"k{number}" for number in range(8)))
    answers(served, *[402] * 7)
    assert (await ask()).status == 200
    assert sorted(used_keys(served)) == [f"k{number}" for number in range(8)]


async def test_a_service_without_its_key_is_not_asked(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_KEY", " , ")
    assert "ORACLE_KEY is not set" in (await failure()).message
    assert served.asked == []


async def test_a_service_whose_address_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYM_ORACLE_URL", raising=False)
    with pytest.raises(ServiceUnavailable, match="GYM_ORACLE_URL is not set"):
        ORACLE.check()


async def test_a_service_inside_must_be_named_by_the_operator(
    served: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GYM_ORACLE_URL")
    error = await failure(service=msgspec.structs.replace(ORACLE, url=served.url))
    assert "not a public address" in error.message
    assert served.asked == []
