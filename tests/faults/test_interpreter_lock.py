"""A verification that keeps the interpreter's lock stops its worker's answers, and costs no other rollout.

Nothing in the process can answer for it, so the worker counts as gone, and its calls are executed elsewhere.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.rpc.quarantine import MAX_DEATHS
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.timing import MEMBER_GONE_S
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.anyio,
    pytest.mark.timeout(120),
]

KEEPS_S = MEMBER_GONE_S + 2.5
ROWS = 31
KEEPER = 7


async def test_the_others_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_TEST_NOTES", str(tmp_path / "notes"))
    monkeypatch.chdir(Path(__file__).parent / "environments")
    params = {"input": [{"role": "user", "content": "go"}]}
    rows = [
        msgspec.json.encode(
            {
                "responses_create_params": params,
                "number": number,
                "blocks_s": KEEPS_S if number == KEEPER else 0.0,
                "keeps_lock": number == KEEPER,
            }
        )
        for number in range(ROWS)
    ]
    pools = make_pools(
        ["blocking"], ModelSettings(provider="scripted", name="message"), workers=2, concurrency=ROWS
    )
    records: dict[int, RolloutRecord] = {}
    async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:
        async for record in gym.rollouts(rows, environment="blocking"):
            assert record.task_index not in records
            records[record.task_index] = record
    keeper = records.pop(KEEPER).outcome
    ends = Counter((type(record.outcome), record.reward) for record in records.values())
    assert ends == {(Completed, 1.0): ROWS - 1}
    # Bounded, as if it had ended them: it would have been executed by every worker in turn.
    assert isinstance(keeper, Failed)
    assert "keeps the interpreter's lock" in keeper.fault.message
    assert Counter((tmp_path / "notes").read_text().split())[str(KEEPER)] == MAX_DEATHS
