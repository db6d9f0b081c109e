"""What happened in a run, a JSON object a line: each step, and how held-out rows are answered."""

import json
import statistics
import time
from pathlib import Path

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

LOGGED = {
    "reward": "reward",
    "reward_std": "reward_std",
    "tokens": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "logp_difference": "sampling/sampling_logp_difference/mean",
    "logp_difference_max": "sampling/sampling_logp_difference/max",
    "ratio_mean": "sampling/importance_sampling_ratio/mean",
}


class MeasuredTrainer(GRPOTrainer):
    """Counts the tokens whose probability differs much between the trainer and the engine.

    Attributes:
        clipped: the share of sampled tokens whose ratio (the trainer's probability by the engine's) is above
            ``vllm_importance_sampling_clip_max``, and so clipped.
        far: the share whose ratio is further from 1 than ``epsilon``.
    """

    clipped = far = 0.0

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if "sampling_per_token_logps" in batch:
            sampled = (batch["completion_mask"] * batch.get("tool_mask", 1)).bool()
            difference = batch["old_per_token_logps"] - batch["sampling_per_token_logps"]
            ratio = torch.exp(difference[sampled])
            self.clipped = (ratio > self.vllm_importance_sampling_clip_max).float().mean().item()
            self.far = ((ratio - 1).abs() > self.args.epsilon).float().mean().item()
        return batch


class StepLog(TrainerCallback):
    """Writes the file; every ``every`` steps, and before the first, it looks at held-out rows.

    Args:
        rows: held-out rows; each is answered ``repeats`` times in a look.
    """

    def __init__(self, gym, spec, rows, file, *, every=10, repeats=2, tokens=32):
        self.trainer = None
        self._gym, self._spec, self._rows = gym, spec, list(rows)
        self._every, self._repeats, self._tokens = every, repeats, tokens
        self._file = Path(file)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("")
        self._since = self._step_s = self._rollouts_s = self._stale = 0.0

    def watched(self, rollout_func):
        """Notes how long the trainer waits for rollouts, and the share that older weights sampled in part."""

        def rollouts(prompts, trainer):
            since, current = time.monotonic(), f"step-{trainer.state.global_step}"
            columns = rollout_func(prompts, trainer)
            older = [set(versions) != {current} for versions in columns["gym_versions"]]
            self._rollouts_s, self._stale = time.monotonic() - since, statistics.fmean(older)
            return columns

        return rollouts

    def write(self, **found):
        with self._file.open("a") as file:
            rounded = {key: round(one, 5) if isinstance(one, float) else one for key, one in found.items()}
            file.write(json.dumps(rounded, ensure_ascii=False) + "\n")

    def on_train_begin(self, args, state, control, **_):
        self._look(0)

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "reward" in logs:
            found = {name: logs[key] for name, key in LOGGED.items() if key in logs}
            shares = {"clipped": self.trainer.clipped, "far": self.trainer.far}
            spent = {"seconds": self._step_s, "rollouts_s": self._rollouts_s}
            self.write(step=state.global_step, **found, **shares, stale=self._stale, **spent)

    def on_step_begin(self, args, state, control, **_):
        self._since = time.monotonic()

    def on_step_end(self, args, state, control, **_):
        self._step_s = time.monotonic() - self._since
        if state.global_step % self._every == 0 or state.global_step == args.max_steps:
            self._look(state.global_step)

    def _look(self, step):
        self._spec.sync_weights(self.trainer)
        asked = {"repeats": self._repeats, "temperature": 1.0, "max_output_tokens": self._tokens}
        for _ in range(10):  # a rollout fails while the engine is away, as in a run with --kill-every
            found = list(self._gym.rollouts(self._rows, environment="word_count", **asked))
            scored = [record for record in found if record.reward is not None]
            if len(scored) == len(found):
                break
        rewards = [record.reward for record in scored]
        shares = {
            name: statistics.fmean(record.numbers[name] for record in scored)
            for name in ("exact", "named", "plain", "cut_short", "words_said")
        }
        mean, error = statistics.fmean(rewards), statistics.stdev(rewards) / len(rewards) ** 0.5
        samples = [sample(record) for record in scored[:6]]
        self.write(step=step, held_out=mean, error=error, of=len(rewards), **shares, samples=samples)
        print(f"step {step}: held-out reward {mean:.3f} of {len(rewards)} rollouts", flush=True)


def sample(record):
    """A rollout to read."""
    row = json.loads(bytes(record.row))
    answer = record.messages[-1]["content"]
    return {"topic": row["topic"], "words": row["words"], "answer": answer, "reward": round(record.reward, 3)}
