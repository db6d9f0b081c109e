"""Questions to a database, answered in SQL that is executed on SQLite; the result decides.

The query is the last ```` ```sql ```` block of the last message, else the last block of any kind, else all of
the message. The reward is 1 if each column of the expected result (of those in ``condition_cols``, if any) is
a column of the query's result, in the same order of rows unless ``ignore_order``; numbers may differ by 0.01.
What is expected is the result of ``gold_sql``, or ``gold_result`` itself: its rows, or a list of results any
of which is right, where ``condition_cols`` may be a list for each. No query, no result, an error, more than
30 seconds or a million values: 0, and ``problem`` says why.

Databases are looked for in the directory that the environment variable ``GYM_SPIDER2_DATABASES`` names
(``IPL.sqlite`` and so on; download ``local_sqlite.zip`` from github.com/xlang-ai/Spider2); those of our own
rows are shipped as SQL text. A query can only read: writing, attaching files and settings are refused.

Rows and rewards as of NeMo Gym's environment of this name, save that an expected query that fails is the
row's failure, not the model's, and that numbers are ordered as numbers.
Source: Spider 2.0 (Lei et al. 2024, arXiv:2411.07763); the rows are our own.
"""

from __future__ import annotations

from typing import Any, cast

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.errors import TaskError

from gym_resources.extract.fenced import last_fenced
from gym_resources.sql import database
from gym_resources.sql.equivalence import holds
from gym_resources.sql.query import QueryFailed, Table, execute, table

DIRECTORY = "GYM_SPIDER2_DATABASES"
LIMIT_S = 30.0


class SqlTask(Task):
    db_id: str
    gold_sql: str | None = None
    gold_result: list[list[Any] | dict[str, Any]] | None = None
    ignore_order: bool | None = None
    condition_cols: list[int | list[int]] | None = None

    def __post_init__(self) -> None:
        if not self.gold_sql and self.gold_result is None:
            raise ValueError("a row needs a 'gold_sql' or a 'gold_result'")

    def wanted(self) -> list[Table]:
        """The expected results, of which one is enough.

        Raises:
            TaskError: there is none.
        """
        try:
            if self.gold_result is not None:
                return [table(rows) for rows in results(self.gold_result)]
            return [execute(database.find(self.db_id, DIRECTORY), self.gold_sql or "", LIMIT_S)]
        except (QueryFailed, ValueError) as error:
            raise TaskError(f"no expected result: {error}") from error

    def columns(self, index: int) -> list[int]:
        """Which columns of an expected result count; none stands for all."""
        given = self.condition_cols or []
        nested = [columns for columns in given if isinstance(columns, list)]
        if nested:
            return nested[index] if index < len(nested) else []
        return cast("list[int]", given)


def results(given: list[Any]) -> list[Any]:
    """The results that a ``gold_result`` holds: its elements if they are lists of rows, else itself."""
    several = given and all(isinstance(rows, list) and all(map(is_row, cast("Any", rows))) for rows in given)
    return given if several else [given]


def is_row(value: object) -> bool:
    return isinstance(value, list | dict)


async def verify(task: SqlTask, reply: Reply) -> Verdict:
    sql = last_fenced(reply.text, "sql", "sqlite")
    if sql is None:
        sql = reply.text.strip() or None
    problem = "no query" if sql is None else wrong(task, sql)
    return Verdict(float(problem is None), fields={"extracted_sql": sql, "problem": problem})


def wrong(task: SqlTask, sql: str) -> str | None:
    """What is wrong with a query; None if nothing.

    Raises:
        TaskError: the row's expected result is none.
    """
    wanted = task.wanted()
    try:
        given = execute(database.find(task.db_id, DIRECTORY), sql, LIMIT_S)
    except QueryFailed as error:
        return str(error)
    try:
        same = any(
            holds(result, given, columns=task.columns(index), ignore_order=bool(task.ignore_order))
            for index, result in enumerate(wanted)
        )
    except IndexError:
        raise TaskError(f"the expected result has no columns {task.condition_cols}") from None
    return None if same else "another result"


environment = Environment(
    resource=verify,
    description="Questions to SQLite databases, answered by a query whose result is compared.",
    domain="coding",
    heavy=True,
    verify_timeout_s=2 * LIMIT_S + 10,
    folders=(DIRECTORY,),
    data_license="MIT",
)
