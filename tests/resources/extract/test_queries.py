from __future__ import annotations

import time

from gym_resources.extract.queries import last_query
from tables import table


@table(
    ("text", "query"),
    [
        ("", None),
        ("no query", None),
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SQL SELECT 1```", "SELECT 1"),
        ("```sql\nSELECT 1\n``` or ```sql\nSELECT 2;\n```", "SELECT 2;"),
        ("```sql\nSELECT 1\n``` or ```\nSELECT 2\n```", "SELECT 1"),
        ("```sql\nSELECT 1\n``` or ```sql\nSELECT 2", "SELECT 1"),
        ("```sqlite\nSELECT 1\n```", "ite\nSELECT 1"),  # it begins with that fence
        ("```sql\n \n```", None),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```\nselect 1\n``` gives ```\n1\n```", "select 1"),
        ("```\n\tDROP TABLE t\n```", "DROP TABLE t"),
        ("```python\nSELECT 1\n```", "SELECT 1\n```;"),
        ("It is SELECT 1", "SELECT 1;"),
        ("With this: select 1", "With this: select 1;"),
        ("select 1;; that is; all", "select 1;; that is;"),
        ("; it is\nDELETE FROM t", "DELETE FROM t;"),
        ("SELECTED", None),
    ],
)
def test_the_last_query_is_found(text: str, query: str | None) -> None:
    assert last_query(text) == query


def test_no_text_takes_long() -> None:
    texts = (
        "```sql" * 170_000,
        "```" * 330_000,
        "```sql" + " " * 1_000_000,
        "``` " * 250_000,
        "select\n" * 140_000,
        ";" * 1_000_000,
        "```sql x" + " " * 900_000 + "x```",
    )
    start_s = time.process_time()
    for text in texts:
        last_query(text)
    assert time.process_time() - start_s < len(texts) * 0.3  # 0.04 s on a usual machine
