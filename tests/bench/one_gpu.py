"""A vLLM server, this runtime and a trainer on one GPU: what is exact, what waits, what is learned.

    python tests/bench/one_gpu.py exact      ids and log-probabilities of rollouts beside a forward pass
    python tests/bench/one_gpu.py transfer   weights over CUDA IPC and by a folder, while rollouts run
    python tests/bench/one_gpu.py sync       GRPOTrainer: steps of 512 rollouts, and the engine's idle share
    python tests/bench/one_gpu.py async      the same with AsyncGRPOTrainer

Wants vLLM, TRL and gguf in this environment, and the model of ``examples/grpo_cpu``. ``--shape 1.7b`` serves
a model of random weights with 1.7 billion parameters. Each command prints one line of JSON; ``--log`` is a
file with a line for each step. ``async`` trains with torch's attention; ``--small`` is for a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "grpo_cpu"
sys.path.insert(0, str(EXAMPLE))

import gym_runtime  # noqa: E402
import gym_trainers  # noqa: E402
import torch  # noqa: E402
import torch_attention  # noqa: E402
from gpu_engine import DEVICE, SHAPES, Idle, served, weights  # noqa: E402
from gym_runtime.adapters import ModelSettings  # noqa: E402
from train import HELD_OUT, TRAINED, rows  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

WORDS, QUESTIONS = str(EXAMPLE / "word_count.py"), str(HERE / "three_questions.py")


# -- exact --------------------------------------------------------------------------------------------


def exact(said: argparse.Namespace) -> dict[str, Any]:
    """Each sampled token's log-probability by the engine, and by transformers' forward pass."""
    folder = weights(said.shape)
    with served(folder, said) as engine:
        started_s = time.monotonic()
        found = sampled(engine, said)
        spent_s = time.monotonic() - started_s
    tokenizer = AutoTokenizer.from_pretrained(folder)
    same_text = sum(ends_with_its_text(one, tokenizer) for one in found)
    sequences = [one.sequences() for one in found]
    flat = [one for several in sequences for one in several]
    result: dict[str, Any] = {
        "rollouts": len(found),
        "seconds": round(spent_s, 1),
        "text_is_that_of_the_ids": same_text,
        "in_one_sequence": sum(len(several) == 1 for several in sequences),
        "sampled_tokens": int(sum(one.mask.sum() for one in flat)),
    }
    for name in ("bfloat16", "float32"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=name).to(DEVICE).eval()
        gaps = torch.cat(list(differences(model, flat)))
        result[name] = {
            "mean": round(gaps.abs().mean().item(), 5),
            "p99": round(gaps.abs().quantile(0.99).item(), 4),
            "largest": round(gaps.abs().max().item(), 3),
            "bias": round(gaps.mean().item(), 5),
            "ratio_over_2": round((gaps.abs() > 0.693).float().mean().item(), 6),
        }
        del model
    return result


def sampled(engine: ModelSettings, said: argparse.Namespace) -> list[Any]:
    topics = TRAINED.split()
    asked = {"temperature": 1.0, "max_output_tokens": 48, "return_token_ids": True}
    with gym_runtime.connect_sync(
        model=engine, environments=[WORDS, QUESTIONS], concurrency=said.in_flight
    ) as gym:
        short = list(islice(rows(TRAINED), said.rollouts // 16))
        long = [{"responses_create_params": {"input": []}, "topic": topic} for topic in topics]
        found = list(gym.rollouts(short, environment="word_count", repeats=8, **asked))
        found += gym.rollouts(
            list(islice(long, said.rollouts // 32)), environment="three_questions", repeats=16, **asked
        )
    assert all(one.reward is not None for one in found), [one.failure for one in found if one.failure][:3]
    return found


def ends_with_its_text(record: Any, tokenizer: Any) -> bool:
    """Whether the last turn's text is what its sampled ids decode to."""
    one = record.sequences()[-1]
    before, sampled_ids = list(one.mask), list(one.completion_ids)
    last = len(before)
    while last and before[last - 1]:
        last -= 1
    text = tokenizer.decode(sampled_ids[last:], skip_special_tokens=True)
    said = [one["content"] or "" for one in record.messages if one["role"] == "assistant"]
    return text.strip() == said[-1].strip()


def differences(model: Any, sequences: Sequence[Any], size: int = 64) -> Iterator[torch.Tensor]:
    """The engine's log-probabilities less the model's, of the sampled tokens."""
    for start in range(0, len(sequences), size):
        batch = sequences[start : start + size]
        ids = [[*one.prompt_ids, *one.completion_ids] for one in batch]
        longest = max(map(len, ids))
        padded = torch.tensor([one + [0] * (longest - len(one)) for one in ids], device=DEVICE)
        seen = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in ids], device=DEVICE)
        with torch.no_grad():
            logits = model(input_ids=padded, attention_mask=seen).logits[:, :-1].float()
        by_model = logits.log_softmax(-1).gather(2, padded[:, 1:, None])[:, :, 0].cpu()
        for row, one in zip(by_model, batch, strict=True):
            first = len(one.prompt_ids) - 1
            mask = torch.as_tensor(one.mask, dtype=torch.bool)
            of_model = row[first : first + len(mask)][mask]
            yield torch.as_tensor(one.log_probs)[mask].float() - of_model


# -- weights ------------------------------------------------------------------------------------------


def transfer(said: argparse.Namespace) -> dict[str, Any]:
    """Change the weights again and again while rollouts run, in both ways."""
    from gym_runtime.client import SyncClient

    folder = weights(said.shape)
    ipc = [] if said.small else ["ipc"]
    backend = ("--weight-transfer-config", json.dumps({"backend": "ipc"}))
    said.engine_args = " ".join([said.engine_args, *(backend if ipc else ())]).replace(": ", ":")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16").to(DEVICE)
    result: dict[str, Any] = {"megabytes": round(sum(one.nbytes for one in model.parameters()) / 1e6)}
    in_memory = Path(said.work) / "weights"

    with (
        served(folder, said, VLLM_ALLOW_INSECURE_SERIALIZATION="1") as engine,
        gym_runtime.connect_sync(model=engine, environments=[QUESTIONS], concurrency=said.in_flight) as gym,
        Rollouts(gym, said.in_flight) as rollouts,
    ):
        sender = ipc_sender(model, engine.urls[0].removesuffix("/v1")) if ipc else None

        def by_folder(number: int, client: SyncClient) -> None:
            path = in_memory / str(number % 2)
            model.save_pretrained(path)
            client.update_weights(path, f"folder-{number}")

        def by_ipc(number: int, client: SyncClient) -> None:
            assert sender is not None
            with client.weights_paused(f"ipc-{number}"):
                sender.send_weights()

        for name, send in [("folder", by_folder), *((one, by_ipc) for one in ipc)]:
            spent: list[float] = []
            for number in range(said.transfers):
                changed(model, number)
                time.sleep(1.0)
                since = time.monotonic()
                send(number, gym)
                spent.append(time.monotonic() - since)
            rest = statistics.median(spent[1:])
            result[name] = {"median_s": round(rest, 3), "largest_s": round(max(spent[1:]), 3)}
            last = list(gym.rollouts(topics_rows(4), environment="three_questions", repeats=8, **TOKENS))
            gaps = torch.cat(list(differences(model, [one for each in last for one in each.sequences()])))
            result[name]["log_probs_of_the_new_weights"] = round(gaps.abs().mean().item(), 4)
    result |= {"rollouts_meanwhile": len(rollouts.found), "failed": rollouts.failed}
    result["with_tokens_of_several_weights"] = rollouts.crossed
    return result


TOKENS: dict[str, Any] = {"temperature": 1.0, "max_output_tokens": 128, "return_token_ids": True}


def topics_rows(count: int) -> list[dict[str, Any]]:
    topics = islice(HELD_OUT.split(), count)
    return [{"responses_create_params": {"input": []}, "topic": topic} for topic in topics]


def changed(model: Any, number: int) -> None:
    """Other weights than before, near them: each tensor a few percent larger or smaller."""
    torch.manual_seed(number)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1 + 0.03 * torch.randn(1, device=one.device, dtype=one.dtype))


def ipc_sender(model: Any, root: str) -> Any:
    """vLLM's own trainer side of a transfer over CUDA IPC."""
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
    from vllm.distributed.weight_transfer.ipc_engine import (
        IPCTrainerInitInfo,
        IPCTrainerWeightTransferEngine,
    )

    class Source:
        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            return iter([(name, one.detach()) for name, one in model.named_parameters()])

    return IPCTrainerWeightTransferEngine.trainer_init(
        IPCTrainerInitInfo(rank=0, packed=False), client=HTTPVLLMWeightSyncClient(root), source=Source()
    )


class Rollouts:
    """Rollouts that run all the time in a thread, as many at once as there are places."""

    def __init__(self, gym: Any, in_flight: int) -> None:
        self._gym, self._in_flight = gym, in_flight
        self.found: list[Any] = []
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Rollouts:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self._thread.join()

    def _rows(self) -> Iterator[dict[str, Any]]:
        chance = random.Random(1)
        while not self._over:
            yield chance.choice(topics_rows(10))

    def _run(self) -> None:
        for record in self._gym.rollouts(
            self._rows(), environment="three_questions", in_flight=self._in_flight, **TOKENS
        ):
            self.found.append(record)

    @property
    def failed(self) -> int:
        return sum(record.reward is None for record in self.found)

    @property
    def crossed(self) -> int:
        """How many rollouts have tokens of more than one version of the weights."""
        kept = [record for record in self.found if record.reward is not None]
        return sum(len({v for one in record.sequences() for v in one.versions}) > 1 for record in kept)


# -- training -----------------------------------------------------------------------------------------


def train(said: argparse.Namespace) -> dict[str, Any]:
    folder = weights(said.shape)
    with (
        served(folder, said) as engine,
        gym_runtime.connect_sync(model=engine, environments=[WORDS], concurrency=said.in_flight) as gym,
    ):
        spec = gym_trainers.GymSpec(
            gym, rows(TRAINED), environment="word_count", weights=f"{said.work}/weights"
        )
        idle, log = Idle(engine), Path(said.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")

        def write(**line: Any) -> None:
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")

        def held_out(step: int) -> float:
            asked = {"repeats": 2, "temperature": 1.0, "max_output_tokens": 32}
            found = [one.reward for one in gym.rollouts(rows(HELD_OUT), environment="word_count", **asked)]
            scored = [one for one in found if one is not None]
            error = statistics.stdev(scored) / len(scored) ** 0.5
            write(step=step, held_out=round(statistics.fmean(scored), 4), error=round(error, 4))
            return round(statistics.fmean(scored), 3)

        gym.update_weights(folder, "step-0")
        before = held_out(0)
        made = sync_trainer if said.what == "sync" else async_trainer
        trainer = made(folder, spec, said, write)
        idle.begin()
        since = time.monotonic()
        trainer.train()
        spent_s, shares = time.monotonic() - since, idle.shares
        if said.what == "sync":
            spec.sync_weights(trainer)
        after = held_out(said.steps)
    # The first steps compile and warm up.
    return {
        "trainer": said.what,
        "steps": said.steps,
        "rollouts_a_step": said.rollouts,
        "held_out_before": before,
        "held_out_after": after,
        "seconds_a_step": round(spent_s / said.steps, 2),
        **shares,
        "gpu_gigabytes_of_the_trainer": round(torch.cuda.max_memory_allocated() / 1e9, 1)
        if DEVICE == "cuda"
        else None,
    }


def arguments(said: argparse.Namespace) -> dict[str, Any]:
    return {
        "output_dir": f"{said.work}/out",
        "max_steps": said.steps,
        "seed": said.seed,
        "report_to": [],
        "per_device_train_batch_size": said.rollouts,
        "num_generations": 8,
        "max_completion_length": 32,
        "temperature": 1.0,
        "learning_rate": said.learning_rate,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "bf16": True,
        "use_cpu": DEVICE == "cpu",
    }


def sync_trainer(folder: str, spec: Any, said: argparse.Namespace, write: Any) -> Any:
    from step_log import LOGGED, MeasuredTrainer
    from trl import GRPOConfig

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    args = GRPOConfig(
        **arguments(said),
        beta=0.0,
        vllm_importance_sampling_mode="token_truncate",
        gradient_checkpointing=False,
    )
    trainer = MeasuredTrainer(
        model,
        spec.reward_funcs,
        args,
        train_dataset=spec.train_dataset,
        rollout_func=spec.rollout_func,
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[logs(write, LOGGED)],
    )
    spec.attach(trainer)
    return trainer


def async_trainer(folder: str, spec: Any, said: argparse.Namespace, write: Any) -> Any:
    torch_attention.install()
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    names = ("reward", "reward_std", "entropy", "loss", "staleness", "perf/weight_sync_s", "step_time")
    args = AsyncGRPOConfig(
        **arguments(said),
        token_budget=32 * said.rollouts,
        max_inflight_tasks=2 * said.rollouts,
        max_staleness=3,
        weight_sync_steps=1,
    )
    return AsyncGRPOTrainer(
        folder,
        args=args,
        train_dataset=spec.train_dataset,
        rollout_worker=spec.rollout_worker(args),
        weight_transfer=spec.weight_transfer(folder),
        callbacks=[logs(write, {name: name for name in names})],
    )


def logs(write: Any, names: dict[str, str]) -> Any:
    from transformers import TrainerCallback

    class Log(TrainerCallback):
        since = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                now = time.monotonic()
                found = {name: round(float(logs[key]), 5) for name, key in names.items() if key in logs}
                write(step=state.global_step, **found, seconds=round(now - self.since, 2))
                self.since = now

    return Log()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["exact", "transfer", "sync", "async"])
    parser.add_argument("--shape", choices=SHAPES, default="")
    parser.add_argument("--rollouts", type=int, default=512, help="in all for exact, and a step for trainers")
    parser.add_argument("--in-flight", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=6e-5)
    parser.add_argument("--transfers", type=int, default=12)
    parser.add_argument("--engine-args", default="--gpu-memory-utilization 0.35")
    parser.add_argument("--port", type=int, default=18090, help="of the server, which may run already")
    parser.add_argument("--work", default="/dev/shm/one_gpu")
    parser.add_argument("--log", default="one_gpu.jsonl")
    parser.add_argument("--server-log", default="vllm.log")
    parser.add_argument("--small", action="store_true")
    said = parser.parse_args()
    if said.small:
        said.rollouts, said.in_flight, said.transfers, said.engine_args = 16, 48, 2, "--enforce-eager"
    result = {"exact": exact, "transfer": transfer}.get(said.what, train)(said)
    print(json.dumps({"what": said.what, "shape": said.shape or "135m", **result}))


if __name__ == "__main__":
    main()
