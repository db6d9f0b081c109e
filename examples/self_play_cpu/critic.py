"""A proposer and a critic learn sums on a CPU: one policy in both seats, each seat with its own reward.

python critic.py --seed 1 --log critic-1.jsonl    # 40 steps of 128 rollouts
"""

import argparse
import asyncio
import json
import re
from itertools import product
from pathlib import Path

import gym_runtime
from gym_runtime.client import serve_model
from gym_trainers import seat_advantages, seat_samples
from gym_trainers.token_engine import TokenEngine
from policy import Policy

SUMS = list(product(range(4), repeat=2))
ANSWERS = [str(number) for number in range(7)]
SAID = [*ANSWERS, "[[ACCEPT]]", "It is wrong."]
CHECK, TASK = len(SAID), len(SAID) + 1  # ids: what is said, the mark of a critic's prompt, the tasks
_WORD = re.compile(r"You check|(\d) \+ (\d)|\[\[ACCEPT\]\]|It is wrong\.|(?<=Answer:\n<quoted>\n)\d+|^\d+$")


class Tokenizer:
    """Ids of what matters in a prompt: the task, the answers, and what the critic said."""

    def apply_chat_template(self, messages, **_):
        ids = []
        for message in messages:
            for word in _WORD.finditer(message["content"]):
                if word[1]:
                    ids.append(TASK + SUMS.index((int(word[1]), int(word[2]))))
                else:
                    ids.append(CHECK if word[0] == "You check" else SAID.index(word[0]))
        return ids

    def decode(self, ids, **_):
        return "".join(SAID[one] for one in ids)


def rows():
    text = "What is {} + {}? Write the number only."
    return [{"a": a, "b": b, "responses_create_params": {"input": text.format(a, b)}} for a, b in SUMS]


async def train(asked, write):
    policy = Policy(asked.seed, len(SAID), tuple)
    engine = TokenEngine(Tokenizer(), policy.generate, context=1000)
    environment = str(Path(__file__).with_name("sums.py"))
    async with (
        gym_runtime.connect(model="scripted/echo", environments=[environment]) as gym,
        serve_model(gym.urls[0], engine) as pool,
    ):
        while policy.step < asked.steps:
            samples, rewards = [], {"proposer": [], "critic": []}
            async for group in gym.groups(
                rows(),
                environment="sums",
                keys=range(len(SUMS)),
                repeats=asked.repeats,
                model_pool=pool,
                roles={"critic": pool},
                ordered=True,
                return_token_ids=True,
            ):
                samples += seat_samples(group, seat_advantages(group, "dr_grpo"))
                for seat, found in rewards.items():
                    found += group.rewards_of(seat)
            difference = policy.train(samples, asked.rate)
            means = {seat: sum(found) / len(found) for seat, found in rewards.items()}
            write({"step": policy.step, **means, "samples": len(samples), "logp_difference": difference})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=8, help="rollouts of each of the 16 sums, a step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.0, help="the learning rate")
    parser.add_argument("--log", type=Path, default=Path("critic.jsonl"))
    asked = parser.parse_args()
    asked.log.write_text("")

    def write(found):
        rounded = {key: round(one, 5) if isinstance(one, float) else one for key, one in found.items()}
        with asked.log.open("a") as file:
            file.write(json.dumps(rounded) + "\n")
        if found["step"] in (1, asked.steps) or found["step"] % 10 == 0:
            print(
                f"step {found['step']}: proposer {found['proposer']:.2f}, critic {found['critic']:.2f}",
                flush=True,
            )

    asyncio.run(train(asked, write))


if __name__ == "__main__":
    main()
