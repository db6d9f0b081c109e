"""What holds for each trainer: a row of `TRAINERS` says what it takes, and what it refuses.

Where a trainer is installed, its own classes check and convert what it gets, and that is compared; else
stand-ins that have its fields do. The name of a test says which. Its page says the same as its row.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from faces.gym_server.running_server import choice_row, response, running_server
from faces.gym_server.test_real_clients import CLIENTS
from faces.gym_server.test_real_clients import run as run_program
from gym_runtime import Environment, GymError, Reply, Task, Verdict
from gym_runtime.client import SyncClient
from gym_runtime.errors import UsageError
from gym_runtime.messages.call_tokens import Tokens, pack_ids, pack_logprobs
from gym_runtime.messages.outcomes import RolloutRecord, encode_record, read_record
from gym_testing.small_system import environment, message
from gym_trainers.trl_environment import TrlEnvironment
from msgspec import Raw
from msgspec.structs import replace
from runtime.messages.call_trees import Drawn, call, record
from trainers import test_openrlhf, test_skyrl, test_verl
from trainers.takes import Take, async_grpo, grpo, openrlhf, skyrl, verl
from trainers.test_seats import game
from trainers.trainer_stubs import installed
from trainers.trainers_engine import CALL, END, END_ID, Servers, TurnEngine, counter_row, experts_of

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
PAGES = Path(__file__).parents[2] / "docs" / "how-to"
TOO_LONG = counter_row() | {"responses_create_params": {"input": "x" * 800}}


class Row(NamedTuple):
    """What a trainer takes.

    Attributes:
        can: ``engine``: it samples with its own; ``branches``: all sequences of a rollout, else one;
            ``weights``: also another one than 0 and 1; ``seats``: all, else one that has a name; ``experts``:
            it replays them; ``no-experts``: it refuses them, else it asks its engine for none.
        says: sentences of its page.
    """

    take: Take
    package: str
    can: str
    says: tuple[str, ...]


SKYRL = "SkyRL gets the experts that its engine chose in `rollout_expert_indices`"
TRL = "TRL has no field for routed experts: rollouts of a model with the option `routed_experts` are refused."
VERL = "the experts that the engine chose go to verl in `routed_experts`"
TRAINERS = {
    "GRPOTrainer": (grpo, "trl", "no-experts", TRL, "`GRPOTrainer` takes one per rollout: the last of the",
                    "`GRPOTrainer` trains the one that `GymSpec(seat=…)` names"),
    "AsyncGRPOTrainer": (async_grpo, "trl", "branches weights seats no-experts", TRL,
                         "Each token segment and each branch is a sample", "`AsyncGRPOTrainer` trains all."),
    "openrlhf": (openrlhf, "openrlhf", "engine", "OpenRLHF takes one sequence per rollout",
                 "it trains one, because a rollout has one", "OpenRLHF has no field for routed experts"),
    "verl": (verl, "verl", "engine branches experts", VERL, "verl's trainer takes several outputs",
             "verl trains one, because it gives all outputs of a rollout one reward"),
    "main_ppo_v0": (partial(verl, columns={}), "verl", "engine experts", VERL, "`main_ppo_v0`, takes one"),
    "skyrl": (skyrl, "skyrl", "engine experts", SKYRL, "Without it SkyRL takes one sequence per rollout",
              "it trains one, because its groups are its prompts"),
    "step-wise": (partial(skyrl, steps=True), "skyrl", "engine branches experts", SKYRL,
                  "every [token segment and branch](../explanation/what-is-trained-on.md)"),
}  # fmt: skip


def each(has: str = "", lacks: str = "") -> Any:
    """The trainers with these capabilities, and without those."""
    rows = {name: Row(take, package, can, says) for name, (take, package, can, *says) in TRAINERS.items()}
    found = [
        pytest.param(row, id=f"{name}-{version(row.package) if installed(row.package) else 'stand-in'}")
        for name, row in rows.items()
        if set(has.split()) <= set(row.can.split()) and not set(lacks.split()) & set(row.can.split())
    ]
    return pytest.mark.parametrize("row", found)


@each()
def test_its_page_says_so(row: Row) -> None:
    page = " ".join((PAGES / f"train-with-{row.package}.md").read_text().split())
    assert [one for one in row.says if one not in page] == []


# -- tokens and rewards -------------------------------------------------------------------------------------


@each("engine")
@pytest.mark.slow
async def test_what_is_trained_on_is_what_the_engine_sampled(system: SyncClient, row: Row) -> None:
    engine, (taken,) = await row.take([counter_row()])
    (first_prompt, first), (prompt, ids) = engine.seen
    assert prompt[: len(first_prompt) + len(first)] == first_prompt + first
    assert taken.ids == prompt + ids
    kept = taken.trained
    assert kept == first + ids
    logs = [value for value, here in zip(taken.log_probs, taken.mask, strict=True) if here]
    assert logs == pytest.approx(TurnEngine.log_probs(kept))
    assert sum(taken.log_probs) == pytest.approx(sum(logs)), "elsewhere they are 0"
    assert test_openrlhf.byte_tokenizer().decode(kept) == f"{CALL}{END}Done.{END}"


@each("engine")
@pytest.mark.slow
async def test_rewards_are_the_verifiers_and_a_failure_is_none(system: SyncClient, row: Row) -> None:
    _, (right, wrong, failed) = await row.take([counter_row(), counter_row(5), TOO_LONG])
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    # Left out where the trainer can do that; else one token of no weight.
    assert failed is None or (set(failed.ids), set(failed.log_probs)) == ({END_ID}, {0.0})


@each()
async def test_turns_before_a_change_of_a_fork_are_not_trained_on(row: Row) -> None:
    def turn(prompt: list[int], ids: list[int]) -> dict[str, Any]:
        logs = [-0.5] * len(ids)
        tokens = {"generation_token_ids": ids, "generation_log_probs": logs}
        return {**message("x"), "prompt_token_ids": prompt, **tokens}

    rollout = {
        "responses_create_params": {"input": "hi"},
        "response": {
            "output": [turn([1], [2, 3]), {**message("y"), "role": "user"}, turn([1, 2, 3, 4], [5])]
        },
        "_gym": {"fork": {"items": 1, "changed": ["tool_output"]}},
    }
    made = replace(record([]), row=Raw(json.dumps(rollout).encode()), reward=1.0)
    _, (taken,) = await row.take([made])
    assert (taken.ids, taken.trained) == ([1, 2, 3, 4, 5], [5])


async def test_verl_gets_no_last_output_that_is_cut_before_its_first_trained_token() -> None:
    """verl reads a rollout's advantage there, and would find 0 for all of its outputs."""

    def turn(prompt: list[int], ids: list[int]) -> dict[str, Any]:
        tokens = {"generation_token_ids": ids, "generation_log_probs": [-0.5] * len(ids)}
        return {**message("x"), "prompt_token_ids": prompt, **tokens}

    aside = Tokens(prompt_ids=pack_ids([7]), generation_ids=pack_ids([3]), log_probs=pack_logprobs([-1.0]))
    copied = [1, 2, 2, 2, 2, 2, 2]
    rollout = {
        "responses_create_params": {"input": "hi"},
        "response": {
            "output": [turn([1], copied[1:]), {**message("y"), "role": "user"}, turn([*copied, 4], [5])]
        },
        "_gym": {
            "fork": {"items": 1, "changed": ["tool_output"]},
            "calls": [{"kind": "subagent", "tokens": aside}, {"item": 0}, {"item": 2, "parent": 1}],
        },
    }
    made = replace(record([]), row=Raw(msgspec.json.encode(rollout)), reward=1.0)
    for length, trained in ((8, [[3], [5]]), (5, [[3]])):
        _, taken = await verl([made], credit="all", response_length=length)
        assert [one and (one.trained, one.reward) for one in taken] == [(ids, 1.0) for ids in trained]


@each()
async def test_an_answer_without_a_token_is_not_trained_on(row: Row) -> None:
    said = {**message(""), "prompt_token_ids": [1], "generation_token_ids": [], "generation_log_probs": []}
    rollout = {"responses_create_params": {"input": "hi"}, "response": {"output": [said]}}
    empty = replace(record([]), row=Raw(json.dumps(rollout).encode()), reward=0.0)
    _, (taken, *others) = await row.take([game(1.0), empty])
    assert taken is not None
    assert taken.trained == [5]
    # OpenRLHF takes no rollout without an action: its end token has the others' mean, and so no advantage.
    assert all((one.trained, one.reward) in (([], 0.0), ([END_ID], 1.0)) for one in others if one is not None)


@each()
async def test_a_rollout_without_all_log_probabilities_is_not_trained_on(row: Row) -> None:
    """Half of a batch without them ends a step in OpenRLHF and verl; in SkyRL all would lose theirs; in TRL
    the step's loss would be NaN.
    """
    whole = game(1.0)
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [7, 8], "generation_log_probs": [None, -0.5]}
    output = [{**message("x"), **tokens}]
    rollout = {"responses_create_params": {"input": "hi"}, "response": {"output": output}}
    lacking = replace(record([]), row=Raw(json.dumps(rollout).encode()), reward=0.0)
    _, (taken, *others) = await row.take([whole, lacking])
    assert taken is not None
    assert (taken.trained, taken.log_probs[-1]) == ([5], -1.0)
    assert all(one.trained in ([], [END_ID]) for one in others if one is not None)


# -- branches -----------------------------------------------------------------------------------------------

KINDS: list[tuple[Any, int, int]] = [
    ("main", -1, 0),
    ("retry", 0, -1),
    ("main", 0, 2),
    ("subagent", -1, -1),
    ("side", -1, -1),
    ("subagent", 3, -1),
]
ACCEPTED = {"main", "subagent"}


@pytest.fixture
def tree() -> tuple[list[Drawn], RolloutRecord]:
    """A rollout with branches."""
    chance, calls = random.Random(11), list[Drawn]()  # each has a prompt, and samples
    for kind, parent, item in KINDS:
        calls.append(call(chance, calls, parent, kind, item, 5))
    made = replace(record(calls), reward=1.0)
    row = Raw(bytes(made.row)[:-1] + b',"responses_create_params":{"input":"hi"}}')
    return calls, read_record(encode_record(replace(made, row=row)))


@each("branches")
@pytest.mark.parametrize("credit", ["accepted", "all", "main", "last", {"side": 1}])
async def test_each_sampled_token_is_trained_on_once(row: Row, credit: Any, tree: Any) -> None:
    calls, made = tree
    _, taken = await row.take([made], credit=credit)
    kinds = {
        "accepted": ACCEPTED,
        "all": {kind for kind, _, _ in KINDS},
        "main": {"main"},
        "last": {"side"},  # the last sequence that began
    }.get(str(credit), {"side"})
    sampled = [one.ids for one in calls if one.kind in kinds]
    trained = chain.from_iterable(one.trained for one in taken)
    assert sorted(trained) == sorted(chain.from_iterable(sampled))


@each(lacks="branches")
async def test_of_one_sequence_it_is_the_main_one(
    row: Row, tree: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    calls, made = tree
    _, (taken,) = await row.take([made])
    assert taken.trained == [one for call in calls if call.kind == "main" for one in call.ids]
    assert "trained on" in "".join(capfd.readouterr())
    _, (side,) = await row.take([made], credit={"side": 1})
    assert side.trained == calls[4].ids


async def test_verls_other_estimators_get_one_output_of_a_rollout(
    tree: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """``rloo`` and its like take each output for a rollout, so this rollout would count three times."""
    calls, made = tree
    for estimator in ("rloo", "grpo_vectorized", "opo", "grpo_passk", "one_of_mine"):
        _, (taken,) = await verl([made], estimator=estimator)
        assert taken is not None
        assert taken.trained == [one for call in calls if call.kind == "main" for one in call.ids]
    assert "only one of a rollout's sequences is trained on" in "".join(capfd.readouterr())
    for estimator in ("grpo", "gae", "reinforce_plus_plus"):
        _, several = await verl([made], estimator=estimator)
        assert len(several) > 1


@each()
async def test_a_weight_is_a_factor_of_the_advantage_or_refused(row: Row, tree: Any) -> None:
    taken = row.take([tree[1], replace(tree[1], reward=0.0)], credit={"main": 1, "subagent": 0.5})
    if "weights" in row.can:
        assert [one.reward for one in (await taken)[1]] == pytest.approx([1.0, 0.5, -1.0, -0.5])
    else:
        with pytest.raises(UsageError, match=r"takes no weight for a sequence; give each kind 0 or 1"):
            await taken


async def test_skyrls_steps_are_those_of_one_trajectory(tree: Any) -> None:
    engine, taken = await skyrl([tree[1]] * 2, steps=True)
    count = len(taken) // 2
    assert engine.output["is_last_step"] == [*[False] * (count - 1), True] * 2
    assert [one.repetition_id for one in engine.output["trajectory_ids"]] == [0] * count + [1] * count
    assert [one.reward for one in taken] == [1.0] * 2 * count


@pytest.mark.parametrize("steps", [False, True], ids=["one", "steps"])
async def test_skyrls_own_trainer_compares_the_rollouts_of_a_prompt(steps: bool, tree: Any) -> None:
    """A rollout that failed has the advantage 0 there, and leaves the mean alone."""
    if not installed("skyrl"):
        pytest.skip("needs skyrl 0.4 on Python 3.12: pip install --no-deps skyrl, and torch, ray …")
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.trainer import RayPPOTrainer

    rewards = [1.0, 0.0, None, 0.5]
    engine, taken = await skyrl([replace(tree[1], reward=one) for one in rewards], steps=steps)
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)  # its __init__ wants Ray and GPUs
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.generator.step_wise_trajectories = steps
    trainer.cfg.generator.n_samples_per_prompt = len(rewards)
    trainer.cfg.trainer.train_batch_size = trainer.cfg.trainer.policy_mini_batch_size = 1
    trainer.tokenizer, trainer.all_metrics = SimpleNamespace(pad_token_id=0), {}
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    names = [one.instance_id for one in engine.output["trajectory_ids"]]
    output, names = trainer.postprocess_generator_output(engine.output, names)
    data = trainer.convert_to_training_input(output, names)
    data["values"] = None
    data = trainer.compute_advantages_and_returns(data)
    spread = np.std([1.0, 0.0, 0.5, 0.5], ddof=1)
    wanted = [(one.reward - 0.5) / spread for one in taken]
    for place, one in enumerate(wanted):
        trained = data["advantages"][place][data["loss_mask"][place] > 0]
        assert trained.tolist() == pytest.approx([one] * len(trained), abs=1e-4)
        assert len(trained) == sum(taken[place].mask)


# -- seats --------------------------------------------------------------------------------------------------

# The ids that a seat sampled are the length of its name.
FIRST, SECOND = [5], [6]
GAMES = [game(1.0, first=1.0, second=-1.0), game(-1.0, first=-1.0, second=1.0)]


async def played(row: Row, **asked: Any) -> list[tuple[list[int], float]]:
    """What is trained on, with its reward or its advantage."""
    return [(one.trained, one.reward) for one in (await row.take(GAMES, **asked))[1] if one]


@each(lacks="seats")
async def test_of_several_seats_the_one_that_is_named_is_trained_with_its_own_reward(row: Row) -> None:
    said = r"in nim the policy is trained in the seats first, second, and .* name one with seat='first'"
    with pytest.raises(UsageError, match=said):
        await played(row)
    assert await played(row, seat="second") == [(SECOND, -1.0), (SECOND, 1.0)]
    with pytest.raises(UsageError, match=r"seat='third': in nim the policy is trained in first, second"):
        await played(row, seat="third")
    with pytest.raises(UsageError, match=r"seat='second': in nim the policy is trained in first$"):
        await played(row, seat="second", roles={"second": "frozen"})


@each()
async def test_against_a_frozen_opponent_the_policys_seat_is_trained(row: Row) -> None:
    assert await played(row, roles={"second": "frozen"}) == [(FIRST, 1.0), (FIRST, -1.0)]
    assert await played(row, roles={"first": "frozen"}) == [(SECOND, -1.0), (SECOND, 1.0)]


@each("seats")
async def test_all_seats_are_trained_each_with_its_own_reward(row: Row) -> None:
    assert await played(row) == [(FIRST, 1.0), (SECOND, -1.0), (FIRST, -1.0), (SECOND, 1.0)]


# -- routed experts -----------------------------------------------------------------------------------------


@each("experts")
@pytest.mark.slow
@pytest.mark.parametrize("count", [256, 300])
async def test_experts_are_those_of_every_token_but_the_last(
    system: SyncClient, row: Row, count: int
) -> None:
    _, (taken,) = await row.take([counter_row()], experts=count, replays=True)
    wanted = experts_of(taken.ids, count)
    assert taken.experts.shape == wanted.shape
    assert (taken.experts == wanted).all()
    assert taken.experts.dtype == (np.uint8 if count == 256 and row.package == "skyrl" else np.int16)


@each("experts")
@pytest.mark.slow
async def test_experts_that_the_engine_did_not_tell_fail_and_unasked_ones_are_left_out(
    system: SyncClient, row: Row
) -> None:
    if row.take is not verl and row.package == "verl":
        _, (failed,) = await row.take([counter_row()], replays=True)
        assert sum(failed.mask) == 0  # it cannot leave one out
    else:
        with pytest.raises(GymError, match=r"(replay|experts) is on, and (the|SkyRL's) engine did not"):
            await row.take([counter_row()], replays=True)
    _, (taken,) = await row.take([counter_row()], experts=256)
    assert taken.experts is None


@pytest.mark.slow
async def test_verls_experts_are_cut_with_its_response(system: SyncClient) -> None:
    asked: dict[str, Any] = {"replays": True, "response_length": 100}
    (output,) = await test_verl.run(Servers(256), counter_row(), test_verl.V1, **asked)
    ids = [*output.prompt_ids, *output.response_ids]
    assert len(output.response_ids) == 100
    # The engine went on, so the last token that is left has some, too.
    assert (output.routed_experts[: len(ids) - 1] == experts_of(ids)).all()
    assert len(output.routed_experts) == len(ids)


@pytest.mark.slow
async def test_skyrl_gets_a_row_of_experts_of_what_failed(system: SyncClient) -> None:
    _, (_, failed) = await skyrl([counter_row(), TOO_LONG], experts=256, replays=True)
    assert failed.experts.shape == (1, 2, 3)


@each("no-experts")
async def test_experts_are_refused_with_the_remedy(row: Row) -> None:
    made = game(1.0, "")
    told = bytes(made.row).replace(b'"content":""', b'"content":"","routed_experts":"nrlre1:int8:1x1x1:AA=="')
    with pytest.raises(UsageError, match=r"TRL takes no routed experts, .* leave out the model's option"):
        await row.take([replace(made, row=type(made.row)(told))])


# -- trainers that hold the conversation themselves ---------------------------------------------------------


class Judged:
    """A client, and a session, whose verdict names two seats."""

    observation, tools = (), ()

    def verify(self, *_: Any) -> Verdict:
        return Verdict(1.0, rewards={"first": 1.0, "second": 0.0})

    def session(self, *_: Any) -> Any:
        return nullcontext(self)


def by_openrlhf() -> None:
    test_openrlhf.reward_func(["a b"], ["a"], ["{}"])


def by_verl() -> None:
    batch = {"responses": np.array([5]), "attention_mask": np.array([1])}
    item = test_verl.Item(batch=batch, non_tensor_batch={test_verl.ROW: "{}"})
    manager = test_verl.GymRewardManager(test_verl.namespace({}), Servers().tokenizer)
    asyncio.run(manager.run_single(item))


def by_skyrl() -> None:
    env = test_skyrl.GymEnv(extras={test_skyrl.ROW: "{}", "max_turns": 1})
    env.init([{"role": "user", "content": "?"}])
    env.step("a")


def by_trl() -> None:
    made = TrlEnvironment.__new__(TrlEnvironment)
    vars(made).update(_session=Judged(), _failure="", _held=ExitStack())
    made._verified("a")


@pytest.mark.parametrize("judged", [by_openrlhf, by_verl, by_skyrl, by_trl])
def test_one_conversation_gets_no_reward_of_several_seats(
    judged: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("openrlhf", "verl", "skyrl_environment"):
        monkeypatch.setattr(f"gym_trainers.{module}.shared_client", Judged)
    with pytest.raises(GymError, match=r"trains the seats first, second, each with .*: (use|run) "):
        judged()


async def _two_seats(task: Task, reply: Reply) -> Verdict:
    return Judged().verify()


TWO_SEATS = environment(Environment(resource=_two_seats, description="Two seats."), "two_seats")


@pytest.mark.slow
async def test_prime_rl_gets_the_verifiers_reward_and_none_of_several_seats() -> None:
    """It asks `/verify` of ``gym-runtime gym-server``; branches, experts and renderers are its own."""
    page = " ".join((PAGES / "train-with-prime-rl.md").read_text().split())
    assert "the server refuses it with the status 422" in page
    assert "`credit` and the kinds" in page
    async with running_server() as here:
        for said, reward in (("B", 1.0), ("A", 0.0)):
            answer = response(message(f"\\boxed{{{said}}}"))
            assert (await here.post("/mcqa/verify", choice_row(response=answer))).body["reward"] == reward
        broken = await here.post("/mcqa/verify", choice_row(response=answer, options=1))
        assert broken.status == 422
        assert "reward" not in broken.body
    async with running_server(environments=(TWO_SEATS,)) as here:
        asked = {"responses_create_params": {"input": "hi"}, "response": response(message("a"))}
        refused = await here.post("/two_seats/verify", asked)
    assert (refused.status, "reward" in refused.body) == (422, False)
    assert "trains the seats first, second" in refused.body["detail"]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_prime_rls_own_taskset_gets_no_reward_of_several_seats(tmp_path: Path) -> None:
    """With a reward: `tests/faces/gym_server/test_real_clients.py`."""
    if not (python := os.environ.get("VERIFIERS_PYTHON")):
        pytest.skip("needs VERIFIERS_PYTHON: a Python with verifiers 0.4, which prime-rl trains on")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "hi"}}) + "\n")
    async with running_server(environments=(TWO_SEATS,)) as here:
        at = (f"{here.url}/two_seats", "rows.jsonl", "[]", "a")
        with pytest.raises(AssertionError, match="422"):
            await run_program(tmp_path, python, CLIENTS / "verifiers_taskset.py", *at)
