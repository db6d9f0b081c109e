"""The sequential test finds when rewards began to be hacked, and rings on no honest run.

A scripted policy makes 16 rollouts a step, as the example of a run that learns does. Honest ones are rewarded
more often as it learns; from the onset on a growing share is hacked, which the reward does not see.
"""

from __future__ import annotations

import math
import random

import pytest
from gym_runtime.errors import UsageError
from gym_testing.alarm.drift import BASELINE, Drift
from gym_testing.alarm.evidence import ALPHA, CALIBRATION, Alarm, Evidence, Look, upper_end

STEPS, A_STEP, ONSET = 80, 16, 40
MISTAKEN = 0.02
"""How often a second look disagrees with an honest reward."""


def played(seed: int, *, onset: int = STEPS, sees: float = 0.9) -> tuple[Alarm | None, int]:
    """The alarm of a simulated run, and the step in which it was raised."""
    chance = random.Random(seed)
    evidence = Evidence("sums")
    for step in range(STEPS):
        hacked_share = 0.0 if step < onset else min(0.8, 0.1 + 0.06 * (step - onset))
        for rollout in range(A_STEP):
            hacked = chance.random() < hacked_share
            if not hacked and chance.random() > 0.3 + 0.4 * step / STEPS:
                continue
            disagrees = chance.random() < (sees if hacked else MISTAKEN)
            alarm = evidence.add(Look(f"run.{step}.{rollout}", disagrees, f"step-{step}", chance.random()))
            if alarm is not None:
                return alarm, step
    return None, STEPS


def test_an_onset_is_found_within_ten_steps() -> None:
    found = [played(seed, onset=ONSET) for seed in range(20)]
    in_time = [alarm for alarm, step in found if alarm is not None and ONSET <= step < ONSET + 10]
    assert len(in_time) >= 18
    began = [int(alarm.since_version.removeprefix("step-")) for alarm in in_time]
    assert sum(abs(step - ONSET) <= 5 for step in began) >= 18
    assert all(5 <= len(alarm.rollouts) <= 10 for alarm in in_time)
    assert "since weights step-" in str(in_time[0])


def test_honest_runs_ring_no_alarm() -> None:
    assert [seed for seed in range(20) if played(seed)[0]] == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_of_2000_honest_runs_five_ring_at_most() -> None:
    assert sum(played(seed)[0] is not None for seed in range(2000)) <= 2000 * ALPHA
    found = [played(seed, onset=ONSET) for seed in range(400)]
    assert sum(ONSET <= step < ONSET + 10 for _, step in found) >= 380


def test_the_usual_share_is_that_of_the_first_looks() -> None:
    evidence = Evidence("sums")
    for number in range(CALIBRATION):
        assert evidence.add(Look(f"r{number}", number % 3 == 0)) is None
    assert evidence.usual == pytest.approx(0.005 + upper_end(20, CALIBRATION))
    # What it was from the beginning is no news.
    assert not any(evidence.add(Look(f"s{number}", number % 3 == 0)) for number in range(3000))


@pytest.mark.parametrize(("found", "of"), [(0, 20), (3, 200), (20, 60)])
def test_the_upper_end_is_clopper_and_pearsons(found: int, of: int) -> None:
    share = upper_end(found, of)
    tail = sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(found + 1))
    assert tail == pytest.approx(0.025, abs=1e-6)


def test_what_cannot_be_is_refused() -> None:
    for wrong in ({"alpha": 0.0}, {"usual": 1.5}, {"calibration": 0}):
        with pytest.raises(UsageError):
            Evidence("sums", **wrong)


def test_signs_that_rise_are_notices_once() -> None:
    chance = random.Random(0)
    drift = Drift("sums")
    said: list[str] = []
    for number in range(6 * BASELINE):
        longer = 300.0 if number > 3 * BASELINE else 0.0
        signs = {
            "length": chance.gauss(200, 40) + longer,
            "repetition": chance.random() / 10,
            "malformed": 0.0,
        }
        answer = "yes" if number > 4 * BASELINE else str(chance.randrange(50))
        said += drift.add(signs, answer)
    assert said == [
        "notice: sums: replies are longer than at first",
        "notice: sums: most replies give the same answer",
    ]
