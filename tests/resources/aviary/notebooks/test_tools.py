"""The tools of notebooks: what a model reads after its calls."""

from __future__ import annotations

import json
import time

import anyio
import gym_runtime
import pytest
from gym_resources.aviary_episodes.notebook_cells import CELL_CHARACTERS
from gym_runtime import Reply
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.shapes import Episode
from resources.aviary.notebooks.notebook_runs import PROBLEM, QUESTION, resource, steps
from resources.judging import call, row

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_cells_are_appended_edited_and_shown() -> None:
    found = await steps(
        "bixbench_aviary",
        row(**QUESTION),
        [call("edit_cell", {"contents": "x = 1\nx"}, "a"), call("list_workdir", {}, "b")],
        [call("edit_cell", {"contents": "x = 2\nx", "idx": "0"})],
        [call("edit_cell", {"contents": "x + 40", "idx": 7})],
        ["I think."],
        [call("fly", {}), call("edit_cell", "{", "b"), call("edit_cell", {"idx": 0}, "d")],
        [call("edit_cell", {"contents": "x" * (CELL_CHARACTERS + 1)})],
        [
            call("submit_solution", {"solution": 3}, "a"),
            call("submit_solution", {"solution": "48"}, "b"),
            call("edit_cell", {"contents": "x"}, "d"),
        ],
    )
    read = [texts for texts, _ in found]
    assert read[0] == [
        "Appended new cell #0.",
        '{\n  "files": [\n    "README.txt",\n    "seedlings.csv"\n  ]\n}',
        "The notebook, as Markdown:\n\n### Cell 0:\n```python\nx = 1\nx\n```\n### Output 0:\n```\n1\n```",
    ]
    assert read[1][0] == "Edited cell #0."
    assert "### Output 0:\n```\n2\n```" in read[1][1]
    assert read[2][0] == "Appended new cell #1."
    assert read[2][1].endswith("### Output 1:\n```\n42\n```")
    assert "has no call" in read[3][0]
    assert read[4][0].startswith("There is no tool 'fly'. There are: edit_cell, list_workdir, submit_sol")
    assert all("validation_error" in text for text in read[4][1:3])
    assert read[5][0] == f"A cell has at most {CELL_CHARACTERS} characters."
    assert "validation_error" in read[6][0]
    assert read[6][1:] == ["Submitted."]
    assert [over for _, over in found] == [False] * 6 + [True]


@pytest.mark.slow
async def test_the_hypothesis_notebook_answers_with_outputs() -> None:
    found = await steps(
        "bbh_aviary",
        row(task_idx=0, problem=PROBLEM),
        [call("run_cell", {"code": "x = 1; x"}, "a"), call("run_cell", {"code": "x = 2; x", "idx": 0}, "b")],
        [call("run_cell", {"code": "x", "idx": 5}, "a"), call("list_dir", {"max_files": 1}, "b")],
        [call("reset_kernel", {}, "a"), call("run_cell", {"code": "x"}, "b")],
        [call("submit_answer", {"answer": "Yes."})],
    )
    assert found[0] == (["[Cell #0] 1", "[Cell #0] 2"], False)
    assert found[1][0][0] == "[Cell #1] 2"
    assert json.loads(found[1][0][1]) == {"files": ["README.txt"], "left out": "what comes after these"}
    assert found[2][0][0] == "Kernel reset successfully."
    assert found[2][0][1].startswith("[Cell #0] ---")
    assert found[3] == (["Submitted."], True)


async def test_no_cell_runs_when_the_time_is_over() -> None:
    [(read, _), (said, over)] = await steps(
        "bbh_aviary",
        row(task_idx=0, problem=PROBLEM, job_timeout=1e-9),
        [call("run_cell", {"code": "1"})],
        [call("submit_answer", {"answer": "Nothing."})],
    )
    assert read[0].startswith("The time is over")
    assert (said, over) == (["Submitted."], True)


@pytest.mark.parametrize("name", ["bixbench_aviary", "bbh_aviary"])
async def test_calls_of_a_megabyte_hold_no_loop(name: str) -> None:
    task = row(**QUESTION) if name == "bixbench_aviary" else row(task_idx=0, problem=PROBLEM)
    tool, field = ("edit_cell", "contents") if name == "bixbench_aviary" else ("run_cell", "code")
    models = ScriptedAnswers({"judge": [], "rubric": []}).models(resource(name).roles)
    async with session_of(resource(name), task, models) as session:
        assert isinstance(session, Episode)
        await resource(name).reset(session)
        for answer in (
            call(tool, {field: 10**6 * "("}),
            call(tool, {field: "1", "idx": 10**400}),
            call(tool, 10**6 * "["),
            call(tool, '{"idx": ' + 10**6 * "9" + "}"),
            call(10**6 * "x", {}),
            call("submit_answer" if name == "bbh_aviary" else "submit_solution", {"answer": 10**6 * "["}),
        ):
            start_s = time.thread_time()
            step = await resource(name).step(session, Reply.of(answer).raw)
            assert time.thread_time() - start_s < 0.5
            assert len(step.items[0]) < 1000


@pytest.mark.slow
async def test_a_model_works_in_a_notebook() -> None:
    task = {"responses_create_params": {"input": []}, **QUESTION, "eval_mode": "exact"}
    name = "bixbench_aviary"
    async with gym_runtime.connect(model="scripted/tool-then-message", environments=[name]) as gym:
        with anyio.fail_after(50):
            settings = gym_runtime.RolloutSettings(max_turns=3)
            [record] = [record async for record in gym.rollouts([task], environment=name, settings=settings)]
    written = json.loads(bytes(record.row))
    offered = [tool["name"] for tool in written["responses_create_params"]["tools"]]
    assert offered == ["edit_cell", "list_workdir", "submit_solution"]
    assert isinstance(record.reward, float)
    assert not isinstance(record.outcome, gym_runtime.Failed)
