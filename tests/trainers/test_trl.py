"""TRL's batches from rollouts, made without TRL: nothing here needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gym_runtime.client import SyncClient, connect, connect_sync
from gym_runtime.errors import GymError, NoWorker, UsageError
from gym_runtime.messages.outcomes import Failed
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_trainers.trl import GymSpec, NextStep, Part, parts_of, sampled_as
from gym_trainers.trl_environment import gym_reward
from gym_trainers.trl_weights import Weights
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9))), st.integers(1, 4))
def test_parts_are_the_prompts_again(drawn: list[tuple[str, int]], size: int) -> None:
    prompts = [prompt for prompt, count in drawn for _ in range(count)]
    parts = parts_of(prompts, size)
    assert [part.prompt for part in parts for _ in range(part.size)] == prompts
    assert all(1 <= part.size <= size for part in parts)


def test_the_same_row_twice_in_a_batch_is_two_groups() -> None:
    assert parts_of(["a"] * 4 + ["b"] * 2, 2) == [Part("a", 2), Part("a", 2), Part("b", 2)]


def arguments(**more: Any) -> Any:
    told: dict[str, Any] = {"temperature": 0.9, "top_p": 1.0, "top_k": 0, "min_p": None}
    return SimpleNamespace(**{**told, "max_completion_length": 64, **more})


def test_sampling_is_the_trainers() -> None:
    settings = sampled_as(RolloutSettings(sampling={"seed": 3}), arguments())
    assert settings.return_token_ids
    assert settings.sampling == {**WHOLE, "seed": 3, "temperature": 0.9, "max_output_tokens": 64}
    narrow = sampled_as(RolloutSettings(), arguments(top_p=0.5, top_k=7, min_p=0.1)).sampling
    assert (narrow["top_p"], narrow["top_k"], narrow["min_p"]) == (0.5, 7, 0.1)
    with pytest.raises(UsageError, match=r"temperature is 1\.0 and the trainer's 0\.9"):
        sampled_as(RolloutSettings(sampling={"temperature": 1.0}), arguments())


WHOLE = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


def test_an_engines_own_defaults_do_not_narrow_what_the_trainer_takes_for_the_whole_distribution() -> None:
    """vLLM takes what a request leaves out from the model's ``generation_config.json``.

    Those of Qwen2.5's instruct models narrow all three.
    """
    for unlimited in ({"top_k": -1}, {"top_k": None, "top_p": None}, {"min_p": 0.0}):
        sampling = sampled_as(RolloutSettings(), arguments(**unlimited)).sampling
        assert {name: sampling[name] for name in WHOLE} == WHOLE
    # What the settings name stays, wherever they name it.
    given = RolloutSettings(sampling={"top_p": 0.8, "extra_body": {"top_k": 20}})
    sampling = sampled_as(given, arguments()).sampling
    assert sampling["top_p"] == 0.8
    assert sampling["extra_body"] == {"top_k": 20}
    assert "top_k" not in sampling


def test_all_that_the_trainers_arguments_say_of_sampling_is_taken() -> None:
    template, body = {"enable_thinking": False}, {"min_tokens": 3}
    given = RolloutSettings(sampling={"chat_template_kwargs": {"lang": "en"}, "extra_body": body, "seed": 3})
    kwargs = {"stop": ["</answer>"], "top_k": 9, "bad_words": ["no"]}
    told = arguments(top_k=7, repetition_penalty=1.2, chat_template_kwargs=template, generation_kwargs=kwargs)
    sampling = sampled_as(given, told).sampling
    assert sampling == {
        **WHOLE,
        "temperature": 0.9,
        "max_output_tokens": 64,
        "seed": 3,
        "repetition_penalty": 1.2,
        "chat_template_kwargs": {"lang": "en", **template},
        "stop": ["</answer>"],
        "top_k": 9,  # these override, as they do with TRL's own engine
        "extra_body": {**body, "bad_words": ["no"]},
    }
    assert sampled_as(
        RolloutSettings(), arguments(repetition_penalty=1.0, generation_kwargs=None)
    ).sampling == {
        **WHOLE,
        "temperature": 0.9,
        "max_output_tokens": 64,
    }
    with pytest.raises(UsageError, match=r"temperature is 0\.5"):
        sampled_as(RolloutSettings(), arguments(generation_kwargs={"temperature": 0.5}))


NAME = "example_session_state_mgmt"
COUNT = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
INCREMENT = {"type": "function", "name": "increment_counter", "parameters": COUNT}


def row(expected: int) -> dict[str, Any]:
    params = {"input": "Count.", "tools": [INCREMENT]}
    return {"responses_create_params": params, "initial_count": 3, "expected_count": expected}


class FakeTrainer(SimpleNamespace):
    """What `GymSpec` reads of TRL's trainer."""

    def __init__(self, generations: int, *, attached: bool = False) -> None:
        super().__init__(
            args=arguments(),
            num_generations=generations,
            num_generations_eval=1,
            model=SimpleNamespace(training=True),
            use_vllm=attached,
            processing_class=SimpleNamespace(eos_token_id=9),
        )


@pytest.fixture(scope="module")
def gym() -> Iterator[SyncClient]:
    with connect_sync(model="scripted/tool-then-message", environments=[NAME]) as gym:
        yield gym


def test_a_client_whose_methods_return_coroutines_is_refused() -> None:
    with pytest.raises(UsageError, match="give it a client of"):
        GymSpec(cast("Any", connect("nats://127.0.0.1:1")), [], weights="weights")


@pytest.mark.slow
def test_a_batch_comes_back_in_the_order_of_its_prompts(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME)
    right, wrong = json.dumps(row(4)), json.dumps(row(5))
    prompts = [right, right, wrong, wrong, right, right, wrong]
    columns = spec.rollout_func(prompts, FakeTrainer(2))
    assert columns["gym_reward"] == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    for ids, mask in zip(columns["completion_ids"], columns["env_mask"], strict=True):
        assert 0 < sum(mask) < len(ids) == len(mask)
    evaluated = FakeTrainer(2)
    evaluated.model.training = False
    assert spec.rollout_func([right, wrong], evaluated)["gym_reward"] == [1.0, 0.0]


@pytest.mark.slow
def test_what_fails_for_good_keeps_its_place(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME, settings=RolloutSettings(timeout_s=0.0001))
    columns = spec.rollout_func([json.dumps(row(4))] * 2, FakeTrainer(2))
    assert (columns["gym_reward"], columns["completion_ids"]) == ([None] * 2, [[9]] * 2)


@pytest.mark.slow
def test_tools_and_the_verifier_of_a_session(gym: SyncClient) -> None:
    spec = GymSpec(gym, [row(4)], environment=NAME)
    first, second = (spec.environment_factory() for _ in range(2))
    said = [{"role": "assistant", "content": "Done."}]
    for one in (first, second):
        one.reset(row=json.dumps(row(4)), prompt="not used")
    assert vars(type(first))["increment_counter"](first, count=1) == '{"success":true}'
    assert gym_reward([], [said] * 2, environments=[first, second]) == [1.0, 0.0]
    # A session is judged once; its environment has none until the next reset.
    assert gym_reward([], [said], environments=[first]) == [None]
    first.reset(row="{}")  # no such task: no session, and so no reward
    assert "not available" in vars(type(first))["increment_counter"](first, count=1)
    assert gym_reward([], [said], environments=[first]) == [None]


class EngineAway:
    """A client whose first groups fail as they do when the engine has died and is not back in time."""

    def __init__(self, gym: SyncClient) -> None:
        self._gym = gym
        self.calls: list[list[int]] = []

    def groups(self, rows: list[Any], settings: RolloutSettings, *, keys: list[int], **more: Any) -> Any:
        self.calls.append(keys)
        fault = NoWorker("no worker serves model 'policy' since 30 s", stage="model").fault()
        for group in self._gym.groups(rows, settings, keys=keys, **more):
            if len(self.calls) == 1 and group.key == 1:
                lost = [msgspec.structs.replace(group.rollouts[0], outcome=Failed(fault=fault), reward=None)]
                group = msgspec.structs.replace(group, rollouts=[*lost, *group.rollouts[1:]])
            yield group


@pytest.mark.slow
def test_a_group_that_found_no_engine_is_made_again(gym: SyncClient) -> None:
    away: Any = EngineAway(gym)
    spec = GymSpec(away, [], environment=NAME)
    right, wrong = json.dumps(row(4)), json.dumps(row(5))
    columns = spec.rollout_func([right, right, wrong, wrong], FakeTrainer(2))
    assert columns["gym_reward"] == [1.0, 1.0, 0.0, 0.0]
    assert [sorted(keys) for keys in away.calls] == [[0, 1], [1]]


ONE_STEP = {"steps_per_generation": 1, "num_iterations": 1, "gradient_accumulation_steps": 1}


@pytest.mark.slow
def test_asynchronous_rollouts_are_one_step_old_at_most(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME, asynchronous=True)
    trainer = FakeTrainer(2, attached=True)
    trainer.args = arguments(**ONE_STEP)
    rewards: list[list[float]] = []
    for step, expected in enumerate((4, 5, 4, 5)):
        trainer.state = SimpleNamespace(global_step=step, max_steps=4)
        gym.update_weights(f"/weights/{step}", f"step-{step}")
        columns = spec.rollout_func([json.dumps(row(expected))] * 2, trainer)
        allowed = {f"step-{step - 1}", f"step-{step}"}
        assert all(versions and set(versions) <= allowed for versions in columns["gym_versions"])
        rewards.append(columns["gym_reward"])
    # The first step's prompts are used twice; every other batch is made of the prompts of the step before.
    assert rewards == [[1.0] * 2, [1.0] * 2, [0.0] * 2, [1.0] * 2]


@pytest.mark.slow
def test_asynchronous_batches_have_one_size(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME, asynchronous=True)
    trainer = FakeTrainer(1, attached=True)
    trainer.args = arguments(**ONE_STEP)
    trainer.state = SimpleNamespace(global_step=0, max_steps=2)
    prompt = json.dumps(row(4))
    spec.rollout_func([prompt], trainer)
    trainer.state.global_step = 1
    with pytest.raises(GymError, match="a batch of 2 prompts follows one of 1"):
        spec.rollout_func([prompt] * 2, trainer)


def test_the_next_steps_rollouts_begin_early_with_gradient_accumulation_too() -> None:
    begun: list[str] = []

    def make(prompts: Sequence[str], trainer: Any, size: int) -> dict[str, list[Any]]:
        begun.extend(prompts)
        return {"prompt_ids": [0]}

    trainer = FakeTrainer(1)
    trainer.args = arguments(steps_per_generation=16, num_iterations=1, gradient_accumulation_steps=16)
    next_step = NextStep(make)
    for step in range(4):
        trainer.state = SimpleNamespace(global_step=step, max_steps=4)
        next_step.step([str(step)], trainer)
    assert sorted(begun) == ["0", "0", "1", "2"]  # the last step has no next one


def test_asynchronous_rollouts_need_a_trainer_that_corrects_for_their_age() -> None:
    gym: Any = None  # it is not asked
    spec = GymSpec(gym, [], environment=NAME, asynchronous=True)
    with pytest.raises(UsageError, match=r"spec\.attach\(trainer\) before"):
        spec.rollout_func(["a"], FakeTrainer(1))


class Told(Exception):
    """The settings with which a batch would run."""


def test_rollouts_may_be_as_old_as_a_batch_has_updates() -> None:
    def groups(rows: Any, settings: RolloutSettings, **more: Any) -> Any:
        raise Told(settings.max_staleness)

    trainer = FakeTrainer(1, attached=True)
    trainer.args = arguments(steps_per_generation=16, num_iterations=2, gradient_accumulation_steps=16)
    trainer.state = SimpleNamespace(global_step=0, max_steps=20)
    for settings, expected in ((None, 2), (RolloutSettings(max_staleness=1), 1)):
        gym: Any = SimpleNamespace(groups=groups)
        spec = GymSpec(gym, [], environment=NAME, asynchronous=True, settings=settings)
        with pytest.raises(Told, match=f"^{expected}$"):
            spec.rollout_func(["a"], trainer)


class Accelerator:
    """What `Weights` asks of a trainer's accelerator."""

    is_main_process = True

    def unwrap_model(self, model: Any) -> Any:
        return model

    def get_state_dict(self, model: Any) -> dict[str, Any]:
        return {}

    def wait_for_everyone(self) -> None:
        return


def test_weights_are_not_written_over_those_that_the_engines_have() -> None:
    """With two updates on each batch the trainer's step is even at each."""
    written: list[str] = []
    loaded: list[str] = []
    gym: Any = SimpleNamespace(update_weights=lambda path, version, model: loaded.append(path.name))
    model = SimpleNamespace(save_pretrained=lambda path, state_dict: written.append(path.name))
    weights = Weights(gym, Path("unused"), "policy")
    for step in (0, 2, 2, 4):
        state = SimpleNamespace(global_step=step)
        weights.sync(SimpleNamespace(state=state, accelerator=Accelerator(), model=model))
    assert written == loaded == ["0", "1", "0"]
