"""Edits in a reply, and the patch that they make."""

from __future__ import annotations

import time

from gym_resources.swe.edits import last_block, patch_of
from tables import table

FILES = {
    "shop/cart.py": "def total(prices):\n    return sum(prices) + 1\n\n\ndef count(prices):\n    return 0\n"
}


def edit(search: str, replace: str, path: str = "shop/cart.py") -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n```\n"


def reply(*edits: str) -> str:
    return f"<think>hm</think><solution>\n{''.join(edits)}</solution>"


FIRST = edit("    return sum(prices) + 1\n", "    return sum(prices)\n")


def test_edits_become_one_patch() -> None:
    patch = patch_of(reply(FIRST, edit("    return 0\n", "    return len(prices)\n")), FILES)
    assert patch is not None
    assert [line for line in patch.splitlines() if line[:1] in "+-"][2:] == [
        "-    return sum(prices) + 1",
        "+    return sum(prices)",
        "-    return 0",
        "+    return len(prices)",
    ]


@table(
    "wrong",
    [
        FIRST,
        "<solution>" + FIRST,
        reply(edit("return 0\n", "return 1\n")),  # not at the start of a line
        reply(edit("    return 2\n", "    return 1\n")),
        reply(edit("    return 0\n", "    return 0\n")),
        reply(edit("    return 0\n", "    return 1\n", path="shop/other.py")),
        reply(edit("    return 0\n", "    return 1\n", path="../shop/cart.py")),
        reply(FIRST, FIRST),
        reply(edit("", "import os\n")),
        reply("```python\n### shop/cart.py\n```\n"),
        "",
    ],
)
def test_what_does_not_fit_is_no_patch(wrong: str) -> None:
    assert patch_of(wrong, FILES) is None


def test_relaxed_formatting_needs_no_tags() -> None:
    assert patch_of(FIRST, FILES, relaxed=True)
    assert patch_of("<think>" + FIRST + "</think>nothing", FILES, relaxed=True) is None


def test_the_last_block_of_python_is_the_script() -> None:
    assert last_block("```python\na\n```\ntext\n```python\nb\n```\n```text\nc\n```") == "b\n"
    assert last_block("```python\nunclosed") is None


@table(
    "unit", ["```python\n", "### a\n<<<<<<< SEARCH\n", "=======\n", "<solution>", FIRST, "### shop/cart.py\n"]
)
def test_every_reply_is_read_in_linear_time(unit: str) -> None:
    start_s = time.thread_time()
    patch_of(f"<solution>{unit * (1_000_000 // len(unit))}</solution>", FILES)
    assert time.thread_time() - start_s < 5
