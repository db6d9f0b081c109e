"""GRPO on a CPU: TRL trains, gym-runtime makes the rollouts.

python train.py --steps 3                                     # a tiny random model, a scripted engine
python train.py --nats URL --model FOLDER --steps 100 --bf16  # a model that a system serves with vLLM
"""

import argparse
import os
from itertools import product
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is experimental in TRL

import gym_runtime
import tokenizers
import transformers
from trl import GRPOConfig, GRPOTrainer

ENVIRONMENT = Path(__file__).with_name("word_count.py")
TRAINED = ("rain", "bread", "cats", "trains", "music", "winter", "tea", "books", "rivers", "bees", "snow")
HELD_OUT = ("gardens", "mountains", "coffee")


def rows(topics):
    for topic, count in product(topics, (5, 6, 7, 8)):
        text = f"Write about {topic} in exactly {count} words. Write nothing else."
        yield {"responses_create_params": {"input": text}, "words": count}


def tiny():
    """A model of random weights, and a tokenizer whose words are the scripted engine's token ids."""
    words = tokenizers.models.WordLevel({str(number): number for number in range(2048)}, unk_token="0")
    fast = {"tokenizer_object": tokenizers.Tokenizer(words), "eos_token": "1", "pad_token": "2"}
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=2048, **size))
    return model, transformers.PreTrainedTokenizerFast(**fast)


def look(gym, when):
    """The mean reward on topics that are not trained on, and one answer to read."""
    sampling = {"temperature": 1.0, "max_output_tokens": 32}
    found = list(gym.rollouts(list(rows(HELD_OUT)), environment="word_count", repeats=4, **sampling))
    rewards = [record.reward for record in found if record.reward is not None]  # a failure has none
    cut_short = sum(record.numbers.get("cut_short", 0) for record in found)
    mean = sum(rewards) / len(rewards)
    print(f"{when}: held-out reward {mean:.3f} of {len(rewards)} rollouts, {cut_short:.0f} of them cut short")
    print(f"    for example {found[0].messages[-1]['content']!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nats", help="the system; without it, one with a scripted engine is started")
    parser.add_argument("--model", help="the folder of the model that the system serves")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--work", default="/dev/shm/grpo_cpu", help="where the engine reads weights")
    asked = parser.parse_args()
    model, tokenizer = (asked.model, None) if asked.model else tiny()
    args = GRPOConfig(
        output_dir=f"{asked.work}/out", max_steps=asked.steps, seed=asked.seed, bf16=asked.bf16, use_cpu=True,
        per_device_train_batch_size=16, num_generations=8, max_completion_length=32, temperature=1.0,
        learning_rate=6e-5, lr_scheduler_type="constant", beta=0.0, logging_steps=1, save_strategy="no",
    )  # fmt: skip
    own = {} if asked.nats else {"model": "scripted/echo", "environments": [str(ENVIRONMENT)]}
    with gym_runtime.connect_sync(asked.nats, **own) as gym:
        weights = f"{asked.work}/weights"
        spec = gym_runtime.GymSpec(gym, rows(TRAINED), environment="word_count", weights=weights)
        made = {"train_dataset": spec.train_dataset, "rollout_func": spec.rollout_func}
        trainer = GRPOTrainer(model, spec.reward_funcs, args, processing_class=tokenizer, **made)
        spec.attach(trainer)
        look(gym, "before")
        trainer.train()
        spec.sync_weights(trainer)
        look(gym, "after")


if __name__ == "__main__":
    main()
