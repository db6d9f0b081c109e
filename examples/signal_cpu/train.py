"""GRPO with rewards of 0 and 1 on tasks of mixed difficulty: all groups, or groups with signal only.

    python train.py                                     # both ways, one seed
    python train.py --seeds 1 2 3 --log figures && python curves.py > ../../docs/images/signal-cpu.svg

The trainer is plain gradient ascent: each token counts its advantage times the ratio of its probabilities.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import numpy as np
import speller
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_signal import signal_batches

TASKS, HELD_OUT, GROUPS, REPEATS, RATE = 600, 300, 16, 8, 5.0
ARMS = {
    "all groups": {"curriculum": "uniform", "signal": False},
    "with signal": {"curriculum": "posterior", "signal": True},
}


def trained(scores, groups):
    """The scores after one step on a batch."""
    read, written, factors = [], [], []
    for group in groups:
        for record, advantage in zip(group.rollouts, group.advantages, strict=True):
            (sequence,) = record.sequences()
            new = speller.log_probs(scores)[sequence.prompt_ids, sequence.completion_ids]
            read.append(sequence.prompt_ids)
            written.append(sequence.completion_ids)
            factors.append(advantage * np.minimum(np.exp(new - sequence.log_probs), 2.0))
    return scores + RATE * speller.gradient(scores, *map(np.concatenate, (read, written, factors)))


async def run(arm, seed, tokens, folder, log):
    """Train until the engine has sampled so many tokens; a line of ``log`` for each step."""
    scores, held_out = speller.beginning(), speller.words(0, HELD_OUT)
    rows = [{"responses_create_params": {"input": word}, "word": word} for word in speller.words(seed, TASKS)]
    step, sampled, flat, path = 0, 0, 0, folder / "0.npy"
    np.save(path, scores)
    engine = ModelSettings(provider="speller", name=str(path))
    async with (
        connect(model=engine, environments=["rot13"]) as gym,
        signal_batches(
            gym, rows, environment="rot13", want=GROUPS, repeats=REPEATS, return_token_ids=True, **ARMS[arm]
        ) as batches,
    ):
        while True:
            passed = speller.pass_rate(scores, held_out)
            line = {"step": step, "tokens": sampled, "passed": round(passed, 4), "flat": flat}
            log.write(json.dumps(line) + "\n")
            if not step % 20:
                print(f"{arm}, seed {seed}: {line}", flush=True)
            if sampled >= tokens:
                return
            scores = trained(scores, await batches.next())
            step += 1
            path = folder / f"{step}.npy"
            np.save(path, scores)
            await gym.update_weights(str(path), f"step-{step}")
            sampled, flat = batches.useful.sampled, batches.useful.flat


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--tokens", type=int, default=320_000, help="of 'all groups'; half for 'with signal'")
    parser.add_argument("--log", type=Path, default=Path("figures"))
    asked = parser.parse_args()
    asked.log.mkdir(exist_ok=True)
    for seed in asked.seeds:
        for arm in ARMS:
            tokens = asked.tokens // (1 + (arm == "with signal"))
            name = f"{arm.replace(' ', '-')}-{seed}.jsonl"
            with tempfile.TemporaryDirectory() as folder, (asked.log / name).open("w") as log:
                asyncio.run(run(arm, seed, tokens, Path(folder), log))


if __name__ == "__main__":
    main()
