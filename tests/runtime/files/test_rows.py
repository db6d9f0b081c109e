"""Expansion: numbering, settings laid over, and what a bad row says."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.row_reader import BadRow, RowReader
from gym_runtime.files.rows import Numbering, expand, materialize
from hypothesis import given
from hypothesis import strategies as st

Line = Callable[..., bytes]


def keys(lines: list[bytes], repeats: int = 1) -> list[tuple[int, int]]:
    tasks = expand(lines, run="r", environment="counting", repeats=repeats)
    return [(task.task_index, task.rollout_index) for task in tasks]


def params(task: Any) -> dict[str, Any]:
    return msgspec.json.decode(task.row)["responses_create_params"]


def test_repeats_stand_together_and_equal_rows_are_one_task(line: Line) -> None:
    assert keys([line(1), line(2), line(1)], 2) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]


def test_a_benchmark_has_its_own_number_of_repeats_unless_the_run_says_another() -> None:
    lines = {
        name: catalogue.environment(name).examples.read_bytes().splitlines()[0] for name in ("gpqa", "mcqa")
    }
    made = {name: list(expand([line], run="r", environment=name)) for name, line in lines.items()}
    assert {name: len(tasks) for name, tasks in made.items()} == {"gpqa": 8, "mcqa": 1}
    assert len(list(expand([lines["gpqa"]], run="r", environment="gpqa", repeats=2))) == 2


def test_own_task_indices_are_kept_and_count_on(line: Line) -> None:
    rows = [
        line(1, _ng_task_index=7),
        line(2, _ng_task_index=7),
        line(3, _ng_task_index=0, _ng_rollout_index=9),
    ]
    assert keys(rows, 2) == [(7, 0), (7, 1), (7, 2), (7, 3), (0, 0), (0, 1)]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 5))
def test_numbering_is_dense_and_by_first_appearance(given_rows: list[int], repeats: int) -> None:
    lines = [b'{"responses_create_params":{},"expected_count":%d}' % count for count in given_rows]
    found = keys(lines, repeats)
    assert len(set(found)) == len(found) == len(lines) * repeats
    order = list(dict.fromkeys(given_rows))
    by_task: defaultdict[int, list[int]] = defaultdict(list)
    for position, (task_index, rollout_index) in enumerate(found):
        assert order[task_index] == given_rows[position // repeats]
        by_task[task_index].append(rollout_index)
    times = Counter(given_rows)
    assert {task: list(range(times[order[task]] * repeats)) for task in by_task} == by_task


def test_a_task_carries_the_environment_settings(line: Line) -> None:
    (task,) = expand(
        [line()], run="r", environment="counting", model_pool="policy", max_turns=4, return_token_ids=True
    )
    assert (task.environment, task.agent, task.timeout_s) == ("counting", "tool_loop", 60.0)
    assert (task.max_turns, task.return_tokens, task.rollout_id) == (4, True, "r.0.0")
    assert bytes(task.agent_ref or b"") == b'{"name":"counting"}'
    assert bytes(task.row) == line()
    (task,) = expand([line()], run="r", environment="counting", agent="single_turn", timeout_s=5.0)
    assert (task.agent, task.timeout_s) == ("single_turn", 5.0)


def test_sampling_is_laid_over_the_rows_params(line: Line) -> None:
    mine = line(responses_create_params={"input": "hi", "temperature": 1.0, "top_p": 0.5})
    sampling = {"temperature": 0.2, "max_output_tokens": 9}
    (task,) = expand([mine], run="r", environment="counting", sampling=sampling)
    assert params(task) == {"input": "hi", "temperature": 0.2, "top_p": 0.5, "max_output_tokens": 9}


def test_seeds_join_what_extra_body_holds(line: Line) -> None:
    metadata = {"extra_body": '{"top_k": 5}', "other": "x"}
    mine = line(responses_create_params={"input": "hi", "metadata": metadata})
    first, second = expand([mine], run="r", environment="counting", repeats=2, seed_repeats=True)
    for seed, task in enumerate((first, second)):
        found = params(task)["metadata"]
        assert msgspec.json.decode(found["extra_body"]) == {"top_k": 5, "seed": seed}
        assert found["other"] == "x"
    for bare in ({"input": "hi"}, {"input": "hi", "metadata": None}):
        (task,) = expand(
            [line(responses_create_params=bare)], run="r", environment="counting", seed_repeats=True
        )
        assert params(task)["metadata"] == {"extra_body": '{"seed":0}'}


def test_seeds_count_from_the_one_that_is_given(line: Line) -> None:
    """A trainer gives each step its own: with the same ones a row would be answered as in the step before."""
    settings = {"run": "r", "environment": "counting", "repeats": 2, "seed_repeats": True}
    own = line(responses_create_params={"input": "hi", "metadata": {"extra_body": '{"seed":40}'}})
    for row, sampling, seeds in (
        (line(), {"seed": 7}, [7, 8]),
        (own, {}, [40, 41]),
        (own, {"seed": 7}, [7, 8]),
    ):
        found = [
            msgspec.json.decode(params(task)["metadata"]["extra_body"])["seed"]
            for task in expand([row], sampling=sampling, **settings)
        ]
        assert found == seeds


@pytest.mark.parametrize("escaped", [False, True])
def test_the_row_loses_what_the_rollout_carries(line: Line, escaped: bool) -> None:
    marks = {name: {} for name in ("_ng_failure", "_ng_failure_class", "_ng_tomorrow", "_gym", "_gym_x")}
    mine = line(gold="three", agent_ref=None, _ng_task_index=4, _ng_rollout_index=2, kept=1, **marks)
    if escaped:
        mine = line(kept=1, **marks).replace(b'"_', b'"\\u005f')
    (task,) = expand([mine], run="r", environment="counting")
    assert task.task_index == (0 if escaped else 4)
    assert set(msgspec.json.decode(task.row)) == {"responses_create_params", "expected_count", "kept"}


def test_a_row_names_its_environment(line: Line) -> None:
    ref = {"type": "responses_api_agents", "name": "counting"}
    catalogue.environment("counting")  # a person names it: it is a file of the working directory
    (task,) = expand([line(agent_ref=ref)], run="r")
    assert task.environment == "counting"
    assert msgspec.json.decode(task.agent_ref or b"") == ref


def test_materialized_rows_have_reference_and_numbers(line: Line) -> None:
    tasks = list(
        expand([line(), line(agent_ref={"name": "counting", "x": 1})], run="r", environment="counting")
    )
    assert [msgspec.json.decode(materialize(task)) for task in tasks] == [
        {**msgspec.json.decode(line()), "agent_ref": ref, "_ng_task_index": index, "_ng_rollout_index": 0}
        for index, ref in enumerate([{"name": "counting"}, {"name": "counting", "x": 1}])
    ]
    assert keys([materialize(task) for task in tasks]) == [(0, 0), (1, 0)]


def test_expansion_is_lazy(line: Line) -> None:
    tasks = expand([line(), b"nonsense"], run="r", environment="counting")
    assert next(tasks).task_index == 0
    with pytest.raises(TaskError, match="row 2: not JSON"):
        next(tasks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "at least 1"),
        ({"sampling": {"temprature": 1}}, "no sampling setting 'temprature'; did you mean 'temperature'"),
        ({"model": "other"}, "model_pool names the model"),
        ({"sampling": {"temperature": "hot"}}, "'temperature': expected float"),
        ({"environment": "countin"}, "no environment 'countin'"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str, line: Line) -> None:
    with pytest.raises(UsageError, match=message):
        list(expand([line()], **{"run": "r", "environment": "counting", **options}))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"expected_count": "3"}, None),
        ({"expected_count": "three"}, "'expected_count': expected int, got str"),
        ({"expected_count": ..., "expcted_count": 3}, "did you mean your 'expcted_count'?"),
        ({"expected_count": ...}, "'expected_count' is missing"),
        ({"responses_create_params": ...}, "'responses_create_params' is missing"),
        ({"responses_create_params": {"input": None}}, "expected str | array, got null"),
        ({"responses_create_params": {"input": ["x"]}}, "input[0]': expected object, got str"),
        ({"responses_create_params": {"input": [{"content": "x"}]}}, "a 'role' or a 'type'"),
        ({"responses_create_params": {"inputs": []}}, "did you mean 'input'?"),
        ({"responses_create_params": {"top_p": "x"}}, "top_p': expected float"),
        ({"responses_create_params": {"metadata": {"extra_body": "[]"}}}, "text of a JSON object"),
        ({"agent_ref": "x"}, "expected object | null, got str"),
        ({"agent_ref": {"name": "nobody_agent"}}, "no environment has agent_ref 'nobody_agent'"),
        ({"_ng_task_index": -1}, "expected int >= 0"),
    ],
)
def test_a_bad_row_says_what_and_where(
    change: dict[str, Any], what: str | None, row: Callable[..., dict[str, Any]]
) -> None:
    fields = {name: value for name, value in {**row(), **change}.items() if value is not ...}
    reader = RowReader("counting")
    data = msgspec.json.encode(fields)
    if what is None:
        assert reader.read(data).environment.name == "counting"
        return
    with pytest.raises(BadRow) as caught:
        reader.read(data)
    assert what in caught.value.message


def test_a_row_without_any_environment_is_refused(line: Line) -> None:
    with pytest.raises(BadRow, match="no 'agent_ref'"):
        RowReader().read(line())


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_get_through_or_crash(data: bytes) -> None:
    with pytest.raises(BadRow):
        RowReader("counting").read(data)


@given(st.data())
def test_a_cut_or_changed_row_is_a_row_or_a_complaint(data: st.DataObject) -> None:
    good = (
        b'{"responses_create_params": {"input": "h\xc3\xa9"}, "expected_count": 3, "more": [1, {"a": null}]}'
    )
    start = data.draw(st.integers(0, len(good)))
    bad = good[:start] + data.draw(st.binary(max_size=2)) + good[start + data.draw(st.integers(0, 3)) :]
    with suppress(BadRow):
        RowReader("counting").read(bad)
        bad.decode()


def test_numbering_remembers_only_what_comes_again(line: Line) -> None:
    reader = RowReader("counting")
    rows = [reader.read(line(_ng_task_index=index)) for index in (3, 1, 3, 2)]
    numbering = Numbering(repeated={3: 2})
    assert [numbering.number(row, 4) for row in rows] == [(3, 0), (1, 0), (3, 4), (2, 0)]
    assert [numbering.occurrences(row) for row in rows] == [2, 1, 2, 1]


def test_numbering_keeps_rows_apart_that_bring_an_index_and_rows_that_do_not(line: Line) -> None:
    reader = RowReader("counting")
    plain = [reader.read(line(count)) for count in range(2)]
    own = [reader.read(line(count)[:-1] + b', "_ng_task_index": 1}') for count in (5, 6)]
    numbering = Numbering()
    rows = [plain[0], own[0], own[1], plain[1], plain[0]]
    assert [numbering.number(row, 2) for row in rows] == [(0, 0), (1, 0), (1, 2), (2, 0), (0, 2)]
    later = reader.read(line(7)[:-1] + b', "_ng_task_index": 9}')
    assert [numbering.number(row, 2) for row in (later, own[0])] == [(9, 0), (1, 4)]
    numbering = Numbering()
    assert [numbering.number(row, 2) for row in plain] == [(0, 0), (1, 0)]
    with pytest.raises(UsageError, match="brings _ng_task_index 1, which an earlier row"):
        numbering.number(own[0], 2)


def test_numbering_counts_the_repeats_of_each_rows_first_coming(line: Line) -> None:
    reader = RowReader("counting")
    one, other = (reader.read(line(count)) for count in range(2))
    numbering = Numbering()
    asked = [(one, 2), (other, 3), (one, 2), (other, 1), (other, 1)]
    assert [numbering.number(row, repeats) for row, repeats in asked] == [
        (0, 0),
        (1, 0),
        (0, 2),
        (1, 3),
        (1, 4),
    ]


def test_row_without_tools_gets_those_of_its_environment() -> None:
    line = b'{"responses_create_params": {"input": "hi"}, "initial_count": 0, "expected_count": 1}'
    (task,) = expand([line], run="r", environment="example_session_state_mgmt")
    params = msgspec.json.decode(task.row)["responses_create_params"]
    assert {tool["name"] for tool in params["tools"]} == {"increment_counter", "get_counter_value"}


def test_row_with_an_empty_list_of_tools_keeps_it() -> None:
    line = b'{"responses_create_params": {"input": "", "tools": []}, "initial_count": 0, "expected_count": 1}'
    (task,) = expand([line], run="r", environment="example_session_state_mgmt")
    assert msgspec.json.decode(task.row)["responses_create_params"]["tools"] == []


# -- sampling ------------------------------------------------------------------------------------------


def test_a_run_samples_as_it_says_and_not_as_a_rows_extra_body_says(line: Line) -> None:
    extra = {"temperature": 2.0, "max_tokens": 9000, "seed": 1}
    mine = line(responses_create_params={"input": "hi", "metadata": {"extra_body": json.dumps(extra)}})
    sampling = {"temperature": 0.2, "max_output_tokens": 9, "top_k": 5, "system_prompt": "Be brief."}
    (task,) = expand([mine], run="r", environment="counting", sampling=sampling)
    found = params(task)
    assert (found["temperature"], found["max_output_tokens"], found["instructions"]) == (0.2, 9, "Be brief.")
    assert json.loads(found["metadata"]["extra_body"]) == {"seed": 1, "top_k": 5}


def test_a_row_may_have_its_extra_body_as_an_object(line: Line) -> None:
    mine = line(responses_create_params={"input": "hi", "extra_body": {"top_k": 3}})
    (task,) = expand([mine], run="r", environment="counting")
    assert params(task) == {"input": "hi", "metadata": {"extra_body": '{"top_k":3}'}}


@pytest.mark.parametrize(
    ("mine", "what"),
    [
        ({"extra_body": {"n": 4}}, "'n' cannot be set in extra_body"),
        ({"metadata": {"extra_body": '{"model": "other"}'}}, "'model' cannot be set in extra_body"),
        ({"metadata": {"extra_body": '{"base_url": "http://evil"}'}}, "an address or a credential"),
        ({"extra_body": 3}, "expected a JSON object"),
        ({"metadata": {"chat_template_kwargs": "3"}}, "expected the text of a JSON object"),
    ],
)
def test_what_a_rows_extra_body_may_not_say(mine: dict[str, Any], what: str, line: Line) -> None:
    with pytest.raises(TaskError, match=r"row 1: 'responses_create_params") as caught:
        list(expand([line(responses_create_params={"input": "hi", **mine})], run="r", environment="counting"))
    assert what in caught.value.message
