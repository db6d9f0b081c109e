"""Replies that the library's scorers would execute: each wrote a file where it was judged."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gym_resources.extract.formulas import is_formula
from gym_resources.reasoning_gym import ReasoningTask, scorer, verify
from gym_runtime.environment.verdict import Reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="could not import 'reasoning_gym'"),
]

LISTS = ["binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"]
FORMULAS = [
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
]
AS_A_LIST = {"n_queens": 0.5, "spiral_matrix": 0.1, "string_insertion": 0.1}
"""What the library gives for a right answer that is written as a list."""


def entry(dataset: str) -> dict[str, Any]:
    import reasoning_gym  # it takes seconds

    return reasoning_gym.create_dataset(dataset, size=1, seed=5)[0]


async def reward(row: dict[str, Any], answer: str) -> float:
    fields = {name: row[name] for name in ("question", "answer", "metadata")}
    task = ReasoningTask(responses_create_params={}, **fields)  # pyright: ignore[reportCallIssue]
    return (await verify(task, Reply.of(f"<answer>{answer}</answer>"))).reward


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [*LISTS, *FORMULAS])
async def test_no_scorer_executes_its_answer(dataset: str, tmp_path: Path) -> None:
    mark, row = tmp_path / "mark", entry(dataset)
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    scorers = "__import__('sys').modules['gym_resources.reasoning_gym']"
    for attack in (
        touch,
        f"[{touch}]",
        f"[[{touch}]]",
        f"({touch}) or 24",
        f"(lambda: {touch})()",
        f"x.__class__.__base__.__subclasses__() + [{touch}]",
        f'S("{touch}")',
        f"sympify('{touch}')",
        f"[{scorers}.__dict__.update(_LISTS=set())]",
    ):
        assert await reward(row, attack) <= 0.05
        assert not mark.exists()


@pytest.mark.parametrize("dataset", LISTS)
async def test_right_answers_are_right_still_and_so_are_lists(dataset: str) -> None:
    row = entry(dataset)
    answer = row["answer"] or row["metadata"]["valid_answers"][0]
    assert await reward(row, answer) == 1.0
    if dataset in AS_A_LIST:
        lines = [list(line.split()) for line in answer.splitlines()]
        as_list: Any = {"n_queens": lines, "string_insertion": list(answer)}.get(
            dataset, [int(item) for item in answer.split() if item.isdigit()]
        )
        assert await reward(row, str(as_list)) == AS_A_LIST[dataset]


@pytest.mark.parametrize("dataset", FORMULAS)
async def test_the_librarys_own_answers_are_formulas(dataset: str) -> None:
    row = entry(dataset)
    assert is_formula(row["answer"])
    assert await reward(row, row["answer"]) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *("a.b", "x.__class__", "(1).real", "1..real", "f'{1}'", "'a'", '"a"', "[1]", "{1}", "x_1", "@x"),
        *(
            "exec(1)",
            "eval(x)",
            "open(3)",
            "lambda: 1",
            "1;2",
            "x:=1",
            "a=1",
            "x\\",
            "x#",
            "x!",
            "`x`",
            "x|y",
        ),
        *("１", "𝐞𝐱𝐞𝐜(1)"),
    ],
)
def test_what_is_no_formula(text: str) -> None:
    assert not is_formula(text)


@pytest.mark.parametrize(
    "text",
    ["", "1.5e-3*x**2 + sin(2*x)/3 + C", "(8 - 2)*4", ".5 + Abs(-3)", "x^2,\n3", "x**99 - exp(x**2)**(3/2)"],
)
def test_what_is_a_formula(text: str) -> None:
    assert is_formula(text)


LARGE = (
    "9**9**9**9",
    "(x+1)**99999",
    "2^9^9^9",
    "1 + 9**9\n**9**9",
    "9**99\n99\n99",
    "9**(1" + "*1" * 5000 + "*9**9)",
)


@pytest.mark.parametrize("text", LARGE, ids=lambda text: text[:20])
def test_powers_that_are_too_large_to_compute_are_no_formulas(text: str) -> None:
    assert not is_formula(text)


@pytest.mark.parametrize("dataset", FORMULAS)
async def test_a_power_that_takes_for_ever_is_a_wrong_answer_and_no_failure(dataset: str) -> None:
    assert await reward(entry(dataset), "9**9**9**9") <= 0.05


def test_only_the_scorers_module_reads_lists_so() -> None:
    scorer("spiral_matrix")
    assert eval("1 + 1") == 2
