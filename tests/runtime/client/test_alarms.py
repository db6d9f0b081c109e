"""An alarm reaches the status, the figures, the tracker and what stays of the run, each once."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from gym_runtime import connect, plugins
from gym_runtime.client.reward_watch import Alarms
from gym_runtime.errors import UsageError
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.metric_names import ALARMS
from gym_runtime.messages.outcomes import RolloutRecord
from runtime.client.running_client import NAME, RunningClient, running_client

pytestmark = pytest.mark.anyio
PLUGIN = """
class Told:
    def __init__(self, about, say, *, repeats=1, before=None): pass
    def open(self): pass
    def add(self, record): pass
    def alarm(self, alarm): HEARD.append(alarm.environment)
    def close(self, summary=None, *, failed=False): pass
HEARD = []
"""


def alarm(rollouts: list[str]) -> Alarm:
    return Alarm(
        environment=NAME,
        since_version="step-3",
        since_rollout=rollouts[0],
        looks=20,
        disagree=18,
        low=0.7,
        high=0.97,
        usual=0.07,
        rollouts=rollouts,
    )


class Ringing:
    """Rings at the second record."""

    def __init__(self, alarms: Alarms) -> None:
        self.alarms, self.seen = alarms, list[str]()

    def add(self, record: RolloutRecord) -> None:
        self.seen.append(record.rollout_id)
        if len(self.seen) == 2:
            self.alarms.ring(alarm(self.seen[:]))


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hearing_tracker.py").write_text(PLUGIN)
    info = tmp_path / "hearing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: hearing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gym_runtime.trackers]\nhearing = hearing_tracker:Told\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_entry_points", metadata.entry_points)  # that of the process is cached


async def figures(here: RunningClient) -> list[tuple[float, list[Alarm]]]:
    runs = await here.gym.driver.runs()
    return [(run.figures.total(ALARMS) if run.figures else 0.0, run.alarms) for run in runs]


@pytest.mark.usefixtures("tracker")
async def test_an_alarm_is_told_everywhere_and_counted_once() -> None:
    async with running_client() as here:
        alarms = here.gym.driver.alarms
        alarms.watch = watch = Ringing(alarms)
        told: list[list[Alarm]] = []
        async for record in here.rollouts(3, track="hearing", in_flight=1):
            if record.task_index == 1:
                told = [one.alarms for one in (await here.gym.status()).progress.values()]
        assert told == [[alarm(watch.seen[:2])]] == [list(here.gym.alarms)]
        assert await figures(here) == [(1.0, told[0])]
        assert len([record async for record in here.rollouts(1)]) == 1
        assert (await figures(here))[1:] == [(0.0, [])]
        assert alarms.listeners == []
        import hearing_tracker  # pyright: ignore[reportMissingImports]

        assert hearing_tracker.HEARD == [NAME]


async def test_an_alarm_after_the_last_record_is_counted_in_the_next_run() -> None:
    async with running_client() as here:
        assert len([record async for record in here.rollouts(1)]) == 1
        here.gym.driver.alarms.ring(alarm(["r.0.0"]))
        assert len([record async for record in here.rollouts(1)]) == 1
        assert [counted for counted, _ in await figures(here)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"second_look": "mcqa"}, "need watch_rewards, such as watch_rewards='auto'"),
        ({"watch_rewards": "2.5"}, "watch-rewards 2.5"),
        ({"watch_rewards": "auto", "second_look": "nothing_like_it"}, "nothing_like_it"),
    ],
)
def test_what_cannot_be_watched_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        connect(nats="nats://127.0.0.1:1", **options)
