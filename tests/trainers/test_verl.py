"""verl's agent loop and reward manager: with verl's own classes where it is installed.

python3.11 -m venv verl && verl/bin/pip install verl cachetools uvicorn fastapi TransferQueue
verl/bin/pip install -e . pytest pytest-asyncio
verl/bin/pytest tests/trainers/test_verl.py
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import to_thread
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from gym_trainers.training_rollouts import ROW
from trainers.trainer_stubs import installed, stand_in
from trainers.trainers_engine import (
    CALL,
    CHOICE,
    END,
    END_ID,
    Servers,
    TurnEngine,
    byte_tokenizer,
    counter_row,
)

stand_in("omegaconf", "verl")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl's
    from gym_trainers import verl
    from gym_trainers.verl import GymAgentLoop, GymRewardManager

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-verl.md"
V1 = {"session_id": 0, "uid": "u", "global_steps": 7}
TOO_LONG = counter_row() | {"responses_create_params": {"input": "x" * 600}}


def namespace(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    made = SimpleNamespace(**{name: namespace(value) for name, value in fields.items()})
    made.get = lambda name, other=None: getattr(made, name, other)
    return made


def loop(
    servers: Servers,
    *,
    response_length: int = 400,
    replays: bool = False,
    estimator: str = "grpo",
    data: Any = None,
    **more: Any,
) -> Any:
    """One agent loop, as verl's worker makes one for each rollout."""
    rollout = {
        "prompt_length": 300,
        "response_length": response_length,
        "calculate_log_probs": True,
        "enable_rollout_routing_replay": replays,
        "multi_turn": {"format": "hermes"},
    }
    config = {"actor_rollout_ref": {"rollout": rollout}, "algorithm": {"adv_estimator": estimator}}
    return GymAgentLoop(
        trainer_config=SimpleNamespace(config=namespace(config)),
        server_manager=servers,
        tokenizer=servers.tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=SimpleNamespace(config=data or {}),
        hf_model_type=None,
        tools=None,
        **more,
    )


async def run(servers: Servers, row: Any, columns: Any, **more: Any) -> Any:
    made = loop(servers, **more)
    params = {"temperature": 0.9, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    try:
        return await made.run(params, **columns, **{ROW: json.dumps(row), "raw_prompt": [], "index": 0})
    finally:
        await made._engine.source.close()


async def test_v1_gets_the_steps_of_the_weights(system: SyncClient) -> None:
    servers = Servers()
    (output,) = await run(servers, counter_row(), V1)
    first_prompt, _ = servers.engine.seen[0]
    assert output.prompt_ids == first_prompt
    assert (output.reward_score, output.num_turns) == (1.0, 4)
    fields = output.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (3, 4)
    assert fields["reward_extra_info"] == {"gym_failed": 0.0, "gym_cut": 0.0, "gym_turns": 2.0}
    assert servers.engine.params[0] == {
        "temperature": 0.9,
        "top_p": 1.0,
        "max_tokens": 700 - len(first_prompt),
        "logprobs": True,
    }


async def test_the_chat_templates_arguments_are_those_of_the_configuration(system: SyncClient) -> None:
    servers = Servers()
    data = {"apply_chat_template_kwargs": {"note": "brief"}}
    (output,) = await run(servers, counter_row(), V1, data=data)
    assert servers.tokenizer.decode(output.prompt_ids).startswith("brief")


async def test_v1_is_told_of_a_failed_rollout(system: SyncClient) -> None:
    with pytest.raises(GymError, match="it may have 500"):
        await run(Servers(), TOO_LONG, V1, response_length=200)


async def test_v0_gets_one_output_and_a_failed_rollout_masked(system: SyncClient) -> None:
    output = await run(Servers(), counter_row(5), {})
    assert output.reward_score == 0.0
    assert sum(output.response_mask) > 0
    failed = await run(Servers(), TOO_LONG, {}, response_length=200)
    assert (failed.prompt_ids, failed.response_ids, failed.response_mask) == ([END_ID], [END_ID], [0])
    assert failed.response_logprobs == [0.0]
    assert failed.extra_fields["reward_extra_info"]["gym_failed"] == 1.0


async def test_a_response_is_cut_to_its_length(system: SyncClient) -> None:
    (output,) = await run(Servers(), counter_row(), V1, response_length=100)
    lengths = {len(part) for part in (output.response_ids, output.response_mask, output.response_logprobs)}
    assert lengths == {100}
    assert output.extra_fields["reward_extra_info"]["gym_cut"] == 1.0


async def test_a_prompt_that_verl_cannot_hold_is_a_failure(system: SyncClient) -> None:
    long = counter_row()
    long["responses_create_params"]["input"] = "x" * 300
    with pytest.raises(GymError, match="prompt_length is 300"):
        await run(Servers(), long, V1)


async def test_an_aborted_generation_is_asked_for_again(system: SyncClient) -> None:
    servers = Servers()
    servers.aborting = 1
    (output,) = await run(servers, counter_row(), V1)
    assert output.reward_score == 1.0


async def test_the_loops_of_a_worker_share_a_connection(system: SyncClient) -> None:
    servers = Servers()
    first, second, other = loop(servers), loop(servers), loop(servers, settings={"max_turns": 1})
    assert first._engine is second._engine
    assert first._engine is not other._engine


async def test_an_engine_leaves_the_system_with_its_worker(system: SyncClient) -> None:
    before = asyncio.all_tasks()
    servers = Servers()
    made = loop(servers)
    params = {"temperature": 0.9, "top_p": 1.0}
    await made.run(params, **V1, **{ROW: json.dumps(counter_row())})
    source = made._engine.source
    pool = (await source._open()).pool

    def pools() -> set[str]:
        return {one.worker for one in system.workers()}

    assert pool in await to_thread.run_sync(pools)
    del made, servers
    gc.collect()
    with anyio.fail_after(15):
        while pool in await to_thread.run_sync(pools):
            await anyio.sleep(0.01)
        # Its tasks end a moment later; the loop must not end in between.
        while asyncio.all_tasks() - before:
            await anyio.sleep(0.01)
    assert len(verl._engines) == 0


class Item(SimpleNamespace):
    """verl's DataProto with one sequence."""

    def __getitem__(self, _: int) -> Item:
        return self


async def test_the_reward_manager_asks_the_rows_verifier(system: SyncClient) -> None:
    np = pytest.importorskip("numpy")
    servers = Servers()
    manager = GymRewardManager(namespace({}), servers.tokenizer)
    for said, reward in (("\\boxed{B}", 1.0), ("\\boxed{A}", 0.0)):
        ids = servers.tokenizer.encode(f"{said}{END}")
        padded = [*ids, 0, 0, 0]
        batch = {"responses": np.array(padded), "attention_mask": np.array([1] * (4 + len(ids)) + [0] * 3)}
        found = await manager.run_single(Item(batch=batch, non_tensor_batch={ROW: json.dumps(CHOICE)}))
        assert found == {"reward_score": reward, "reward_extra_info": {"acc": reward}}


# -- verl's own workers -------------------------------------------------------------------------------------


@pytest.fixture
def worker_config(tmp_path: Any) -> Any:
    """verl's own configuration of a trainer, with a tiny model's folder."""
    if not installed("verl"):
        pytest.skip("needs verl 0.9: pip install verl cachetools uvicorn fastapi TransferQueue")
    from hydra import compose, initialize_config_module
    from transformers import LlamaConfig

    byte_tokenizer(tmp_path)
    LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(tmp_path)
    loops = tmp_path / "loops.yaml"
    loops.write_text("- name: gym_runtime\n  _target_: gym_trainers.verl.GymAgentLoop\n")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={tmp_path}",
                f"{rollout}.name=vllm",
                f"{rollout}.prompt_length=300",
                f"{rollout}.response_length=400",
                f"{rollout}.calculate_log_probs=true",
                f"{rollout}.agent.default_agent_loop=gym_runtime",
                f"{rollout}.agent.agent_loop_config_path={loops}",
            ],
        )


async def test_verls_older_worker_makes_a_batch_of_it(system: SyncClient, worker_config: Any) -> None:
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.protocol import DataProto

    servers = Servers()
    worker = AgentLoopWorker(worker_config, servers, None, None)
    rows = [counter_row(), counter_row(5), TOO_LONG | {"responses_create_params": {"input": "x" * 800}}]
    batch = DataProto(
        batch=TensorDict({"dummy_tensor": torch.zeros(len(rows), 1)}, batch_size=len(rows)),
        non_tensor_batch={
            ROW: np.array([json.dumps(row) for row in rows], dtype=object),
            "raw_prompt": np.array([[{"role": "user", "content": "?"}]] * len(rows), dtype=object),
            "index": np.arange(len(rows)),
        },
        meta_info={"global_steps": 1},
    )
    output = await worker.generate_sequences(batch)
    await next(iter(verl._engines[servers].values())).source.close()
    assert output.batch["rm_scores"].sum(dim=1).tolist() == [1.0, 0.0, 0.0]
    assert output.non_tensor_batch["gym_failed"].tolist() == [0.0, 0.0, 1.0]
    sampled = output.batch["response_mask"].bool()
    assert sampled.sum(dim=1).tolist()[2] == 0
    kept = output.batch["responses"][0][sampled[0]].tolist()
    assert servers.tokenizer.decode(kept) == f"{CALL}{END}Done.{END}"
    log_probs = output.batch["rollout_log_probs"][0][sampled[0]].tolist()
    assert log_probs == pytest.approx(TurnEngine.log_probs(kept))


@pytest.mark.timeout(300)
def test_verls_trainer_finds_it_in_the_transfer_queue(system: SyncClient, worker_config: Any) -> None:
    """The manager and the worker of verl's default trainer (v1), on Ray; two sessions of each prompt."""
    tq = pytest.importorskip("transfer_queue", reason="needs pip install TransferQueue")
    import numpy as np
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.utils import tensordict_utils as tu

    config = OmegaConf.create(OmegaConf.to_container(worker_config, resolve=True))
    config.actor_rollout_ref.rollout.n = 2
    config.actor_rollout_ref.rollout.agent.num_workers = 1
    config.transfer_queue.enable = True
    config.transfer_queue.backend.SimpleStorage.num_data_storage_units = 1
    rows = [counter_row(), TOO_LONG | {"responses_create_params": {"input": "x" * 800}}]
    found = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}  # in Ray's processes
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, runtime_env=found)
    try:
        tq.init(config.transfer_queue)
        manager = AgentLoopManagerTQ.create(config=config, llm_client=Servers())
        names = ["good", "bad"]
        columns = {
            ROW: np.array([json.dumps(row) for row in rows], dtype=object),
            "raw_prompt": np.array([[{"role": "user", "content": "?"}]] * 2, dtype=object),
            "uid": np.array(names, dtype=object),
            "index": np.arange(2),
        }
        batch = tu.get_tensordict(columns)
        tu.assign_non_tensor_data(batch, "global_steps", 1)
        waiting = [{"is_prompt": True, "status": "pending", "global_steps": 1}] * 2
        tq.kv_batch_put(keys=names, partition_id="train", tags=waiting)
        manager.generate_sequences(batch)
        for _ in range(600):
            tags = tq.kv_list("train")["train"]
            if all(tags[name]["status"] in ("finished", "failure") for name in names):
                break
            time.sleep(0.1)  # verl's trainer polls, too
        assert [tags[name]["status"] for name in names] == ["finished", "failure"]
        keys = sorted(key for key in tags if key not in names)
        assert keys == ["good_0_0", "good_1_0"]  # the failed sessions left none
        data = tq.kv_batch_get(keys=keys, partition_id="train")
        for place in range(2):
            mask = data["response_mask"][place].bool()
            text = byte_tokenizer().decode(data["responses"][place][mask].tolist())
            assert text == f"{CALL}{END}Done.{END}"
            assert float(data["rm_scores"][place].sum()) == 1.0
        assert {tags[key]["min_global_steps"] for key in keys} >= {3}
        # As its page says, verl finds that the rewards of the group are equal.
        (metric,) = re.findall(r"filter_groups\.metric=(\w+)", PAGE.read_text())
        options: dict[str, Any] = {"filter_groups_metric": metric, "train_batch_size": 1, "gen_batch_size": 1}
        buffer = ReplayBuffer("sync", {}, None, "drop", {}, refill_fn=print, **options)
        buffer.finished_keys["train"], buffer.partitions["train"] = {"good"}, dict.fromkeys(keys)
        assert buffer._dapo_filtered_keys("train")[0] == {"good"}
    finally:
        ray.shutdown()
