"""GRPO on a CPU: TRL trains, gym-runtime makes the rollouts.

python train.py                                         # three steps: a tiny random model, a scripted engine
python train.py --model smollm2 --steps 100 --seed 1    # SmolLM2-135M, served by vLLM
"""

import argparse
import os
from itertools import product
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func is experimental in TRL
# One thread each for the trainer and the engine: with more they wait for each other on few cores.
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_CI_ENV": "1"}

import gym_runtime
import gym_trainers
from interruptions import Interruptions
from served_models import MODELS
from step_log import MeasuredTrainer, StepLog
from trl import GRPOConfig

ENVIRONMENT = str(Path(__file__).with_name("word_count.py"))
TRAINED = """rain bread cats trains music winter tea books rivers bees snow bridges horses soup islands
    candles shoes clouds markets owls kites trees songs boats stars honey dogs roads letters doors"""
HELD_OUT = "gardens mountains coffee birds clocks apples storms painters lamps whales"


def rows(topics):
    for topic, words in product(topics.split(), (5, 6, 7, 8)):
        text = f"Write about {topic} in exactly {words} words. Write nothing else."
        yield {"responses_create_params": {"input": text}, "topic": topic, "words": words}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default="/dev/shm/grpo_cpu", help="where the engine reads weights")
    parser.add_argument("--log", default="steps.jsonl")
    parser.add_argument("--asynchronous", action="store_true", help="rollouts one step off-policy")
    parser.add_argument("--signal", action="store_true", help="groups with signal; not with tiny")
    parser.add_argument("--kill-every", type=float, metavar="S", help="kill a worker every S seconds")
    asked = parser.parse_args()
    model, tokenizer, engine = MODELS[asked.model]()
    args = GRPOConfig(
        output_dir=asked.work, max_steps=asked.steps, seed=asked.seed, use_cpu=True,
        per_device_train_batch_size=16, num_generations=8, max_completion_length=32, temperature=1.0,
        learning_rate=6e-5, lr_scheduler_type="constant", beta=0.0, bf16=asked.model != "tiny", report_to=[],
        logging_steps=1, save_strategy="no", vllm_importance_sampling_mode="token_truncate",
    )  # fmt: skip
    with gym_runtime.connect_sync(model=engine, environments=[ENVIRONMENT]) as gym:
        made = {"weights": f"{asked.work}/weights", "asynchronous": asked.asynchronous}
        if asked.signal:
            made["signal"] = {"curriculum": "posterior"}
        spec = gym_trainers.GymSpec(gym, rows(TRAINED), environment="word_count", **made)
        log = StepLog(gym, spec, rows(HELD_OUT), asked.log)
        made = {"train_dataset": spec.train_dataset, "rollout_func": log.watched(spec.rollout_func)}
        made |= {"processing_class": tokenizer, "callbacks": [log]}
        log.trainer = MeasuredTrainer(model, spec.reward_funcs, args, **made)
        spec.attach(log.trainer)
        with Interruptions(gym, log.write, asked.kill_every):
            log.trainer.train()


if __name__ == "__main__":
    main()
