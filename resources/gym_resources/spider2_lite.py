"""Questions to a database, answered in SQL that is executed on SQLite; the result decides.

The query is found in the texts of all messages, put together: the last ```` ```sql ```` block, else the last
block that begins with a verb of SQL, else from the first such verb to the last semicolon. The reward is 1 if
each column of the expected result (of those in ``condition_cols``, if any) is a column of the query's result,
in the same order of rows if ``ignore_order`` is false; see `sql.result_equality`. What is expected
is the result of ``gold_sql``, or else ``gold_result``: its rows, or a list of results any of which is right,
where ``condition_cols`` may be a list for each. A missing query or result, an error, more than 30 seconds of
the processor or a million values is worth 0, and ``problem`` names the reason.

The databases are an asset that `prepare` cannot download, since its host requires a manual consent: download
``local_sqlite.zip`` as described at github.com/xlang-ai/Spider2, unpack it, and let ``GYM_SPIDER2_DATABASES``
name the folder (of ``IPL.sqlite`` and so on); those of our own rows are shipped as SQL text. A query can only
read: writing, attaching files and settings are refused.

Rows and rewards are those of NeMo Gym's environment of this name, except that a failing expected query is the
row's failure, not the model's.
Source: Spider 2.0 (Lei et al. 2024, arXiv:2411.07763); the rows are our own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from gym_runtime import Asset, Environment, Reply, Task, TaskError, Verdict

from gym_resources.extract.queries import last_query
from gym_resources.sql import database
from gym_resources.sql.query import QueryFailed, Table, execute, table
from gym_resources.sql.result_equality import holds

LIMIT_S = 30.0
DATABASES = Asset(
    name="spider2-lite-databases",
    description="the SQLite databases of Spider 2.0-Lite",
    licence="MIT",
    setting="GYM_SPIDER2_DATABASES",
    page="https://github.com/xlang-ai/Spider2/tree/main/spider2-lite",
)


class SqlTask(Task):
    db_id: str
    gold_sql: str | None = None
    gold_result: list[list[Any] | dict[str, Any]] | None = None
    ignore_order: bool = True
    condition_cols: list[int | list[int]] | None = None

    def __post_init__(self) -> None:
        if not database.is_name(self.db_id):
            raise ValueError(f"'db_id' is '{self.db_id}', which is not the name of a database")
        if not self.gold_sql and self.gold_result is None:
            raise ValueError("a row needs a 'gold_sql' or a 'gold_result'")
        self.given()

    def check_assets(self) -> None:
        self.database()

    def database(self) -> Path:
        """The file of the row's database.

        Raises:
            AssetMissing: the file is missing.
        """
        return database.find(self.db_id, DATABASES, "spider2_lite")

    def given(self) -> list[Table]:
        """The expected results that stand in the row.

        Raises:
            ValueError: the rows of one have different columns.
        """
        return [table(rows) for rows in results(self.gold_result or [])]

    def wanted(self) -> list[Table]:
        """The expected results; matching one of them is enough.

        Raises:
            TaskError: the row has no expected result.
        """
        if not self.gold_sql:
            return self.given()
        try:
            return [execute(self.database(), self.gold_sql, LIMIT_S)]
        except QueryFailed as error:
            raise TaskError(f"no expected result: {error}") from error

    def columns(self, index: int) -> list[int]:
        """Which columns of an expected result count; an empty list means all."""
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
    sql = last_query(reply.joined_text)
    problem = "no query" if sql is None else wrong(task, sql)
    return Verdict(float(problem is None), fields={"extracted_sql": sql, "problem": problem})


def wrong(task: SqlTask, sql: str) -> str | None:
    """Why a query's result is wrong; None if it is right.

    Raises:
        TaskError: the row has no expected result.
    """
    wanted = task.wanted()
    try:
        given = execute(task.database(), sql, LIMIT_S)
    except QueryFailed as error:
        return str(error)
    same = any(
        holds(result, given, columns=task.columns(index), ignore_order=task.ignore_order)
        for index, result in enumerate(wanted)
    )
    return None if same else "another result"


environment = Environment(
    resource=verify,
    description="Questions to SQLite databases, answered by a query whose result is compared.",
    domain="coding",
    isolated=True,
    verify_timeout_s=2 * LIMIT_S + 10,
    data_license="MIT",
    assets=(DATABASES,),
)
