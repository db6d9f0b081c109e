"""verl, SkyRL and OpenRLHF take the settings of groups with signal; what they do themselves is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from gym_runtime import connect
from gym_runtime.adapters import CallContext, ModelCall
from gym_runtime.client import SyncClient
from gym_runtime.errors import UsageError
from gym_runtime.messages.metric_names import SAMPLED_TOKENS
from gym_signal import Posterior
from gym_trainers.prompt_groups import PromptGroups
from gym_trainers.signal_settings import signal_rows
from gym_trainers.training_rollouts import ROW, dataset_rows
from msgspec import Raw
from trainers import test_openrlhf, test_verl
from trainers.test_skyrl import GymGenerator, InferenceClient, SamplingParams, TrajectoryID, config_of
from trainers.trainers_engine import Servers

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
SIZE = 2
# Of each ten rows three have signal.
WINS = [0, 1, 0.5, 0, 1, 0.5, 0, 1, 0.5, 0]
ROWS = dataset_rows(
    [{"responses_create_params": {"input": f"{n}"}, "number": n, "wins": WINS[n % 10]} for n in range(40)],
    "coin",
)
WITH_SIGNAL = {one[ROW] for one in ROWS if '"wins":0.5' in one[ROW]}


async def counted(system: SyncClient) -> Counter[str]:
    """What became of the tokens of all runs of the system."""
    found: Counter[str] = Counter()
    async with connect(nats=system.urls[0]) as gym:
        for progress in (await gym.status()).progress.values():
            for figure in progress.figures.counts if progress.figures else ():
                if figure.name == SAMPLED_TOKENS.name:
                    found[figure.labels[-1]] += int(figure.value)
    return found


class Gated(InferenceClient):
    """Notes what it is asked while the trainer trains."""

    training = False
    asked_in_training = 0
    answering = 0
    late_s = 0.0

    async def generate(self, request: Any, model: str | None = None) -> Any:
        self.asked_in_training += self.training
        self.answering += 1
        try:
            await anyio.sleep(self.late_s if request["session_ids"] == ["late"] else 0.02)
            return await super().generate(request, model)
        finally:
            self.answering -= 1


def generator(client: InferenceClient, **settings: Any) -> Any:
    config = config_of(sampling_params=SamplingParams())
    return GymGenerator(config, client.tokenizer, client, signal={"rows": ROWS, **settings})


def drawn(groups: int, phase: str = "train") -> Any:
    names = [f"p{place}" for place in range(groups) for _ in range(SIZE)]
    return {
        "prompts": [[{"role": "user", "content": "?"}] for _ in names],
        "env_classes": ["gym_runtime"] * len(names),
        "env_extras": [{ROW: ROWS[0][ROW]} for _ in names],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID(name, place) for place, name in enumerate(names)],
        "batch_metadata": SimpleNamespace(global_step=1, training_phase=phase),
    }


@pytest.mark.parametrize("curriculum", ["uniform", "posterior"])
def test_the_processes_of_a_trainer_draw_different_rows(curriculum: str) -> None:
    def drawn() -> list[str]:
        groups, found = PromptGroups({"rows": ROWS, "curriculum": curriculum}, "verl"), list[str]()
        for place in range(8):
            with groups.member(place, ROWS[place][ROW], lambda *_: None) as group:
                found.append(group.row)
        return found

    assert len({tuple(drawn()) for _ in range(4)}) == 4


async def test_skyrl_trains_on_groups_with_signal_only(system: SyncClient) -> None:
    client = Gated()
    made = generator(client, curriculum="uniform")
    try:
        shares: list[float] = []
        for _ in range(3):
            output = await made.generate(drawn(3))
            shares.append(output["rollout_metrics"]["gym/useful"])
            client.training = True
            rewards = output["rewards"]
            assert len(rewards) == len(output["response_ids"]) == 3 * SIZE
            assert all(sum(rewards[at : at + SIZE]) == SIZE / 2 for at in range(0, 3 * SIZE, SIZE))
            await anyio.sleep(0.3)  # the trainer's step, in which the engine may be asleep
            assert not client.asked_in_training
            client.training = False
        assert 0 < min(shares) < 1, "flat groups were replaced"
        evaluated = await made.generate(drawn(1, "eval"))
        assert evaluated["rewards"] == [0.0] * SIZE, "an evaluation keeps its rows"
        with pytest.raises(UsageError, match="a batch of 2 groups of 2 follows one of 3 of 2"):
            await made.generate(drawn(2))
    finally:
        await made.close()


async def test_after_an_evaluation_the_engine_is_asked_nothing(system: SyncClient) -> None:
    """A call of a rollout that was parked may come after the batch; it goes on with the evaluation."""
    client = Gated()
    client.late_s = 1.0
    made = generator(client, curriculum="uniform")
    call = ModelCall(params=Raw(b'{"input":[]}'), input=[Raw(b'{"role":"user","content":"Hi."}')])
    context = CallContext(rollout="late", attempt=1, deadline_s=1e9)
    try:
        await made.generate(drawn(3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made._source._engine.respond, call, context)
            await anyio.lowlevel.checkpoint()
            evaluated = await made.generate(drawn(1, "eval"))
            assert len(evaluated["rewards"]) == SIZE
            assert not client.answering, "the engine may sleep now"
            client.training = True
            await anyio.sleep(0.3)
            assert not client.asked_in_training
    finally:
        await made.close()


async def test_skyrls_asynchronous_trainer_is_refused(system: SyncClient) -> None:
    made = generator(InferenceClient(), curriculum="uniform")
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.generate, drawn(3))
            await anyio.lowlevel.checkpoint()
            with pytest.raises(UsageError, match="leave it out with the asynchronous one"):
                await made.generate(drawn(3))
    finally:
        await made.close()


def test_skyrl_refuses_signal_where_it_would_change_the_rewards_afterwards(system: SyncClient) -> None:
    config = config_of(sampling_params=SamplingParams(), zero_reward_on_non_stop=True)
    client = InferenceClient()
    with pytest.raises(UsageError, match="zero_reward_on_non_stop changes them afterwards"):
        GymGenerator(config, client.tokenizer, client, signal={"rows": ROWS})
    GymGenerator(config, client.tokenizer, client)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"want": 3}, "takes no want here: its batches and groups are SkyRL's"),
        ({"waves": (2, 2)}, "SkyRL, which computes advantages itself, cannot weight a group"),
        ({"partial": True}, "asked nothing between two steps"),
        ({"rows": []}, "signal needs rows"),
    ],
)
def test_what_skyrl_decides_or_cannot_do_is_refused(
    system: SyncClient, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        generator(InferenceClient(), **settings)


async def test_openrlhfs_prompts_run_the_rows_that_the_curriculum_chooses(system: SyncClient) -> None:
    actor, before = test_openrlhf.Actor(), await counted(system)
    chosen = Posterior(len(ROWS), SIZE, explore=0.0)
    made = test_openrlhf.executor(signal={"rows": ROWS, "curriculum": chosen})
    ran: list[str] = []
    for _ in range(60):
        shared = test_openrlhf.Params()

        async def one(shared: Any = shared) -> None:
            label = ROWS[0][ROW]
            said = await made.execute("prompt", label, shared, 500, actor.tokenizer, actor)
            ran.append(said["label"])

        async with anyio.create_task_group() as tasks:
            for _ in range(SIZE):
                tasks.start_soon(one)
        assert len(set(ran[-SIZE:])) == 1, "a group runs one row"
    other = json.dumps(json.loads(ROWS[1][ROW]) | {"evaluated": True})
    said = await made.execute("prompt", other, test_openrlhf.Params(), 500, actor.tokenizer, actor)
    assert said["label"] == other, "an evaluation keeps its rows"
    await made._source.close()
    uses = await counted(system) - before
    assert sum(row in WITH_SIGNAL for row in ran[-20 * SIZE :]) >= 10 * SIZE, "at random it would be six"
    assert uses["useful"] > 0
    assert uses["flat"] > 0


async def test_verls_prompts_run_the_rows_that_the_curriculum_chooses(system: SyncClient) -> None:
    servers, before = Servers(), await counted(system)
    signal = {"rows": ROWS, "curriculum": "posterior", "repeats": SIZE}
    params = {"temperature": 0.9, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    useful = 0
    for step in range(100):
        rewards: list[float] = []

        async def one(session: int, step: int = step, rewards: list[float] = rewards) -> None:
            columns = {"session_id": session, "uid": f"u{step}", "global_steps": step}
            made = test_verl.loop(servers, signal=signal)
            for output in await made.run(params, **columns, **{ROW: ROWS[0][ROW]}):
                rewards.append(output.reward_score)

        async with anyio.create_task_group() as tasks:
            for session in range(SIZE):
                tasks.start_soon(one, session)
        useful += step >= 40 and sum(rewards) == SIZE / 2
    made = test_verl.loop(servers, signal=signal)
    with pytest.raises(UsageError, match="main_ppo_v0 may divide a group"):
        await made.run(params, **{ROW: ROWS[0][ROW]})
    await made._engine.source.close()
    uses = await counted(system) - before
    assert useful >= 27, "at random it would be eighteen"
    assert uses["useful"] > 0
    assert uses["flat"] > 0


def test_prompt_groups_refuse_what_the_trainer_does() -> None:
    with pytest.raises(UsageError, match="and no staleness: verl draws its batches itself"):
        PromptGroups({"rows": ROWS, "staleness": 3}, "verl")
    with pytest.raises(UsageError, match="there is no curriculum 'hard'"):
        PromptGroups({"rows": ROWS, "curriculum": "hard"}, "verl")


def test_rows_come_from_the_datasets_file(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    assert signal_rows({"rows": str(path), "curriculum": "uniform"}) == (
        [one[ROW] for one in ROWS],
        {"curriculum": "uniform"},
    )
    with pytest.raises(UsageError, match="cannot be read"):
        signal_rows({"rows": tmp_path / "other.jsonl"})
