"""Rules of the environments whose answer stands at a marked place: terminus_judge, reasoning_gym, ether0."""

from __future__ import annotations

import json
from typing import Any

from resources.fidelity.rules import REFUSED, Item, Rule, Worth, made, printed, said

STEP = {"analysis": "a", "plan": "p", "commands": [{"keystrokes": "make all\n", "duration": 2}]}
FIRST = {
    "state_analysis": "a",
    "explanation": "e",
    "commands": [{"keystrokes": "make all\n", "is_blocking": True, "timeout_sec": 2}],
    "is_task_complete": False,
}


def terminus(
    says: str,
    *cases: tuple[Item | list[Item], Worth],
    expected: dict[str, Any] = STEP,
    harness: str = "terminus_2",
) -> Rule:
    task = {"expected_answer": json.dumps(expected), "metadata": {"harness": harness}}
    return Rule(environment="terminus_judge", says=says, task=task, cases=cases)


def step(**changes: Any) -> str:
    return json.dumps({**STEP, **changes})


def typing(**changes: Any) -> list[dict[str, Any]]:
    return [{**STEP["commands"][0], **changes}]  # type: ignore[dict-item]


TERMINUS = [
    terminus(
        "the parts of all messages are joined by line breaks",
        ([said("", step())], 1.0),
        ([step()[:1], step()[1:]], 1.0),
        ([step()[:5], step()[5:]], 0.0),  # within a word
    ),
    terminus(
        "what stands before the last </think> is dropped",
        (f"{{</think>no</think>{step()}", 1.0),
        (f"<think>{step()}", 0.0),
        (f"{step()}</think>", 0.0),
    ),
    terminus(
        "the second form forbids further fields, at the top and in commands",
        (step(), 1.0),
        (step(note="x"), 0.0),
        (step(commands=typing(note="x")), 0.0),
    ),
    terminus(
        "the first form forbids further fields, at the top and in commands",
        (json.dumps(FIRST), 1.0),
        (json.dumps({**FIRST, "note": 1}), 0.0),
        (json.dumps({**FIRST, "commands": [{**FIRST["commands"][0], "note": 1}]}), 0.0),  # type: ignore[index]
        expected=FIRST,
        harness="terminus_1",
    ),
    terminus(
        "numbers are any JSON number but no booleans, and booleans no numbers",
        (step(commands=typing(duration=-1.5e300)), 1.0),
        (step(commands=typing(duration=False)), 0.0),
        (step(task_complete=True), 1.0),
        (step(task_complete=1), 0.0),
    ),
    terminus(
        "no commands on both sides is similarity 1",
        (step(commands=[]), {"similarity_score": 1.0}),
        expected={**STEP, "commands": []},
    ),
    terminus("no commands on one side is similarity 0", (step(commands=[]), {"similarity_score": 0.0})),
]


def puzzle(says: str, *cases: tuple[Item | list[Item], Worth], dataset: str = "letter_counting") -> Rule:
    task = {"question": "How many?", "answer": "12", "metadata": {"source_dataset": dataset}}
    return Rule(environment="reasoning_gym", says=says, task=task, cases=cases)


def found(answer: str) -> dict[str, Any]:
    return {"extracted_answer": answer}


REASONING_GYM = [
    puzzle(
        "all output texts of all messages are put together without a separator, message items only",
        (["<ans", "wer>12</answer>"], 1.0),
        (["<answer>12</answer>", made("f", {}), printed("<answer>1</answer>"), "Done."], 1.0),
    ),
    puzzle(
        "the last <answer> up to the next closing tag counts; an earlier unclosed one is taken in",
        ("<answer>1</answer> <answer> 12 </answer> <answer>", found("12")),
        ("<answer> is <answer>12</answer>", found("is <answer>12")),
        ("<answer>12</answer> </answer>", found("12")),
        ("<answer></answer>", found("")),
    ),
    puzzle(
        "else the first box up to its first }",
        (r"\boxed{12} or \boxed{1}", found("12")),
        (r"\boxed{\frac{1}{2}}", found(r"\frac{1")),
    ),
    puzzle("else all of the text", (" 12\n", 1.0), ("It is 12", found("It is 12"))),
    Rule(
        environment="reasoning_gym",
        says="an empty text is given to the scorer, too; some give a little for anything",
        task={
            "question": "Simplify.",
            "answer": "1/2",
            "metadata": {
                "source_dataset": "fraction_simplification",
                "simplified_numerator": 1,
                "simplified_denominator": 2,
            },
        },
        cases=[("", 0.01), ([], 0.01)],
    ),
]


def ether0(
    says: str,
    *cases: tuple[Item | list[Item], Worth],
    solution: str = "str_eval!:!CCN!:!kind",
    **metadata: Any,
) -> Rule:
    task = {"verifier_metadata": {"solution": solution, **metadata}}
    return Rule(environment="ether0", says=says, task=task, cases=cases)


def product(smiles: str) -> str:
    return f"product_eval!:!{smiles}!:!kind"


ETHER0 = [
    ether0(
        "the parts of all messages are joined by line breaks",
        ([said("<answer>", "CCN</answer>")], 1.0),
        (["<answer>CC", "N</answer>"], 0.0),
    ),
    ether0(
        "its own tags are answer tags",
        ("<|answer_start|>CCN<|answer_end|>", 1.0),
        ("<answer>CCN<|answer_end|>", 1.0),
    ),
    ether0(
        "the last tags with a character in them count; if another tag opens in there, there is no tag answer",
        ("<answer>C</answer><answer>CCN</answer><answer> </answer>", 1.0),
        (r"<answer>so <answer>C</answer> \boxed{CCN}", 1.0),
        ("<answer>so <answer>CCN</answer>", 0.0),
    ),
    ether0(
        "else the last box, of two levels of braces",
        (r"\boxed{C} \boxed{CCN}", 1.0),
        (r"\boxed{a{b{c}}}", found("a{b{c}}")),
        (r"\boxed{a{b{c{d}}}}", {"extracted_answer": None}),
    ),
    ether0(
        "else the last line Answer: with one letter alone to the line's end",
        ("Answer: A\nAnswer: C\nthat is all", found("C")),
        ("Answer: CCN", {"extracted_answer": None}),
    ),
    ether0(
        "with choices a single letter stands for that choice's molecule",
        ("Answer: B", 1.0),
        ("<answer>b</answer>", 1.0),
        ("<answer>A</answer>", 0.0),
        ("<answer>CCN</answer>", 1.0),
        choices=["C", "CCN"],
    ),
    ether0("a malformed solution is a bad row", ("C", REFUSED), solution="str_eval!:!CCN"),
    ether0("an unknown function is a bad row", ("C", REFUSED), solution="guess!:!CCN!:!kind"),
    ether0(
        "the largest fragment of more than three characters is the product",
        ("<answer>CCO.c1ccccc1O</answer>", 1.0),
        ("<answer>Oc1ccccc1.[Na+]</answer>", 1.0),
        ("<answer>CCCCCCO</answer>", 0.0),
        solution=product("c1ccccc1O.CCO"),
    ),
    ether0("a reference of three characters cannot be read", ("C", REFUSED), solution=product("CCO")),
]
RULES = [*TERMINUS, *REASONING_GYM, *ETHER0]
