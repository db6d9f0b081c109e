"""SQL compared by a judge: which query is taken from a reply, and what the judge's answers come to."""

from __future__ import annotations

from typing import Any

import pytest
from gym_resources.sql.replies import extracted
from gym_resources.sql.sample_data import compared
from gym_runtime.environment import catalogue
from gym_runtime.environment.roles import Scripted
from gym_runtime.errors import ModelError, ModelUnavailable, TaskError
from resources.judging import judged_by, quotations, row
from tables import table

pytestmark = pytest.mark.anyio

YES, NO = "[[A=B]]", "[[A!=B]]"
SCHEMA = "CREATE TABLE t (x);"
TASK = {"sql": "SELECT 1;", "sql_dialect": "sqlite", "sql_prompt": "One?", "sql_context": SCHEMA}


async def judged(answers: list[Scripted], reply: str = "```sql\nSELECT 2\n```", **fields: Any) -> Any:
    return await judged_by("text_to_sql", {"judge": answers}, reply, **{**TASK, **fields})


@table(
    ("answers", "fields", "reward"),
    [
        ([YES, YES], {}, 1.0),
        ([YES, NO], {}, 0.0),
        ([YES, NO], {"reward_if_swap_fails": 0.5}, 0.5),
        ([NO], {}, 0.0),
        (["?"], {}, 0.0),
        ([YES], {"check_twice_swap": False}, 1.0),
        ([f"Perhaps {NO}? No: {YES}", YES], {}, 1.0),
    ],
)
async def test_both_orders_must_agree(answers: list[Scripted], fields: dict[str, Any], reward: float) -> None:
    verdict, prompts = await judged(answers, **fields)
    assert verdict.reward == reward
    assert verdict.fields["judge_passed"] is (reward == 1.0)
    orders = [["SELECT 1;", "SELECT 2;"], ["SELECT 2;", "SELECT 1;"]]
    assert [quotations(prompt)[2:] for prompt in prompts] == orders[: len(answers)]
    assert quotations(prompts[0])[:2] == [SCHEMA, "One?"]


@table(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n``` or ```sql\nSELECT 2;\n```", "SELECT 2;"),
        ("```SQL\nSELECT 1\n``` and ```python\nprint()\n```", "SELECT 1;"),
        ("```\nWITH a AS (SELECT 1) SELECT * FROM a\n```", "WITH a AS (SELECT 1) SELECT * FROM a;"),
        ("```SELECT 3```", "SELECT 3;"),
        ("```postgres\nselect 4\n```", "select 4;"),
        ("```python\nprint()\n``` then SELECT 5; bye", "SELECT 5;"),
        ("Use select 1; or SELECT 2; as you like", "select 1; or SELECT 2;"),
        ("SELECT 1 without an end", "SELECT 1 without an end;"),
        ("So:\n  select a\nFROM t\n", "select a\nFROM t;"),
        ("The query: select b\nFROM t", "select b\nFROM t;"),
        ("I would select it", None),
        ("It works: with care", None),
        ("selection; of words", None),
        ("```sql\n\n```", None),
        ("; SELECT", None),
        ("", None),
    ],
)
def test_the_query_in_a_reply(text: str, query: str | None) -> None:
    assert extracted(text) == query


def test_hostile_replies_are_read_in_linear_time() -> None:
    for piece in ("```", "```sql\n", "SELECT ", ";", "```SELECT "):
        extracted(piece * 100_000)


async def test_a_reply_without_a_query_is_worth_nothing_and_nobody_is_asked() -> None:
    verdict, prompts = await judged([], "I do not know.")
    assert (verdict.reward, prompts) == (0.0, [])
    assert verdict.fields["failure_reason"] == "no_sql_extracted"


@pytest.mark.parametrize("dialect", ["pg", "Postgres", "postgresql"])
async def test_aliases_of_a_dialect_are_one(dialect: str) -> None:
    _, prompts = await judged([NO], sql_dialect=dialect)
    assert "The dialect is postgresql." in prompts[0]


@pytest.mark.parametrize("fields", [{"sql_dialect": "oracle"}, {"sql": " "}])
def test_rows_that_cannot_be_judged_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="'sql"):
        catalogue.environment("text_to_sql").resource.task(row(**{**TASK, **fields}))


async def test_a_judge_that_fails_is_no_verdict() -> None:
    with pytest.raises(ModelError) as caught:
        await judged([YES, ModelUnavailable("503")])
    assert caught.value.stage == "judge"


# -- executing before asking ------------------------------------------------------------------------------

BOATS = """CREATE TABLE boat (name TEXT, length_m REAL);
INSERT INTO boat VALUES ('Elsa', 9.5), ('Ida', 12), ('Ole', 12);"""
EMPTY = "CREATE TABLE boat (name TEXT, length_m REAL);"


@table(
    ("expected", "given", "execution"),
    [
        ("SELECT name FROM boat", "SELECT b.name AS n FROM boat b WHERE 1 ORDER BY name DESC;", "same"),
        ("SELECT name FROM boat", "SELECT length_m, name FROM boat", "undecided"),  # a judge may allow it
        ("SELECT COUNT(*) FROM boat", "SELECT 3", "undecided"),
        ("SELECT COUNT(*) FROM boat", "SELECT 0, 1, 2, 3, 4, 5, 6, 7, 8, 9", "undecided"),
        ("SELECT min(length_m) FROM boat", "SELECT 9.5", "undecided"),
        ("SELECT name FROM boat", "VALUES ('Elsa'), ('Ida'), ('Ole')", "undecided"),
        ("SELECT name FROM boat ORDER BY name", "SELECT name FROM boat ORDER BY name DESC", "different"),
        ("SELECT avg(length_m) FROM boat", "SELECT round(avg(length_m), 2) FROM boat", "same"),
        ("SELECT name FROM boat", "SELECT name FROM boat LIMIT 2", "different"),
        ("SELECT name FROM boat", "SELECT name FROM boat WHERE 0", "different"),
        ("SELECT name FROM boat", "SELECT nome FROM boat", "failed"),
        ("SELECT name FROM boat", "DROP TABLE boat", "failed"),
        ("SELECT name FROM boat", "ATTACH DATABASE '/tmp/x' AS x", "failed"),
        ("SELECT name FROM boat WHERE 0", "SELECT 1", "undecided"),
        ("SELECT name FROM ship", "SELECT name FROM boat", "undecided"),
        ("DELETE FROM boat", "DELETE FROM boat", "undecided"),
    ],
)
def test_queries_executed_on_a_schemas_own_data(expected: str, given: str, execution: str) -> None:
    assert compared(BOATS, expected, given) == execution


@pytest.mark.parametrize("name", ['"a ""b"" c"', "[order]", "`x;y`"])
def test_tables_may_have_any_name(name: str) -> None:
    schema = f"CREATE TABLE {name} (x INT);\nINSERT INTO {name} VALUES (1), (2), (3) -- all"
    assert compared(schema, f"SELECT x FROM {name}", f"SELECT x FROM {name}") == "same"


def test_a_schema_that_sqlite_does_not_understand_decides_nothing() -> None:
    assert compared("CREATE TABLE t (x SERIAL)) ENGINE=InnoDB;", "SELECT 1", "SELECT 2") == "undecided"


@pytest.mark.parametrize("query", ["SELECT *", "SELECT COUNT(*)", "SELECT SUM(length_m)"])
def test_tables_without_data_decide_nothing(query: str) -> None:
    assert compared(EMPTY, f"{query} FROM boat", "SELECT 1") == "undecided"


@pytest.mark.slow
@table(
    ("reply", "fields", "answers", "reward", "execution"),
    [
        ("SELECT name FROM boat;", {}, [], 1.0, "same"),
        ("SELECT 'Ida';", {}, [], 0.0, "different"),
        ("SELECT name;", {}, [], 0.0, "failed"),
        (
            "SELECT name FROM boat;",
            {"sql_context": EMPTY},
            [YES, YES],
            1.0,
            "undecided",
        ),
        ("SELECT name FROM boat;", {"sql_dialect": "mysql"}, [NO], 0.0, None),
        ("SELECT name FROM boat;", {"execute_first": False}, [NO], 0.0, None),
        ("I do not know.", {}, [], 0.0, None),
    ],
)
async def test_the_judge_is_asked_only_where_execution_decides_nothing(
    reply: str, fields: dict[str, Any], answers: list[Scripted], reward: float, execution: str | None
) -> None:
    given = {"sql": "SELECT name FROM boat;", "sql_context": BOATS, "execute_first": True, **fields}
    verdict, prompts = await judged(answers, reply, **given)
    assert (verdict.reward, len(prompts)) == (reward, len(answers))
    assert verdict.fields.get("execution") == execution
