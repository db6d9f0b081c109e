"""OpenRLHF's executor and remote reward: with OpenRLHF's own classes where it is installed.

python3.11 -m venv openrlhf && openrlhf/bin/pip install --no-deps openrlhf
openrlhf/bin/pip install torch transformers ray aiohttp -e . pytest pytest-asyncio
openrlhf/bin/pytest tests/trainers/test_openrlhf.py
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from trainers.trainer_stubs import stand_in
from trainers.trainers_engine import (
    CHOICE,
    END,
    END_ID,
    TurnEngine,
    byte_tokenizer,
    counter_row,
)

stand_in("openrlhf")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # OpenRLHF's
    from gym_trainers.openrlhf import GymAgentExecutor, reward_func, without_end_tokens

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]


class Params(SimpleNamespace):
    """vLLM's SamplingParams, as OpenRLHF sets them."""

    def __init__(self, logprobs: int | None = 1) -> None:
        super().__init__(
            temperature=0.9, top_p=1.0, top_k=-1, max_tokens=128, min_tokens=1, logprobs=logprobs
        )


class Actor:
    """The method of OpenRLHF's RolloutRayActor that an executor calls; it calls the tool, and then ends."""

    def __init__(self) -> None:
        self.tokenizer = byte_tokenizer()
        self.engine = TurnEngine(self.tokenizer)

    async def generate(self, ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        said = self.engine.count_up(list(ids), vars(params))
        values = zip(said, self.engine.log_probs(said), strict=True)
        log_probs = [{token: SimpleNamespace(logprob=value)} for token, value in values]
        output = SimpleNamespace(
            token_ids=tuple(said),
            finish_reason="stop" if said[-1] == END_ID else "length",
            logprobs=log_probs if params.logprobs is not None else None,
        )
        return SimpleNamespace(outputs=[output])


def executor(**members: Any) -> Any:
    """The class that a user's file has."""
    return type("AgentExecutor", (GymAgentExecutor,), members)()


async def group(made: Any, actor: Actor, *rows: Any, **params: Any) -> list[Any]:
    """What OpenRLHF's actor makes of a prompt: all samples get the same parameters, at the same time.

    Here each sample has its own row, so that their ends differ.
    """
    shared, found = Params(**params), [{} for _ in rows]

    async def one(place: int, label: str) -> None:
        found[place] = await made.execute("prompt", label, shared, 500, actor.tokenizer, actor)

    async with anyio.create_task_group() as tasks:
        for place, row in enumerate(rows):
            tasks.start_soon(one, place, json.dumps(row))
    await made._source.close()
    return found


async def test_the_engine_is_asked_with_openrlhfs_parameters(system: SyncClient) -> None:
    actor = Actor()
    (response,) = await group(executor(), actor, counter_row())
    assert (response["reward"], response["scores"], response["truncated"]) == (1.0, 1.0, False)
    assert response["extra_logs"] == {"gym_failed": 0.0, "gym_turns": 2.0}
    assert [(one["temperature"], one["max_tokens"], one["min_tokens"]) for one in actor.engine.params] == [
        (0.9, 128, 1)
    ] * 2


async def test_without_log_probabilities(system: SyncClient) -> None:
    (response,) = await group(executor(), Actor(), counter_row(), logprobs=None)
    assert response["rollout_log_probs"] is None


async def test_a_failed_rollout_has_the_mean_of_its_group(system: SyncClient) -> None:
    made, actor = executor(), Actor()
    too_long = counter_row() | {"responses_create_params": {"input": "x" * 600}}
    right, wrong, failed = await group(made, actor, counter_row(), counter_row(5), too_long)
    assert [one["reward"] for one in (right, wrong, failed)] == [1.0, 0.0, 0.5]
    assert (failed["observation_tokens"], failed["action_ranges"]) == ([END_ID] * 2, [(1, 2)])
    assert failed["rollout_log_probs"] == [0.0, 0.0]
    assert failed["extra_logs"] == {"gym_failed": 1.0, "gym_turns": 0.0}
    assert not made._groups._open


async def test_what_fails_is_made_again(system: SyncClient) -> None:
    actor = Actor()
    actor.engine.failing = 2
    made = executor(settings={"max_attempts": 1})
    (response,) = await group(made, actor, counter_row())
    assert response["reward"] == 1.0


def test_a_remote_reward(system: SyncClient) -> None:
    prompt = f"<|im_start|>user\nAnswer with \\boxed{{B}}.{END}\n<|im_start|>assistant\n"
    for said, reward in (("\\boxed{B}", 1.0), ("\\boxed{A}", 0.0)):
        found = reward_func([f"{prompt}{said}{END}\n"], [prompt], [json.dumps(CHOICE)])
        assert (found["rewards"], found["scores"]) == (reward, reward)
    with pytest.raises(GymError):
        reward_func([prompt], [prompt], [json.dumps({"agent_ref": {"name": "mcqa"}})])


# -- OpenRLHF's own code ------------------------------------------------------------------------------------


def samples_generator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """OpenRLHF's SamplesGenerator, which makes experiences. vLLM has no part in that."""
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setattr(sys.modules["vllm"], "SamplingParams", Params, raising=False)
    monkeypatch.setitem(sys.modules, "openrlhf.trainer.ray.vllm_engine", ModuleType("vllm_engine"))
    module: Any = sys.modules["openrlhf.trainer.ray.vllm_engine"]
    module.batch_vllm_engine_call = None
    for package in ("openrlhf.trainer", "openrlhf.trainer.ppo_utils", "openrlhf.trainer.ray"):
        # Their __init__ imports deepspeed, which is not needed here.
        if package not in sys.modules:
            import openrlhf

            stand = ModuleType(package)
            parts = package.split(".")[1:]
            stand.__path__ = [str(Path(openrlhf.__path__[0], *parts))]
            monkeypatch.setitem(sys.modules, package, stand)
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    return SamplesGenerator.__new__(SamplesGenerator)


@pytest.mark.parametrize("piece", [" ", "<|a|>", " \n", "<|a", "</s> "])
def test_the_end_of_an_answer_is_found_in_linear_time(piece: str) -> None:
    text = piece * 20_000 + "x"
    started_s = time.process_time()
    assert without_end_tokens(text) == text
    assert time.process_time() - started_s < 0.5  # an expression with a star in a star took 20 s


def test_only_the_end_tokens_are_taken_from_an_answer() -> None:
    assert without_end_tokens("a</s> b <|im_end|>\n<|endoftext|>\n") == "a</s> b"
    assert without_end_tokens("a \n") == "a \n"
    assert without_end_tokens("</s>") == ""
