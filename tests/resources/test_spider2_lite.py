from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import AssetMissing, TaskError
from resources.judging import nemo_gym_rows
from tables import table

pytestmark = pytest.mark.anyio

RESOURCE = catalogue.environment("spider2_lite").resource
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "?"},
    "db_id": "quay",
    "question": "Which owners are there?",
    "gold_sql": "SELECT owner_id, name FROM owner",
}
GOOD = "SELECT name, owner_id FROM owner"


async def judge(text: str, **fields: Any) -> Verdict:
    return await rejudge(RESOURCE, msgspec.json.encode({**ROW, **fields}), bytes(Reply.of(text).raw))


@table(
    ("text", "reward", "problem"),
    [
        (f"```sql\n{GOOD};\n```", 1.0, None),
        (f"```sql\nSELECT 1\n```\nor rather\n```sql\n{GOOD}\n```", 1.0, None),
        (f"```sql\n{GOOD}\n```\nthen\n```sql\nSELECT 1\n```", 0.0, "another result"),
        (f"```sql\n{GOOD}\n```\nthen\n```\nSELECT 1\n```", 1.0, None),
        (f"```\n{GOOD}\n```\nwhich gives\n```\n1 Ann\n```", 1.0, None),
        (f"```\n{GOOD}\n```", 1.0, None),
        (f"SELECT 1\n```\n{GOOD}\n```", 1.0, None),
        (f"\n{GOOD};\n", 1.0, None),
        (f"It is {GOOD}", 1.0, None),
        (f"It is {GOOD}; or so.", 1.0, None),
        (f"It is {GOOD}, I think", 0.0, "OperationalError: no such table: I"),
        (f"```sql\n{GOOD}", 1.0, None),
        ("There are none.", 0.0, "no query"),
        ("", 0.0, "no query"),
        (" \n", 0.0, "no query"),
        ("```sql\n```", 0.0, "no query"),
        ("```sql\n-- nothing\n```", 0.0, "it gives no result"),
        ("```sql\nSELECT owner FROM owner\n```", 0.0, "OperationalError: no such column: owner"),
        (f"```sql\n{GOOD} ORDER BY 1 DESC\n```", 1.0, None),  # order does not matter by default
    ],
)
async def test_the_result_of_the_query_counts(text: str, reward: float, problem: str | None) -> None:
    verdict = await judge(text)
    assert (verdict.reward, verdict.fields["problem"]) == (reward, problem)


async def test_the_row_says_what_counts() -> None:
    reverse = f"```sql\n{GOOD} ORDER BY 1 DESC\n```"
    for ignore_order, reward in ((True, 1.0), (None, 1.0), (False, 0.0)):
        assert (await judge(reverse, ignore_order=ignore_order)).reward == reward
    assert (await judge("```sql\nSELECT name FROM owner\n```", condition_cols=[1])).reward == 1.0
    one = "```sql\nSELECT count(*) FROM ship\n```"
    assert (await judge(one, gold_sql=None, gold_result=[[7]])).reward == 1.0
    assert (await judge(one, gold_sql=None, gold_result=[{"ships": 7.004}])).reward == 1.0
    assert (await judge(one, gold_sql=None, gold_result=[[8]])).reward == 0.0
    assert (await judge(f"```sql\n{GOOD}\n```", gold_result=[[8]])).reward == 1.0  # the query goes first


RESULTS: list[tuple[Any, Any, float]] = [
    ([[[8]], [[7]]], [], 1.0),
    ([[[8]], [[6]]], [], 0.0),
    ([[[8]], [{"ships": 7.004}]], None, 1.0),
    ([[[7, "x"]]], [], 0.0),
    ([[[7, "x"]]], [0], 1.0),
    ([[[7, "x"]]], [[0]], 1.0),
    ([[[8, 7]], [["x", 7]]], [[0], [1]], 1.0),
    ([[[8, 7]], [["x", 7]]], [[0]], 0.0),
    ([[[8, 7]], [["x", 7]]], [0], 0.0),
    ([[]], [], 0.0),
]


@table(("results", "columns", "reward"), RESULTS)
async def test_any_of_several_results_is_right(results: Any, columns: Any, reward: float) -> None:
    query = "```sql\nSELECT count(*) FROM ship\n```"
    verdict = await judge(query, gold_sql=None, gold_result=results, condition_cols=columns)
    assert verdict.reward == reward


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gold_sql": None}, "a row needs a 'gold_sql' or a 'gold_result'"),
        ({"gold_sql": "SELECT nowhere"}, "no expected result: OperationalError: no such column"),
        ({"gold_result": [[1], [1, 2]]}, "the rows of a result have different lengths"),
        ({"db_id": "../quay"}, "is not the name of a database"),
    ],
)
async def test_a_bad_row_is_refused_with_the_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        await judge(f"```sql\n{GOOD}\n```", **fields)


async def test_a_row_whose_database_is_missing_is_refused_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path))
    monkeypatch.delenv("GYM_SPIDER2_DATABASES", raising=False)
    said = r"IPL\.sqlite .* download it from https://\S+ and set GYM_SPIDER2_DATABASES to a folder"
    with pytest.raises(AssetMissing, match=said):
        await RESOURCE.open(msgspec.json.encode({**ROW, "db_id": "IPL"}))


async def test_all_texts_are_put_together() -> None:
    row = msgspec.json.encode(ROW)
    for items, reward in (([f"```sql\n{GOOD}", "\n```"], 1.0), ([f"```sql\n{GOOD}\n```", "Done."], 1.0)):
        assert (await rejudge(RESOURCE, row, Reply.of(*items).raw)).reward == reward


async def test_the_expected_query_itself_scores_full_on_rows_in_nemo_gyms_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_SPIDER2_DATABASES", str(tmp_path))
    for line in nemo_gym_rows("spider2_lite"):
        row = json.loads(line)
        prompt = row["responses_create_params"]["input"][-1]["content"]
        empty = re.search(r"<DATABASE_SCHEMA>(.*)</DATABASE_SCHEMA>", prompt, re.DOTALL)
        assert empty is not None
        with closing(sqlite3.connect(tmp_path / f"{row['db_id']}.sqlite")) as connection:
            connection.executescript(empty[1].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
        for sql, reward in ((row["gold_sql"], 1.0), ("SELECT 1", 0.0)):
            reply = bytes(Reply.of(f"```sql\n{sql}\n```").raw)
            assert (await rejudge(RESOURCE, line, reply)).reward == reward
