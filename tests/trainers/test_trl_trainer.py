"""TRL's own trainer on a tiny model and a real system; runs where TRL is installed.

python -m venv trl && trl/bin/pip install -e ".[trl]" pytest
trl/bin/pytest tests/trainers/test_trl_trainer.py -p no:cacheprovider
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gym_runtime
import pytest
from gym_runtime import UsageError
from gym_trainers.trl import GymSpec

trl: Any = pytest.importorskip("trl", reason="needs pip install 'gym-runtime[trl]', in its own environment")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]
NAME = "example_session_state_mgmt"
COUNT = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
INCREMENT = {"type": "function", "name": "increment_counter", "parameters": COUNT}


def rows(*expected: Any) -> list[dict[str, Any]]:
    params = {"input": "Count.", "tools": [INCREMENT]}
    return [{"responses_create_params": params, "initial_count": 3, "expected_count": n} for n in expected]


@pytest.fixture(scope="module")
def gym() -> Iterator[Any]:
    with gym_runtime.connect_sync(model="scripted/tool-then-message", environments=[NAME]) as gym:
        yield gym


def trainer_of(spec: GymSpec, folder: Path, *, environments: bool = False, beside: Sequence[Any] = ()) -> Any:
    """GRPO of a random model, whose vocabulary holds the numbers that the script calls tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = models.WordLevel({str(number): number for number in range(2048)}, unk_token="0")
    split = Tokenizer(words)
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=split, eos_token="1", pad_token="2")
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen3.jinja").read_text()
    shape = LlamaConfig(
        vocab_size=2048,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    args = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8 if environments else 64,
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    made: dict[str, Any] = {"train_dataset": spec.train_dataset, "rollout_func": spec.rollout_func}
    if environments:
        made = {"train_dataset": spec.session_dataset, "environment_factory": spec.environment_factory}
    model = LlamaForCausalLM(shape)
    return trl.GRPOTrainer(model, [spec.reward_funcs, *beside], args, processing_class=tokenizer, **made)


@pytest.mark.parametrize("attached", [True, False])
def test_three_steps(gym: Any, tmp_path: Path, attached: bool) -> None:
    spec = GymSpec(gym, rows(4, 5), environment=NAME, weights=tmp_path / "weights")
    trainer = trainer_of(spec, tmp_path)
    if attached:
        spec.attach(trainer)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    assert [log["reward"] for log in logs] == [0.5] * 3
    # The engine's log-probabilities are read only where the spec stands for the engine.
    assert ("sampling/sampling_logp_difference/mean" in logs[0]) == attached
    # Each step sampled from the weights that the step before left.
    answers = gym.control(gym_runtime.adapters.Control(op="state")).values()
    assert {(answer.version, answer.paused) for answer in answers} == {("step-2", False)}
    saved = sorted(path.name for path in (tmp_path / "weights").iterdir())
    assert saved == ["0", "1"]
    assert (tmp_path / "weights" / "0" / "model.safetensors").stat().st_size < 200_000  # tied weights once


def test_rows_that_fill_no_batch_are_refused(gym: Any, tmp_path: Path) -> None:
    spec = GymSpec(gym, rows(4), environment=NAME)
    with pytest.raises(UsageError, match="a batch takes 2 rows, and the dataset has 1: give more"):
        spec.attach(trainer_of(spec, tmp_path))


def test_an_adapter_is_merged_into_what_the_engines_load(gym: Any, tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft", reason="needs pip install peft")
    import torch
    from transformers import LlamaForCausalLM

    spec = GymSpec(gym, rows(4), environment=NAME, weights=tmp_path / "weights")
    trainer = trainer_of(spec, tmp_path)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
    trainer.model = peft.get_peft_model(trainer.model, lora).eval()
    for name, values in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(values)
    prompt = torch.arange(12)[None]
    own = trainer.model(prompt).logits
    spec.sync_weights(trainer)
    served = LlamaForCausalLM.from_pretrained(tmp_path / "weights" / "0", dtype=torch.float32).eval()
    with trainer.model.disable_adapter():
        without = trainer.model(prompt).logits
    # Up to what bfloat16 costs; and the trainer's adapter is apart from its weights again.
    assert (served(prompt).logits - own).abs().max() < 0.1 * (without - own).abs().max()
    assert torch.allclose(trainer.model(prompt).logits, own, atol=1e-5)


def test_what_trl_gets_is_what_the_engine_sampled(gym: Any, tmp_path: Path) -> None:
    spec = GymSpec(gym, rows(4), environment=NAME)
    trainer = trainer_of(spec, tmp_path)
    prompts = [trainer.train_dataset[0]["prompt"]] * 4
    columns = spec.rollout_func(prompts, trainer)
    assert [len(column) for column in columns.values()] == [4] * len(columns)
    for prompt, completion, logprobs, mask in zip(
        *(columns[name] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")), strict=True
    ):
        # The script's ids are consecutive numbers over both turns, its log-probabilities -0.25.
        assert prompt + completion == list(range(len(prompt) + len(completion)))
        assert {value for value, sampled in zip(logprobs, mask, strict=True) if sampled} == {-0.25}
        assert len(logprobs) == len(mask) == len(completion)


def test_steps_on_one_seat_of_a_game(tmp_path: Path) -> None:
    moves, params = tmp_path / "moves.jsonl", {"input": "You play Nim."}
    moves.write_text('["<take>1 1</take>"]\n["<take>2 1</take>"]\n')
    games = [{"responses_create_params": params, "heaps": heaps} for heaps in ([2, 1], [2, 2])]
    with gym_runtime.connect_sync(model=f"scripted/{moves}", environments=["nim"]) as gym:
        with pytest.raises(gym_runtime.errors.UsageError, match="name one with seat='first'"):
            trainer_of(GymSpec(gym, games, environment="nim"), tmp_path).train()
        trainer = trainer_of(GymSpec(gym, games, environment="nim", seat="second"), tmp_path)
        trainer.train()
    assert [log["reward"] for log in trainer.state.log_history if "reward" in log] == [0.5] * 3


def test_a_failed_rollout_leaves_its_groups_mean_alone_and_advantages_are_trls(
    gym: Any, tmp_path: Path
) -> None:
    spec = GymSpec(gym, rows(4), environment=NAME)
    trainer = trainer_of(spec, tmp_path)
    rewards = [1.0, 0.0, None, 1.0]

    def some_fail(prompts: Any, trainer: Any) -> Any:
        return {**spec.rollout_func(prompts, trainer), "gym_reward": rewards}

    trainer.rollout_func = some_fail
    trainer.model.train()
    inputs = [dict(trainer.train_dataset[0]) for _ in rewards]
    scored = trainer._generate_and_score_completions(inputs)
    assert scored["advantages"].tolist() == pytest.approx(gym_runtime.training.advantages(rewards), abs=1e-5)
    assert scored["advantages"].tolist()[2] == 0.0
    assert trainer._metrics["train"]["reward"][-1] == pytest.approx(2 / 3)


def test_a_reward_function_beside_ours_leaves_out_what_failed_by_its_outcome(
    gym: Any, tmp_path: Path
) -> None:
    def short(completions: Any, gym_outcome: list[str], **columns: Any) -> list[float | None]:
        return [None if one == "failed" else 0.5 for one in gym_outcome]

    spec = GymSpec(gym, rows(4), environment=NAME)
    trainer = trainer_of(spec, tmp_path, beside=[short])
    rewards, outcomes = [1.0, 0.0, None, 1.0], ["completed", "completed", "failed", "completed"]

    def some_fail(prompts: Any, trainer: Any) -> Any:
        return {**spec.rollout_func(prompts, trainer), "gym_reward": rewards, "gym_outcome": outcomes}

    trainer.rollout_func = some_fail
    trainer.model.train()
    scored = trainer._generate_and_score_completions([dict(trainer.train_dataset[0]) for _ in rewards])
    assert scored["advantages"].tolist() == pytest.approx(gym_runtime.training.advantages(rewards), abs=1e-5)


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "grpo_cpu"


def example(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What three steps of the example log; the scripted engine repeats the prompt."""
    script, log = str(EXAMPLE / "train.py"), folder / "steps.jsonl"
    command = [sys.executable, script, "--work", str(folder), "--log", str(log), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_example_of_grpo_on_a_cpu(tmp_path: Path) -> None:
    assert len((EXAMPLE / "train.py").read_text().splitlines()) <= 80
    logged = example(tmp_path)
    looks = [(one["step"], round(one["held_out"], 3)) for one in logged if "held_out" in one]
    assert looks == [(0, 0.462), (3, 0.462)]
    steps = [one for one in logged if "reward" in one]
    assert [one["stale"] for one in steps] == [0.0] * 3
    assert all(one["reward"] > 0 and "clipped" in one for one in steps)


def test_the_example_learns_the_same_while_workers_are_killed(tmp_path: Path) -> None:
    # Forty steps take 12 s if none is delayed, so each kind has its turn. A kill delays a step by two
    # seconds, so on a slow machine every step has one. An agent worker dies every 9 s: with less time than
    # `TASK_ACK_WAIT_S` and a restart, the same rollout could lose three of them in a row.
    quiet = example(tmp_path, "--steps", "40")
    logged = example(tmp_path, "--kill-every", "3", "--steps", "40")
    assert {one["killed"] for one in logged if "killed" in one} == {"agent", "resource", "model"}

    def learned(found: list[dict[str, Any]]) -> list[tuple[float, float]]:
        return [(one["reward"], one["stale"]) for one in found if "reward" in one]

    assert learned(logged) == learned(quiet)


def test_the_example_one_step_off_policy(tmp_path: Path) -> None:
    steps = [one for one in example(tmp_path, "--asynchronous") if "reward" in one]
    # The first step waits for its own rollouts; those of the others were begun a step before.
    assert [one["stale"] for one in steps] == [0.0, 1.0, 1.0]


def test_trl_samples_and_takes_our_tools_and_verdicts(gym: Any, tmp_path: Path) -> None:
    """TRL generates, and each completion is judged in a session of ours."""
    from transformers.utils import get_json_schema

    spec = GymSpec(gym, rows(3, 4), environment=NAME)
    environment: Any = spec.environment_factory()
    schema = get_json_schema(environment.increment_counter)["function"]  # what TRL tells the model
    assert schema["parameters"]["required"] == ["count"]
    assert schema["parameters"]["properties"]["count"]["type"] == "integer"
    trainer = trainer_of(spec, tmp_path, environments=True)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    # A random model calls no tool: the counter of each session stays where its own row began.
    assert [log["reward"] for log in logs] == [0.5] * 3
