from __future__ import annotations

import pytest
from gym_resources.extract.fenced import fenced, last_fenced


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("no fences", []),
        ("```sql\nSELECT 1\n```", [("sql", "SELECT 1\n")]),
        ("```SQL\r\nSELECT 1\n```", [("sql", "SELECT 1\n")]),
        ("```\nSELECT 1\n```", [("", "SELECT 1\n")]),
        ("```sql SELECT 1```", [("sql", "SELECT 1")]),
        ("```SELECT 1```", [("", "SELECT 1")]),
        ("```python\na\n``` and ```sql\nb```", [("python", "a\n"), ("sql", "b")]),
        ("```sql\nSELECT 1", []),
        ("```sql\na\n```\n```sql\nb", [("sql", "a\n")]),
        ("``````", [("", "")]),
    ],
)
def test_blocks_have_a_language_and_code(text: str, blocks: list[tuple[str, str]]) -> None:
    assert fenced(text, ("sql",)) == blocks


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```sql\na```, better: ```sql\nb```", "b"),
        ("```sql\na``` run by ```python\nb```", "a"),
        ("```text\na``` or ```\nb```", "b"),
        ("a", None),
    ],
)
def test_the_last_block_of_the_language_counts(text: str, code: str | None) -> None:
    assert last_fenced(text, "sql") == code
