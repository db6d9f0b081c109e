"""SkyRL's generator and environment: with SkyRL's own classes where they are installed (Python 3.12).

python3.12 -m venv skyrl && skyrl/bin/pip install --no-deps skyrl && skyrl/bin/pip install skyrl-gym
skyrl/bin/pip install torch transformers ray loguru cloudpathlib jaxtyping s3fs gcsfs polars tensordict
skyrl/bin/pip install -e . pytest pytest-asyncio
skyrl/bin/pytest tests/trainers/test_skyrl.py
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from gym_trainers.training_rollouts import ROW, dataset_rows
from trainers.trainer_stubs import installed, stand_in
from trainers.trainers_engine import (
    CALL,
    CHOICE,
    COUNTER,
    END_ID,
    TurnEngine,
    byte_tokenizer,
    counter_row,
    experts_of,
)

stand_in("skyrl", "skyrl_gym")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # SkyRL's
    from gym_trainers.skyrl import GymGenerator
    from gym_trainers.skyrl_environment import GymEnv

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
TOO_LONG = counter_row() | {"responses_create_params": {"input": "x" * 800}}


class InferenceClient:
    """The method of SkyRL's inference engine client that generators call, around an engine of a test.

    Args:
        experts: how many its model has; 0 for an engine that does not tell them.
    """

    def __init__(self, experts: int = 0) -> None:
        self.experts = experts
        self.tokenizer = byte_tokenizer()
        self.engine = TurnEngine(self.tokenizer)
        self.weight_version = 5
        self.requests: list[Any] = []
        self.finished: list[str] = []

    async def finish_session(self, session_id: str) -> None:
        self.finished.append(session_id)

    async def generate(self, request: Any, model: str | None = None) -> Any:
        self.requests.append((request, model))
        (prompt,) = request["prompt_token_ids"]
        params = request["sampling_params"]
        ids = self.engine.count_up(list(prompt), params)
        log_probs = self.engine.log_probs(ids) if params.get("logprobs") is not None else None
        return {
            "responses": [self.tokenizer.decode(ids, skip_special_tokens=True)],
            "response_ids": [ids],
            "stop_reasons": ["stop" if ids[-1] == END_ID else "length"],
            "response_logprobs": None if log_probs is None else [log_probs],
            "rollout_expert_indices": [experts_of([*prompt, *ids], self.experts)] if self.experts else None,
        }


@dataclass
class SamplingParams:
    """SkyRL's, with its names."""

    max_generate_length: int = 200
    repetition_penalty: float = 1.0
    temperature: float = 0.8
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = -1
    logprobs: int | None = 1
    stop: list[str] | None = None
    additional_kwargs: dict[str, Any] | None = None


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


def batch(*rows: Any, names: str, **more: Any) -> Any:
    """A GeneratorInput; rollouts of one name are a group."""
    return {
        "prompts": [[{"role": "user", "content": "?"}] for _ in rows],
        "env_classes": ["gym_runtime"] * len(rows),
        "env_extras": [{ROW: json.dumps(row)} for row in rows],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID(name, place) for place, name in enumerate(names)],
        **more,
    }


def config_of(**fields: Any) -> Any:
    """SkyRL's configuration of a generator; its own class where it is installed."""
    replays = fields.pop("replays", False)
    given: dict[str, Any] = {"max_input_length": 300, "use_cache_salt": True, **fields}
    if installed("skyrl"):
        from skyrl.train.config import GeneratorConfig, InferenceEngineConfig

        served = InferenceEngineConfig(enable_return_routed_experts=replays)
        return GeneratorConfig(inference_engine=served, **given)
    served = SimpleNamespace(enable_return_routed_experts=replays)
    own: dict[str, Any] = {"step_wise_trajectories": False, "apply_overlong_filtering": False}
    own |= {"zero_reward_on_non_stop": False, "chat_template_kwargs": {}}
    own |= {"chat_template": SimpleNamespace(name_or_path=None), "inference_engine": served}
    return SimpleNamespace(**{**own, **given})


async def generated(
    client: InferenceClient,
    given: Any,
    *,
    by_steps: bool = False,
    credit: Any = "accepted",
    seat: str = "",
    settings: Any = None,
    replays: bool = False,
    config: Any = None,
    **params: Any,
) -> Any:
    fields: dict[str, Any] = {"step_wise_trajectories": by_steps, "replays": replays, **(config or {})}
    config = config_of(sampling_params=SamplingParams(**params), **fields)
    asked: dict[str, Any] = {"policy_model_name": "tiny", "credit": credit, "seat": seat}
    generator = GymGenerator(config, client.tokenizer, client, settings=settings, **asked)
    try:
        return await generator.generate(given)
    finally:
        await generator.close()


async def test_a_batch_comes_back_in_its_order(system: SyncClient) -> None:
    client = InferenceClient()
    right, wrong = counter_row(), counter_row(5)
    output = await generated(client, batch(right, right, wrong, wrong, right, names="aabbc"))
    assert output["rewards"] == [1.0, 1.0, 0.0, 0.0, 1.0]
    assert output["stop_reasons"] == ["stop"] * 5
    # Groups of equal rewards, and one of a single rollout.
    metrics = {"gym/failed": 0, "gym/turns": 2.0, "gym/tool_calls": 1.0, "gym/useful": 0.0}
    assert output["rollout_metrics"] == metrics
    assert len(client.finished) == 5
    assert set(client.finished) == {request["session_ids"][0] for request, _ in client.requests}
    (request, model), *_ = client.requests
    assert model == "tiny"
    assert request["cache_salt"] == "tiny:5"
    assert request["sampling_params"] == {"temperature": 0.8, "top_p": 1.0, "max_tokens": 200, "logprobs": 0}


async def test_a_failed_rollout_is_masked_and_leaves_its_groups_mean_alone(system: SyncClient) -> None:
    output = await generated(InferenceClient(), batch(counter_row(), TOO_LONG, names="ab"))
    # They cannot be one group here, because all rollouts of a group have one row.
    assert output["rewards"] == [1.0, 0.0]
    assert (output["response_ids"][1], output["loss_masks"][1]) == ([END_ID], [0])
    assert output["rollout_logprobs"][1] == [0.0]
    assert output["rollout_metrics"]["gym/failed"] == 1


def test_the_reward_of_what_failed_is_its_groups_mean() -> None:
    records: Any = [
        SimpleNamespace(reward_of=lambda seat, given=reward: given) for reward in (1.0, None, 0.5, None, 0.0)
    ]
    generator = SimpleNamespace(_config=config_of())
    found = GymGenerator._rewards(generator, records, "aaabb", [""] * 5)
    assert found == [1.0, 0.75, 0.5, 0.0, 0.0]


async def test_evaluation_samples_as_its_request_says(system: SyncClient) -> None:
    client = InferenceClient()
    asked = {"temperature": 0.0, "top_p": 1.0, "top_k": 4, "max_tokens": 150, "stop": None, "logprobs": None}
    output = await generated(client, batch(counter_row(), names="a", sampling_params=asked), logprobs=None)
    assert output["rollout_logprobs"] is None
    params = {"temperature": 0.0, "top_p": 1.0, "top_k": 4, "max_tokens": 150}
    assert client.engine.params == [params, params]


async def test_the_chat_templates_arguments_are_those_of_the_configuration(
    system: SyncClient,
) -> None:
    client = InferenceClient()
    own = counter_row()
    own["responses_create_params"]["metadata"] = {"chat_template_kwargs": '{"note": "the row\'s"}'}
    config = {"chat_template_kwargs": {"note": "the trainer's"}}
    await generated(client, batch(counter_row(), own, names="ab"), config=config)
    prompts = {client.tokenizer.decode(prompt)[:10] for prompt, _ in client.engine.seen}
    assert prompts == {"the traine", "the row's<"}


async def test_a_truncated_rollout_is_masked_or_gets_no_reward_where_skyrl_says_so(
    system: SyncClient,
) -> None:
    given, cut = batch(counter_row(), names="a"), {"max_turns": 1}
    plain = await generated(InferenceClient(), given, settings=cut)
    assert (plain["rewards"], plain["stop_reasons"]) == ([1.0], ["length"])
    assert any(plain["loss_masks"][0])
    filtered = await generated(
        InferenceClient(), given, settings=cut, config={"apply_overlong_filtering": True}
    )
    assert (filtered["rewards"], any(filtered["loss_masks"][0])) == ([1.0], False)
    zero = await generated(InferenceClient(), given, settings=cut, config={"zero_reward_on_non_stop": True})
    assert zero["rewards"] == [0.0]
    assert any(zero["loss_masks"][0])
    whole = {"apply_overlong_filtering": True, "zero_reward_on_non_stop": True}
    ended = await generated(InferenceClient(), given, config=whole)
    assert (ended["rewards"], any(ended["loss_masks"][0])) == ([1.0], True)


# -- the environment ----------------------------------------------------------------------------------------


def played(row: Any, *answers: str, max_turns: int = 5) -> list[Any]:
    env = GymEnv(extras={ROW: json.dumps(row), "max_turns": max_turns})
    env.init([{"role": "user", "content": "Count."}])
    try:
        return [env.step(answer) for answer in answers]
    finally:
        env.close()


def test_the_model_is_told_of_the_tools(system: SyncClient) -> None:
    env = GymEnv(extras={ROW: json.dumps(counter_row())})
    prompt, _ = env.init([{"role": "user", "content": "Count."}])
    env.close()
    assert [one["role"] for one in prompt] == ["system", "user"]
    assert "increment_counter" in prompt[0]["content"]


def test_tools_are_called_and_the_transcript_is_judged(system: SyncClient) -> None:
    first, second = played(counter_row(), CALL, "Done.")
    assert (first["done"], first["reward"]) == (False, 0.0)
    assert first["observations"] == [{"role": "tool", "content": '{"success":true}'}]
    assert (second["done"], second["reward"], second["observations"]) == (True, 1.0, [])
    assert played(counter_row(5), CALL, "Done.")[-1]["reward"] == 0.0


def test_the_last_turn_is_judged_whatever_it_is(system: SyncClient) -> None:
    (only,) = played(counter_row(), CALL, max_turns=1)
    assert (only["done"], only["reward"]) == (True, 1.0)


def test_a_verifier_alone(system: SyncClient) -> None:
    assert played(CHOICE, "\\boxed{B}")[0]["reward"] == 1.0
    assert played(CHOICE, "\\boxed{A}")[0]["reward"] == 0.0


def test_what_fails_raises(system: SyncClient) -> None:
    with pytest.raises(GymError):
        played({"agent_ref": {"name": COUNTER}}, "Done.")


# -- SkyRL's own code ---------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_skyrls_trainer_accepts_the_batch(system: SyncClient) -> None:
    if not installed("skyrl"):
        pytest.skip("needs skyrl 0.4 on Python 3.12: pip install --no-deps skyrl, and torch, ray …")
    from skyrl.train.config import SamplingParams as Real
    from skyrl.train.generators.base import GeneratorInterface, TrajectoryID
    from skyrl.train.generators.utils import concatenate_generator_outputs, get_metrics_from_generator_output
    from skyrl.train.utils.trainer_utils import validate_generator_output

    names, rows = "aab", [counter_row(), counter_row(), TOO_LONG]
    given = batch(*rows, names=names)
    given["trajectory_ids"] = [TrajectoryID(name, place) for place, name in enumerate(names)]
    client = InferenceClient()
    config = config_of(sampling_params=Real(max_generate_length=200))
    generator = GymGenerator(config, client.tokenizer, client, policy_model_name="org/tiny")
    assert isinstance(generator, GeneratorInterface)
    output: Any = await generator.generate(given)
    await generator.close()
    validate_generator_output(3, output)
    assert get_metrics_from_generator_output(output, list(names))["pass_at_n"] == 0.5
    both = concatenate_generator_outputs([output, dict(output)])
    validate_generator_output(6, both)


@pytest.mark.timeout(120)
async def test_skyrls_own_generator_plays_the_environment(system: SyncClient) -> None:
    if not (installed("skyrl") and installed("skyrl_gym")):
        pytest.skip("needs skyrl 0.4 and skyrl-gym on Python 3.12")
    import skyrl_gym
    from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
    from skyrl.train.config import SamplingParams as Real
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
    from skyrl.train.utils.trainer_utils import validate_generator_output

    if "gym_runtime" not in skyrl_gym.envs.registration.registry:
        skyrl_gym.register(id="gym_runtime", entry_point="gym_trainers.skyrl_environment:GymEnv")
    client = InferenceClient()
    config = GeneratorConfig(
        max_turns=3,
        max_input_length=2000,
        sampling_params=Real(max_generate_length=200),
        use_cache_salt=False,
    )
    generator = SkyRLGymGenerator(
        generator_cfg=config,
        skyrl_gym_cfg=SkyRLGymConfig(),
        inference_engine_client=client,
        tokenizer=client.tokenizer,
    )
    rows = dataset_rows([counter_row(), counter_row(5)])
    given = batch(*(json.loads(row[ROW]) for row in rows), names="ab")
    given["prompts"] = [row["prompt"] for row in rows]
    given["sampling_params"] = {"temperature": 1.0, "max_tokens": 200, "stop": None, "logprobs": 1}
    output = await generator.generate(given)
    validate_generator_output(2, output)
    totals = [sum(one) if isinstance(one, list) else one for one in output["rewards"]]
    assert totals == [1.0, 0.0]
