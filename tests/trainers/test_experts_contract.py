"""What holds for each trainer of routed experts: what it trains on has the engine's own, or it refuses them.

verl and SkyRL replay them; their engines' experts go through the system's journal and rows to the trainer.
"""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError, UsageError
from gym_trainers.trl_async import sample_fields
from gym_trainers.trl_columns import Batch
from msgspec.structs import replace
from trainers import test_skyrl, test_verl
from trainers.test_seats import game
from trainers.trainers_engine import Servers, counter_row, experts_of

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
FEW, MANY = 256, 300


@pytest.mark.parametrize("experts", [FEW, MANY])
async def test_verl_gets_those_of_every_token_but_the_last(system: SyncClient, experts: int) -> None:
    (output,) = await test_verl.run(Servers(experts), counter_row(), test_verl.V1, replays=True)
    assert output.num_turns == 4
    wanted = experts_of([*output.prompt_ids, *output.response_ids], experts)
    assert (output.routed_experts.dtype, output.routed_experts.shape) == (np.int16, wanted.shape)
    assert (output.routed_experts == wanted).all()


async def test_verls_are_cut_with_its_response(system: SyncClient) -> None:
    asked: dict[str, Any] = {"replays": True, "response_length": 100}
    (output,) = await test_verl.run(Servers(FEW), counter_row(), test_verl.V1, **asked)
    ids = [*output.prompt_ids, *output.response_ids]
    assert len(output.response_ids) == 100
    # The engine went on, so the last token that is left has some, too.
    assert (output.routed_experts[: len(ids) - 1] == experts_of(ids)).all()
    assert len(output.routed_experts) == len(ids)


async def test_verl_without_replay_asks_for_none(system: SyncClient) -> None:
    (output,) = await test_verl.run(Servers(FEW), counter_row(), test_verl.V1)
    assert output.routed_experts is None


async def test_verl_is_told_where_the_engine_told_none(system: SyncClient) -> None:
    with pytest.raises(GymError, match="enable_rollout_routing_replay is on, and the engine did not tell"):
        await test_verl.run(Servers(), counter_row(), test_verl.V1, replays=True)


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize("experts", [FEW, MANY])
async def test_skyrl_gets_those_of_every_token_but_the_last(
    system: SyncClient, experts: int, by_steps: bool
) -> None:
    client, given = test_skyrl.InferenceClient(experts), test_skyrl.batch(counter_row(), names="a")
    output = await test_skyrl.generated(client, given, replays=True, by_steps=by_steps)
    (found,) = output["rollout_expert_indices"]
    wanted = experts_of([*output["prompt_token_ids"][0], *output["response_ids"][0]], experts)
    assert found.dtype == (np.uint8 if experts == FEW else np.int16)
    assert (found == wanted).all()
    assert found.shape == wanted.shape


async def test_skyrl_gets_a_row_of_what_failed_and_none_without_replay(system: SyncClient) -> None:
    client = test_skyrl.InferenceClient(FEW)
    given = test_skyrl.batch(counter_row(), test_skyrl.TOO_LONG, names="ab")
    output = await test_skyrl.generated(client, given, replays=True)
    assert [one.shape[1:] for one in output["rollout_expert_indices"]] == [(2, 3)] * 2
    assert len(output["rollout_expert_indices"][1]) == 1
    given = test_skyrl.batch(counter_row(), names="a")
    assert (await test_skyrl.generated(client, given))["rollout_expert_indices"] is None


async def test_skyrl_is_told_where_the_engine_told_none(system: SyncClient) -> None:
    client, given = test_skyrl.InferenceClient(), test_skyrl.batch(counter_row(), names="a")
    with pytest.raises(GymError, match="enable_return_routed_experts is on, and SkyRL's engine did not"):
        await test_skyrl.generated(client, given, replays=True)


def test_trl_refuses_them_with_the_remedy() -> None:
    made = game(1.0, "")
    row = bytes(made.row).replace(b'"content":""', b'"content":"","routed_experts":"nrlre1:int8:1x1x1:AA=="')
    told = replace(made, row=type(made.row)(row))
    with pytest.raises(UsageError, match=r"TRL takes no routed experts, .* leave out the model's option"):
        Batch(end=0).add(0, [told])
    with pytest.raises(UsageError, match="TRL takes no routed experts"):
        sample_fields([told], group=0, version=0)
