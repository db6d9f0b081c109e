"""Questions to databases, answered in SQL whose result is compared as a set of rows (BIRD).

The query is the last ```` ```sql ```` block of the reply, or as `extract.queries` finds it; a reply without
one stands for ``SELECT 1``, as in NeMo Gym. Both queries are executed on SQLite, read-only, within 30 seconds
of the processor. The reward is 1 if both results have the same rows, whatever their order and number: the
authors' rule. A value of a float and of a whole number that are equal are the same. An error, too much time
or too large a result is worth 0, and ``problem`` names the reason; a failing expected query is the row's
failure. The score is the mean, and the same by difficulty.

The databases are an asset that is downloaded by hand (bird-bench.github.io); ``GYM_BIRD_DATABASES`` names
their folder. Those of our own rows are shipped as SQL text.

Rows and rewards are those of NeMo Gym's environment of this name. Source: Li et al. 2023, arXiv:2305.03111
(CC-BY-SA-4.0); the rows are our own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gym_runtime import Asset, Benchmark, Environment, Reply, Task, TaskError, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.queries import last_query
from gym_resources.sql import database
from gym_resources.sql.query import QueryFailed, Table, execute

LIMIT_S = 30.0
DATABASES = Asset(
    name="bird-databases",
    description="the SQLite databases of BIRD's development set",
    licence="CC-BY-SA-4.0",
    setting="GYM_BIRD_DATABASES",
    page="https://bird-bench.github.io",
)


class BirdTask(Task):
    db_id: str
    gt_sql: str
    difficulty: str | None = None

    def __post_init__(self) -> None:
        if not database.is_name(self.db_id):
            raise ValueError(f"'db_id' is '{self.db_id}', which is not the name of a database")

    def check_assets(self) -> None:
        self.database()

    def database(self) -> Path:
        """The file of the row's database.

        Raises:
            AssetMissing: the file is missing.
        """
        return database.find(self.db_id, DATABASES, "bird_sql")


def row_set(table: Table) -> set[tuple[object, ...]]:
    """The rows of a result, without their order and number."""
    return set(zip(*table.columns, strict=True))


async def verify(task: BirdTask, reply: Reply) -> Verdict:
    sql = last_query(reply.joined_text) or "SELECT 1"
    try:
        wanted = execute(task.database(), task.gt_sql, LIMIT_S)
    except QueryFailed as error:
        raise TaskError(f"no expected result: {error}") from error
    try:
        problem = None if row_set(execute(task.database(), sql, LIMIT_S)) == row_set(wanted) else "other rows"
    except QueryFailed as error:
        problem = str(error)
    return Verdict(float(problem is None), fields={"extracted_sql": sql, "problem": problem})


environment = Environment(
    resource=verify,
    description="Questions to SQLite databases; the rows of the query's result decide (BIRD).",
    domain="coding",
    agent="single_turn",
    isolated=True,
    verify_timeout_s=2 * LIMIT_S + 10,
    repeats=16,
    benchmark=Benchmark(score=partial(by_category, field="difficulty"), fields=("difficulty",)),
    data_license="CC-BY-SA-4.0",
    assets=(DATABASES,),
    agent_refs=("birdbench",),
)
