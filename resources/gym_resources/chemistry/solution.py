"""A row's solution: ``function!:!information!:!problem type``, checked without RDKit."""

from __future__ import annotations

import ast
from typing import TypeVar

import msgspec

BETWEEN = "!:!"
SHORTEST = 4  # characters; a shorter part beside a molecule is a counter-ion
CONSTRAINTS = ("scaffold", "groups", "tanimoto")
FUNCTIONS = (
    "str_eval",
    "should_not_answer_eval",
    "rxn_eval",
    "product_eval",
    "caption_eval",
    "formula_eval",
    "functional_group_eval",
    "valid_mol_eval",
    "should_answer_eval",
    "sol_eval",
    "rxn_forward",
)
T = TypeVar("T")

FormulaAndGroups = tuple[str, list[str]]
Constraint = tuple[str, str | list[str], float, str]


class Solution(msgspec.Struct, frozen=True):
    """The function that judges an answer, its information, and the type of the problem."""

    function: str
    information: str
    problem_type: str = ""


def read(text: str) -> Solution:
    """A row's solution.

    Raises:
        ValueError: it is malformed, its function is unknown, or its information cannot be read.
    """
    function, *rest = text.split(BETWEEN, 2)
    if len(rest) < 2 or function not in FUNCTIONS:
        raise ValueError(
            f"'solution' is {text!r}; it must be function{BETWEEN}information{BETWEEN}type, "
            f"with a function of {', '.join(FUNCTIONS)}"
        )
    said = rest[0]
    if function in ("product_eval", "caption_eval") and not fragments(said):
        raise ValueError(f"the expected molecule {said!r} has no fragment of {SHORTEST} characters or more")
    if function == "functional_group_eval":
        information(said, FormulaAndGroups)
    if function == "sol_eval":
        kind, *_ = information(said, Constraint)
        if kind not in CONSTRAINTS:
            raise ValueError(f"there is no constraint '{kind}'; {', '.join(CONSTRAINTS)}")
    return Solution(function, said, rest[1])


def fragments(smiles: str) -> list[str]:
    """The parts of a SMILES between its dots that are long enough to be the molecule that is meant."""
    return [part for part in smiles.split(".") if len(part) >= SHORTEST]


def information(text: str, kind: type[T]) -> T:
    """A Python literal as a value of this type.

    Raises:
        ValueError: the text is not such a literal.
    """
    try:
        return msgspec.convert(ast.literal_eval(text), kind)
    except (
        ValueError,
        SyntaxError,
        TypeError,
        MemoryError,
        RecursionError,
        msgspec.ValidationError,
    ) as error:
        raise ValueError(f"the solution's information {text!r} cannot be read: {error}") from None
