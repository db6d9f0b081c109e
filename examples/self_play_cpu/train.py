"""Self-play on a CPU: one policy plays Nim in both seats, and learns from every move.

python train.py --seed 1 --log seed-1.jsonl    # 60 steps of 58 games
"""

import argparse
import asyncio
import json
import random
from itertools import product
from pathlib import Path

import gym_runtime
from gym_runtime.client import serve_model
from gym_trainers import SeatBaselines, seat_samples
from gym_trainers.token_engine import TokenEngine
from policy import HEAPS, MOST, Policy, RandomPlayer, Tokenizer

# The first player wins if it plays well.
BOARDS = [heaps for heaps in product(range(1, MOST + 1), repeat=HEAPS) if heaps[0] ^ heaps[1] ^ heaps[2]]
PLAYED = {"environment": "nim", "ordered": True, "max_turns": 3 * MOST, "return_token_ids": True}


def rows(boards):
    return [{"responses_create_params": {"input": "You play Nim."}, "heaps": list(one)} for one in boards]


async def look(gym, policy, pool, opponent):
    """The share of games that the policy wins against the fixed opponent, from each board twice."""
    records = [
        record
        async for group in gym.groups(
            rows(BOARDS),
            keys=range(len(BOARDS)),
            repeats=2,
            model_pool=pool,
            roles={"second": opponent},
            **PLAYED,
        )
        for record in group.rollouts
    ]
    won = [record.reward_of("first") for record in records]
    share = sum(won) / len(won)
    return {
        "step": policy.step,
        "won": share,
        "error": (share * (1 - share) / len(won)) ** 0.5,
        "of": len(won),
    }


async def train(asked, write):
    policy, baselines, chance = Policy(asked.seed), SeatBaselines(), random.Random(asked.seed)
    engines = [
        TokenEngine(Tokenizer(), one.generate, context=1000) for one in (policy, RandomPlayer(asked.seed))
    ]
    async with (
        gym_runtime.connect(model="scripted/echo", environments=["nim"]) as gym,
        serve_model(gym.urls[0], engines[0]) as pool,
        serve_model(gym.urls[0], engines[1]) as opponent,
    ):
        write(await look(gym, policy, pool, opponent))
        while policy.step < asked.steps:
            boards = rows(chance.sample(BOARDS, asked.games))
            samples, rewards = [], []
            async for group in gym.groups(
                boards, keys=range(len(boards)), repeats=1, model_pool=pool, roles={"second": pool}, **PLAYED
            ):
                samples += seat_samples(group, baselines.advantages(group))
                rewards += group.rewards_of("first")
            difference = policy.train(samples, asked.rate)
            found = {
                "first_won": sum(rewards) / len(rewards),
                "samples": len(samples),
                "logp_difference": difference,
            }
            write({"step": policy.step, **found, "baselines": baselines.state["nim"]})
            if policy.step % asked.every == 0 or policy.step == asked.steps:
                write(await look(gym, policy, pool, opponent))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--games", type=int, default=len(BOARDS), help="a step, each from another board")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.0, help="the learning rate")
    parser.add_argument("--every", type=int, default=5, help="steps between games against the fixed opponent")
    parser.add_argument("--log", type=Path, default=Path("steps.jsonl"))
    asked = parser.parse_args()
    asked.log.write_text("")

    def write(found):
        rounded = {key: round(one, 5) if isinstance(one, float) else one for key, one in found.items()}
        with asked.log.open("a") as file:
            file.write(json.dumps(rounded) + "\n")
        if "won" in found:
            print(f"step {found['step']}: {found['won']:.0%} of {found['of']} games won", flush=True)

    asyncio.run(train(asked, write))


if __name__ == "__main__":
    main()
