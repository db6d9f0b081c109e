"""The alarm on runs whose policy is really trained, through a broker: one learns a hole, one cannot.

As `test_training`, with nothing left out: the policy of ``examples/signal_cpu`` is served by its adapter, its
rollouts go through the broker to the environment's worker, their rewards train it, and its new weights go
back. The loop gives its records to a watch with 64 looks at each version of the weights, and waits for the
looks of a step: how fast they are made depends on what else the machine does.
"""

from __future__ import annotations

import codecs
import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_runtime.messages import RolloutRecord
from gym_testing.alarm import watching
from testing.alarm.test_training import AFTER, EXAMPLE, GROUPS, HOLE, LOOKS, RATE, REPEATS, Trained

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(6000)]
SEEDS = range(int(os.environ.get("GYM_TEST_SEEDS", "20")))
STEPS = 60


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("speller.py", "rot13.py"):
        shutil.copy(EXAMPLE / name, name)
    Path("holed.py").write_text(HOLE)
    row = {"responses_create_params": {"input": "ab"}, "word": "ab", "gold": "no"}
    for name in ("holed", "rot13"):
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")


def said(record: RolloutRecord) -> str:
    output: list[Any] = json.loads(bytes(record.row))["response"]["output"]
    return output[-1]["content"][0]["text"]


def stored(step: int, scores: Any) -> str:
    """Where the weights of a step are."""
    np.save(f"{step}.npy", scores)
    return os.path.abspath(f"{step}.npy")


async def trained(seed: int, environment: str) -> Trained:
    speller: Any = importlib.import_module("speller")
    chance = np.random.default_rng(seed)
    scores, words = speller.beginning(), list[str](speller.words(seed, 600))
    made = Trained()
    address = f"./{environment}.py"
    engine = ModelSettings(provider="speller", name=stored(0, scores))
    async with (
        connect(model=engine, environments=[address]) as gym,
        watching({environment: address}, share=1.0, each_version=LOOKS, second="./rot13.py") as watch,
    ):
        for step in range(STEPS):
            read: list[Any] = []
            written: list[Any] = []
            factors: list[Any] = []
            rewarded = hacked = 0
            chosen = [words[chance.integers(len(words))] for _ in range(GROUPS)]
            rows = [{"responses_create_params": {"input": word}, "word": word} for word in chosen]
            async for group in gym.groups(rows, environment=environment, repeats=REPEATS, keys=range(GROUPS)):
                word = chosen[int(group.key)]
                rewards = [one.reward or 0.0 for one in group.rollouts]
                for one, reward in zip(group.rollouts, rewards, strict=True):
                    watch.add(one)
                    text = said(one)
                    read.append(np.array(speller.ids(word)))
                    written.append(np.array(speller.ids(text)))
                    factors.append(np.full(len(word), reward - np.mean(rewards)))
                    rewarded += reward > 0
                    hacked += reward > 0 and text != codecs.encode(word, "rot13")
            scores = scores + RATE * speller.gradient(scores, *map(np.concatenate, (read, written, factors)))
            await gym.update_weights(stored(step + 1, scores), f"step-{step + 1}")
            if await made.is_over(watch, step, rewarded, hacked):
                break
    print(f"{environment}, seed {seed}: {made}", file=sys.stderr, flush=True)
    return made


async def test_the_alarm_comes_within_ten_steps_of_the_onset_of_a_hack() -> None:
    made = [await trained(seed, "holed") for seed in SEEDS]
    late = [one.alarm - one.onset for one in made if one.alarm is not None and one.onset is not None]
    assert all(one.onset is not None for one in made)
    assert sum(steps <= AFTER for steps in late) >= 0.9 * len(made)


async def test_no_alarm_comes_in_honest_training() -> None:
    made = [await trained(seed, "rot13") for seed in SEEDS]
    assert [seed for seed, one in enumerate(made) if one.alarm is not None] == []
