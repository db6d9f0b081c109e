from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_resources.judging.genrm import Conversation
from gym_runtime import Reply, Role
from gym_runtime.environment import catalogue, create_params
from gym_runtime.environment.replaying import executed, turns
from gym_runtime.environment.roles import question_digest
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ResourceError, TaskError, UsageError
from gym_runtime.messages import user_message
from gym_runtime.messages.responses import decode_items, decode_response
from gym_testing.checks.reverification import (
    RejectedRow,
    ReverifiedRow,
    Reverifier,
    environments_of,
    reverify,
)
from tables import table

pytestmark = pytest.mark.anyio

INCREMENT = {
    "type": "function_call",
    "call_id": "c",
    "name": "increment_counter",
    "arguments": '{"count": 3}',
}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": '{"success":true}'}


def mcqa_row(text: str, **fields: Any) -> bytes:
    row = {
        "responses_create_params": {"input": "Which?", "temperature": None},
        "options": [{"A": "Tin"}, {"B": "Iron"}],
        "expected_answer": "B",
        "response": msgspec.Raw(Reply.of(text).raw),
        "reward": 0.0,
        "extracted_answer": "stale",
        "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
        "_ng_task_index": 7,
    }
    return msgspec.json.encode({**row, **fields})


async def test_the_reward_and_the_verifiers_fields_are_replaced_and_the_rest_is_kept() -> None:
    stored = mcqa_row(r"\boxed{B}")
    new = await reverify(None, stored)
    assert (new.reward, new.previous_reward, new.changed) == (1.0, 0.0, True)
    assert msgspec.json.decode(new.row) == {
        **msgspec.json.decode(stored),
        "reward": 1.0,
        "extracted_answer": "B",
        "_previous_reward": 0.0,
    }
    with pytest.raises(TaskError, match="of environment 'mcqa', not of 'gpqa_diamond': leave the name out"):
        await reverify(catalogue.environment("gpqa_diamond"), stored)
    again = await reverify(catalogue.environment("mcqa"), bytes(new.row))
    assert (again.reward, again.previous_reward, again.changed) == (1.0, 1.0, False)


async def test_recorded_calls_are_repeated_for_a_verifier_that_looks_at_state() -> None:
    def row(*items: Any) -> bytes:
        return msgspec.json.encode(
            {
                "responses_create_params": {"input": "count"},
                "initial_count": 3,
                "expected_count": 6,
                "response": msgspec.Raw(make_response(*items)),
                "agent_ref": {"name": "example_session_state_mgmt_simple_agent"},
            }
        )

    done = await reverify(None, row(INCREMENT, OUTPUT, "6"))
    assert (done.reward, done.previous_reward, done.changed) == (1.0, None, True)
    assert (await reverify(None, row("6"))).reward == 0.0
    never_made = {**INCREMENT, "arguments": '{"count": 9}'}  # the answer was cut off, or it was the last turn
    assert (await reverify(None, row(INCREMENT, OUTPUT, never_made))).reward == 1.0
    assert (await reverify(None, row(INCREMENT))).reward == 0.0


@table(
    ("transcript", "made"),
    [
        ("", ""),
        ("a1 b2", ""),
        ("a1 b2 -2", "b"),
        ("a1 b2 -2 -1 c3", "ab"),
        ("a1 -1 b1 -1 c1", "ab"),
        ("a1 b1 -1 -1", "ab"),
        ("-1 a1", ""),
    ],
)
def test_only_calls_that_an_output_answers_were_made(transcript: str, made: str) -> None:
    items = [
        {"type": "function_call_output", "call_id": number, "output": ""}
        if name == "-"
        else {"type": "function_call", "call_id": number, "name": name, "arguments": "{}"}
        for name, number in transcript.split()
    ]
    assert "".join(call.name for call in executed(Reply.of(*items).items)) == made


def test_the_environments_of_files_are_those_that_their_rows_name(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    refs = [{"name": "mcqa_simple_agent"}, {"name": "nobody"}, None, {"name": "mcqa"}]
    path.write_bytes(b"\n".join([b"{", *(mcqa_row("", agent_ref=ref) for ref in refs), b""]))
    assert [environment.name for environment in environments_of(path)] == ["mcqa"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"response": None}, TaskError, "the recorded response cannot be read"),
        (
            {"response": {"output": [{"type": "function_call"}]}},
            TaskError,
            "missing required field `call_id`",
        ),
        ({"options": 5}, TaskError, "Expected `array.*`, got `int`"),
        ({"agent_ref": None}, TaskError, "the row has no 'agent_ref.name'"),
        ({"agent_ref": {"name": "nobody"}}, UsageError, "no environment has agent_ref 'nobody'"),
    ],
)
async def test_a_row_that_cannot_be_judged_says_why(
    change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await reverify(None, mcqa_row("", **change))


async def test_a_game_of_several_seats_whose_row_has_the_words_of_one_is_not_judged_again() -> None:
    row: dict[str, Any] = {
        "responses_create_params": {"input": "Play."},
        "heaps": [3],
        "response": msgspec.Raw(Reply.of("<take>1 2</take>").raw),
        "reward": 0.0,
        "agent_ref": {"name": "nim"},
        "_gym": {"seat": "first", "rewards": {"first": 0.0, "second": 1.0}},
    }
    with pytest.raises(TaskError, match="several seats moved, and the row has the words of 'first' alone"):
        await reverify(None, msgspec.json.encode(row))
    alone = {**row, "heaps": [2], "_gym": {"seat": "first", "rewards": {"first": 1.0}}}
    assert (await reverify(None, msgspec.json.encode(alone))).reward == 1.0


async def test_a_row_without_a_response_is_no_rollout() -> None:
    with pytest.raises(TaskError, match="not a stored rollout: Object missing required field `response`"):
        await reverify(None, b'{"reward": 1.0}')


async def test_a_file_is_judged_in_order_and_broken_lines_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    lines = [mcqa_row(r"\boxed{B}", id=number) for number in range(40)]
    lines[3] = '{"é": tru}'.encode()
    lines[5] = b'{"responses_create_params"'
    lines[7] = b""
    lines[9] = mcqa_row("", options=5)
    path.write_bytes(b"\n".join(lines))

    found = [row async for row in Reverifier().judge_file(path, concurrency=2)]
    rejected = {row.where: row.fault.message for row in found if isinstance(row, RejectedRow)}
    assert rejected == {
        f"{path}:4:8": "not a JSON object: JSON is malformed: invalid character (byte 8)",
        f"{path}:6:27": "not a JSON object: Input data was truncated",
        f"{path}:10": "Expected `array`, got `int` - at `$.options`",
    }
    judged = [row for row in found if isinstance(row, ReverifiedRow)]
    assert [msgspec.json.decode(row.row)["id"] for row in judged] == [
        number for number in range(40) if number not in (3, 5, 7, 9)
    ]
    assert judged[0].where == f"{path}:1"
    assert all(row.reward == 1.0 for row in judged)


async def test_an_environment_may_be_given_for_rows_that_name_none(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(mcqa_row(r"\boxed{A}", agent_ref=None) + b"\n")
    (row,) = [row async for row in Reverifier(catalogue.environment("mcqa")).judge_file(path)]
    assert isinstance(row, ReverifiedRow)
    assert (row.reward, row.changed) == (0.0, False)


@pytest.mark.slow
async def test_heavy_environments_are_judged_under_their_limit(tmp_path: Path) -> None:
    """Of processor time; on a very busy machine the limit of 7 s in all comes first."""
    module = tmp_path / "spinner.py"
    module.write_text(
        "from gym_runtime import Environment, Reply, Task, Verdict\n"
        "def verify(task: Task, reply: Reply) -> Verdict:\n"
        "    while reply.text == 'spin':\n"
        "        pass\n"
        "    return Verdict(1.0)\n"
        "environment = Environment(resource=verify, description='d', isolated=True, verify_timeout_s=0.5)\n"
    )
    environment = catalogue.environment(str(module))
    assert (await reverify(environment, mcqa_row("stop"))).reward == 1.0
    with pytest.raises(ResourceError, match=r"verification took longer than (0.5|7) s"):
        await reverify(environment, mcqa_row("spin"))


async def test_what_a_heavy_environment_imports_is_there_before_its_time_begins(tmp_path: Path) -> None:
    module = tmp_path / "importer.py"
    module.write_text(
        "import sys\n"
        "from gym_runtime import Environment, Reply, Task, Verdict\n"
        "def verify(task: Task, reply: Reply) -> Verdict:\n"
        "    return Verdict(float(reply.text in sys.modules))\n"
        "environment = Environment(\n"
        "    resource=verify, description='d', isolated=True, imports=('wave', 'no_such_module')\n"
        ")\n"
    )
    environment = catalogue.environment(str(module))
    assert (await reverify(environment, mcqa_row("wave"))).reward == 1.0
    assert (await reverify(environment, mcqa_row("aifc"))).reward == 0.0


def test_a_transcript_falls_into_the_models_turns() -> None:
    user = {"role": "user", "content": "and?"}
    response = make_response("a", INCREMENT, OUTPUT, "b", user, user, "c")
    found = turns(decode_items(decode_response(response).output))
    assert [len(turn) for turn in found] == [2, 1, 1]
    assert turns([]) == []


# -- rewards of whole groups ------------------------------------------------------------------------------


def scored(first: float, second: float) -> bytes:
    return make_response(f'{{"score_1": {first}, "score_2": {second}}}')


async def answered(reply: str, other: str, response: bytes) -> dict[str, Any]:
    """What a row keeps of a question to the role ``genrm``."""
    loaded = catalogue.environment("genrm_compare")
    role = loaded.resource.roles[0]
    task = loaded.resource.task(genrm_row(reply, 0))
    assert isinstance(task, Conversation)
    items = [user_message(str(task.question(reply, other)))]
    params = create_params(msgspec.json.encode(role.sampling))
    digest = question_digest("genrm", params, items)
    return {"role": "genrm", "digest": digest, "response": msgspec.Raw(response)}


def genrm_row(text: str, index: int, task: int = 0, **own: Any) -> bytes:
    row = {
        "responses_create_params": {"input": f"conversation {task}"},
        "response": msgspec.Raw(Reply.of(text).raw),
        "reward": 1.0,
        "agent_ref": {"type": "responses_api_agents", "name": "genrm_simple_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": index,
        "_gym": {"rollout_id": f"r.{task}.{index}", "compared": [0, 1], **own},
    }
    return msgspec.json.encode(row)


async def recorded_group() -> list[bytes]:
    """Two rows of a group; what the judge answered is in the first."""
    answers = [await answered("A", "B", scored(5, 2)), await answered("B", "A", scored(1, 4))]
    return [genrm_row("A", 0, role_answers=answers), genrm_row("B", 1)]


async def judged_file(
    path: Path, rows: list[bytes], reverifier: Reverifier | None = None, **more: Any
) -> list[ReverifiedRow | RejectedRow]:
    await anyio.Path(path).write_bytes(b"".join(row + b"\n" for row in rows))
    return [row async for row in (reverifier or Reverifier()).judge_file(path, **more)]


@pytest.mark.parametrize("order", [1, -1])
async def test_a_group_is_compared_with_what_its_judge_answered(tmp_path: Path, order: int) -> None:
    other = genrm_row("C", 0, task=1)
    first, second = (await recorded_group())[::order]
    found = await judged_file(tmp_path / "rows.jsonl", [first, other, second])
    first, alone, second = found
    assert isinstance(first, ReverifiedRow)
    assert isinstance(second, ReverifiedRow)
    assert (first.reward, second.reward) == ((4.5, 1.5) if order > 0 else (1.5, 4.5))
    assert isinstance(alone, RejectedRow)
    assert alone.fault.stage == "compare"


async def test_a_file_that_was_judged_in_part_is_judged_to_its_end(tmp_path: Path) -> None:
    (last,) = await judged_file(tmp_path / "rows.jsonl", await recorded_group(), done=1)
    assert isinstance(last, ReverifiedRow)
    assert last.reward == 1.5


async def test_a_second_row_of_a_rollout_is_not_compared(tmp_path: Path) -> None:
    first, second = await recorded_group()
    *judged, doubled = await judged_file(tmp_path / "rows.jsonl", [first, second, second])
    assert [row.reward for row in judged if isinstance(row, ReverifiedRow)] == [4.5, 1.5]
    assert isinstance(doubled, RejectedRow)
    assert "a row before it is of the same rollout" in doubled.fault.message


async def test_a_group_is_compared_by_another_judge_once(tmp_path: Path) -> None:
    asked: list[str] = []

    async def judge(role: Role, params: msgspec.Raw, items: Any) -> msgspec.Raw:
        asked.append(role.name)
        return msgspec.Raw(scored(3, 1))

    reverifier = Reverifier(models={"genrm": judge})
    found = await judged_file(tmp_path / "rows.jsonl", await recorded_group(), reverifier)
    assert [row.reward for row in found if isinstance(row, ReverifiedRow)] == [2.0, 2.0]
    assert asked == ["genrm", "genrm"]
    kept = [msgspec.json.decode(row.row or b"")["_gym"] for row in found]
    assert [len(own["role_answers"]) for own in kept] == [2, 0]
    assert kept[0]["roles"]["genrm"]["calls"] == 2


async def test_one_row_of_a_group_has_no_reward_alone() -> None:
    with pytest.raises(TaskError, match="judge the whole file"):
        await reverify(None, genrm_row("A", 0))
