"""Quotas and paces of services, which hold for all processes of a machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import msgspec
import pytest
from data.web.fetcher.oracle import ORACLE, answers, ask, failure
from data.web.site import Site
from gym_runtime.environment import usage

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_a_quota_holds_for_a_day_on_a_machine(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_ORACLE_QUOTA", "2")
    answers(served)
    await ask()
    await ask()
    error = await failure()
    assert not error.retryable
    assert "the quota of 2 requests a day is used up" in error.message
    monkeypatch.setenv("GYM_ORACLE_QUOTA", "many")
    assert "'many', not a number" in (await failure()).message
    assert len(served.asked) == 2
    assert usage.taken() == {("oracle", "answered"): 2, ("oracle", "limited"): 1}


async def test_a_pace_holds_for_all_that_ask(served: Site) -> None:
    answers(served)
    start_s = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask, None, msgspec.structs.replace(ORACLE, per_s=20.0))
    assert time.monotonic() - start_s >= 0.19


async def test_a_ledger_that_was_cut_off_begins_again(served: Site, tmp_path: Path) -> None:
    answers(served)
    ledger = tmp_path / "cache" / "web" / "services" / "oracle.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b'{"day":"20')
    paced = msgspec.structs.replace(ORACLE, per_s=100.0)
    await ask(service=paced)
    assert json.loads(ledger.read_bytes())["calls"] == 1
    ledger.write_bytes(json.dumps({"day": "", "calls": 1, "free_s": time.time() + 1e9}).encode())
    await ask(service=paced)
