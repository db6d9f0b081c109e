"""Rules of the environments whose answer is a number or a formula."""

from __future__ import annotations

from resources.fidelity.rules import REFUSED, Item, Rule, Worth, made, printed, said

Case = tuple[Item | list[Item], Worth]


def solved(*solutions: object) -> list[Item]:
    """Calls of a tool with these solutions recorded as its outputs."""
    return [
        item
        for number, one in enumerate(solutions)
        for item in (made("pi", {}, f"c{number}"), printed({"solution": one}, f"c{number}"))
    ]


def calculation(says: str, truth: str, *cases: Case) -> Rule:
    task = {"ground_truth": truth}
    return Rule(environment="math_advanced_calculations", says=says, task=task, cases=cases)


CALCULATIONS = [
    calculation(
        "every output gives float(solution) if that works: numeric texts do, booleans are 1 and 0",
        "[2.5, 1]",
        (solved(" 2.5 ", True), 1.0),
        (solved(2.5, "1e0"), 1.0),
        (solved("two and a half", [2.5], 1), 0.0),
        (solved({"value": 2.5}, 1), 0.0),
    ),
    calculation(
        "each truth must be there exactly",
        "[0.3]",
        (solved(0.3), 1.0),
        (solved(0.1 + 0.2), 0.0),
        (solved(1, 2, 0.3), 1.0),
    ),
    calculation("the text of messages never counts", "[0.3]", ('{"solution": 0.3}', 0.0)),
    calculation("a truth that is no list of numbers is a bad row", "0.3 or so", ("", REFUSED)),
]


def code(says: str, expected: str, *cases: Case) -> Rule:
    return Rule(environment="math_with_code", says=says, task={"expected_result": expected}, cases=cases)


CODE = [
    code(
        "messages are read from the last to the first; the parts of a message are put together",
        "42",
        ([r"\boxed{42}", "That is all."], 1.0),
        ([r"\boxed{42}", r"\boxed{43}"], 0.0),
        ([r"\boxed{42}", r"\boxed{ }"], 1.0),
        ([said(r"\boxed{", "42}")], 1.0),
        ([r"\boxed{", "42}"], 0.0),
    ),
    code(
        "else the outputs of tools are, from the last to the first, in their stdout or as they are",
        "42",
        (
            [printed({"stdout": r"\boxed{41}"}), printed({"stdout": r"\boxed{42}", "stderr": r"\boxed{1}"})],
            1.0,
        ),
        ([printed(r"so \boxed{42}"), printed({"stderr": r"\boxed{1}"})], 1.0),
        ([printed(r"\boxed{42}"), r"\boxed{41}"], 0.0),
        ([printed(["stdout", "x"])], 0.0),
    ),
    code("printed text without a box never counts", "42", ([printed("42")], 0.0), ("42", 0.0)),
    code(
        "a box opens by \\boxed{ without a space; the last opening counts, and must be closed",
        "42",
        (r"\boxed {42}", 0.0),
        (r"\boxed{42} \boxed{", 0.0),
        (r"\boxed{42} \boxed {1}", 1.0),
    ),
    code(
        "one pair of \\(…\\), then of $, then \\text{…} is taken off",
        "2 apples",
        (r"\boxed{\( $\text{2   apples}$ \)}", 1.0),
        (r"\boxed{2 Apples}", 0.0),
        (r"\boxed{2apples}", 0.0),
        (r"\boxed{\text{$2 apples$}}", 0.0),
        (r"\boxed{\[2 apples\]}", 0.0),
        (r"\boxed{2\, apples}", 0.0),
    ),
    code("two pairs of $ are one too many", "x", (r"\boxed{$$x$$}", 0.0), (r"\boxed{$x$}", 1.0)),
    code(
        "numbers may differ by less than a millionth of the expected one, or of 1 if that is more",
        "2000000",
        (r"\boxed{2000001.9}", 1.0),
        (r"\boxed{2000002.1}", 0.0),
    ),
    code(
        "small numbers may differ by a millionth",
        "0",
        (r"\boxed{0.0000009}", 1.0),
        (r"\boxed{0.0000011}", 0.0),
    ),
]


def maths(says: str, expected: str, *cases: Case) -> Rule:
    return Rule(environment="math_with_judge", says=says, task={"expected_answer": expected}, cases=cases)


MATHS = [
    maths(
        "the expected answer loses outer \\(…\\), then $…$, before it is boxed",
        r"\($\frac{3}{4}$\)",
        (r"\boxed{0.75}", 1.0),
        (r"\boxed{0.76}", 0.0),
    ),
    maths(
        "all output texts of all messages are put together without a separator, message items only",
        "17",
        ([r"\boxed{1", "7}"], 1.0),
        ([r"\boxed{17}", made("f", {}), printed(r"\boxed{18}"), "Done."], 1.0),
    ),
    maths("an empty expected answer is a bad row", " $$ ", ("17", REFUSED)),
]
RULES = [*CALCULATIONS, *CODE, *MATHS]
