"""Result rows as NeMo Gym stores them, on every environment: with nulls for what a row leaves out, with
reasoning before the messages, with fields that no environment knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.messages.responses import CreateParams, Response
from gym_testing.checks.reverification import ReverifiedRow, Reverifier
from resources.judging import usable
from resources.test_contract import COPIES

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.slow]
NAMES = catalogue.names("environments")
LONG = COPIES | {"ether0"}
"""Their judge takes a process of its own, which they share with another environment or which takes seconds to
start; `tests/resources/test_contract.py` judges them, too."""
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "<answer>none</answer> \\boxed{none}"}],
    "content": None,
    "encrypted_content": None,
    "status": None,
}
NOT_THEIRS = {"agent_ref", "split"}  # set below; a field of ours that their rows do not have
EMPTY = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}
BOOKKEEPING: dict[str, Any] = {
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
    "_ng_rollout_id": "0-0",
    "ng_trajectory": None,
    "mask_sample": False,
    "uuid": None,
    "tokens": {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]},
}


def recorded(
    environment: LoadedEnvironment, row: bytes, output: list[dict[str, Any]], *, rollout: int = 0
) -> bytes:
    """A stored rollout of a row, with null for each field that the row may leave out and does."""
    fields = json.loads(row)
    params = json.loads(msgspec.json.encode(CreateParams())) | fields["responses_create_params"]
    optional = {
        field.encode_name: None
        for field in msgspec.structs.fields(environment.resource.task_type)
        if not field.required and field.encode_name not in NOT_THEIRS
    }
    items = [item | (BOOKKEEPING["tokens"] if item is output[-1] else {}) for item in output]
    response = json.loads(msgspec.json.encode(Response(model="m"))) | {"output": items}
    return json.dumps(
        optional
        | fields
        | BOOKKEEPING
        | {
            "responses_create_params": params,
            "response": response,
            "reward": 0.25,
            "_ng_rollout_index": rollout,
            "agent_ref": {"name": f"{environment.name}_simple_agent"},
        }
    ).encode()


WITHOUT_A_CALL = {"openair_congestion": -1.0}
"""What a step without a call costs, where an agent that takes no step gets another reward."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in NAMES]
)
async def test_a_stored_gold_answer_scores_full_and_stored_silence_nothing(name: str, tmp_path: Path) -> None:
    environment = usable(name)
    example = examples.read(environment)[0]
    gold = json.loads(await examples.play(environment.resource, example))["output"]
    definition = environment.definition
    if definition.compare is not None:
        for silence in ([THOUGHT], [THOUGHT, EMPTY]):
            stored = tmp_path / "rows.jsonl"
            outputs = ([THOUGHT, *gold], silence)
            pair = [
                recorded(environment, example.row, output, rollout=number)
                for number, output in enumerate(outputs)
            ]
            stored.write_bytes(b"".join(line + b"\n" for line in pair))
            models = dict.fromkeys(example.roles, example.answers())
            rows = [row async for row in Reverifier(models=models).judge_file(stored)]
            rewards = [row.reward for row in rows if isinstance(row, ReverifiedRow)]
            assert rewards == [definition.gold_reward, definition.silence_reward]
        return
    silence = WITHOUT_A_CALL.get(name, definition.silence_reward)
    for output, reward in (
        ([THOUGHT, *gold], definition.gold_reward),
        ([THOUGHT], silence),
        ([THOUGHT, EMPTY], silence),
    ):
        models = dict.fromkeys(example.roles, example.answers())
        row = await Reverifier(models=models).judge(recorded(environment, example.row, output))
        assert (row.reward, row.previous_reward) == (pytest.approx(reward), 0.25)
