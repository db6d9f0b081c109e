"""The rows of ``litmus_agent``: how their answers are found, read and compared."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Annotated, Any, Literal, get_args

import msgspec
from gym_runtime import Task, UsageError, run_isolated
from msgspec import Meta

from gym_resources.chemistry.same_molecule import same_molecule
from gym_resources.extract.patterns import bounded, last_match
from gym_resources.extract.plain_values import number, number_alone, truth
from gym_resources.extract.wrapped import FORMATS, WRAPPED
from gym_resources.packs import stateful_python

Kind = Literal["float", "bool", "string", "smiles"]
Rule = Literal["isclose", "exact", "abs_window", "rel_window", "bool_eq", "string_eq", "smiles_eq"]
RULES: dict[Kind, tuple[Rule, ...]] = {
    "float": ("isclose", "exact", "abs_window", "rel_window"),
    "bool": ("bool_eq",),
    "string": ("string_eq",),
    "smiles": ("smiles_eq", "string_eq"),
}
"""The rules by which an answer of a kind may be compared, the default first."""
NEEDED = {"abs_window": "abs_tol", "rel_window": "rel_tol"}
OLDER: dict[str, Kind] = {
    "float": "float",
    "count": "float",
    "fragment": "float",
    "bool": "bool",
    "presence": "bool",
}
RDKIT_LIMIT_S = 10.0
Tolerance = Annotated[float, Meta(ge=0)]


class Match(msgspec.Struct):
    rule: Rule
    rel_tol: Tolerance | None = None
    abs_tol: Tolerance | None = None


class LitmusTask(Task):
    """A question.

    Attributes:
        output_regex: an expression whose first group is the answer, in any case; over ``answer_format``.
        strict: a number stands alone or before a unit; by NeMo Gym's rule "not 3" and "3i" are the number 3.
    """

    expected_answer: str | float | bool
    answer_type: Kind | None = None
    property_type: str = ""
    answer_format: str = ""
    use_box_format: bool = False
    output_regex: str = ""
    match: Match | None = None
    float_rel_tol: Tolerance = 1e-6
    float_abs_tol: Tolerance = 1e-6
    strict: bool = False

    def __post_init__(self) -> None:
        if self.answer_type is None and self.property_type not in OLDER:
            known = f"an answer_type ({', '.join(get_args(Kind))}) or a property_type ({', '.join(OLDER)})"
            raise ValueError(f"the row needs {known}")
        if self.answer_format and self.answer_format not in FORMATS and not self.output_regex:
            raise ValueError(
                f"answer_format '{self.answer_format}' is unknown here; there are {', '.join(FORMATS)}. "
                "Give the row an 'output_regex', whose first group is the answer"
            )
        if self.rule not in RULES[self.kind]:
            raise ValueError(f"match.rule '{self.rule}' does not compare answers of type '{self.kind}'")
        if (needed := NEEDED.get(self.rule)) and getattr(self.match, needed) is None:
            raise ValueError(f"match.rule '{self.rule}' needs '{needed}'")
        if self.read(self.expected) is None:
            raise ValueError(f"expected_answer is no {self.kind}: {self.expected:.100}")

    @property
    def kind(self) -> Kind:
        return self.answer_type or OLDER[self.property_type]

    @property
    def rule(self) -> Rule:
        return self.match.rule if self.match else RULES[self.kind][0]

    @property
    def expected(self) -> str:
        return str(self.expected_answer).strip()

    def read(self, text: str) -> float | str | None:
        """The text as a value of the row's kind; None if it is not one."""
        if self.kind == "float":
            return number_alone(text) if self.strict else number(text)
        return truth(text) if self.kind == "bool" else text or None

    async def right(self, answer: str) -> bool:
        """Whether an answer is the expected one.

        Raises:
            ResourceError: RDKit broke on a molecule.
        """
        if self.rule == "smiles_eq":
            return await _same_molecule(answer, self.expected)
        given, wanted = self.read(answer), self.read(self.expected)
        if isinstance(given, str) and isinstance(wanted, str):
            return _plain(given) == _plain(wanted)
        if isinstance(given, float) and isinstance(wanted, float):
            return self._close(given, wanted)
        return False

    def _close(self, given: float, wanted: float) -> bool:
        said = self.match or Match("isclose")
        if self.rule == "exact":
            return round(given) == round(wanted)
        if self.rule == "abs_window":
            return abs(given - wanted) <= (said.abs_tol or 0.0)
        if self.rule == "rel_window":
            return abs(given - wanted) <= (said.rel_tol or 0.0) * abs(wanted)
        relative = self.float_rel_tol if said.rel_tol is None else said.rel_tol
        absolute = self.float_abs_tol if said.abs_tol is None else said.abs_tol
        return (
            given == wanted
            if self.rule == "bool_eq"
            else math.isclose(given, wanted, rel_tol=relative, abs_tol=absolute)
        )


async def extracted(task: LitmusTask, text: str) -> str | None:
    """The answer in a text; None without one.

    Raises:
        TaskError: the row's expression backtracks.
    """
    if expression := task.output_regex:
        found = await bounded(matched, text, expression, expressions=(expression,))
    else:
        name: Any = task.answer_format or ("fmt_07" if task.use_box_format else "fmt_00")
        found = WRAPPED[name](text)
    return found.strip() or None if found else None


def matched(text: str, expression: str) -> str | None:
    return last_match(expression, text)


async def _same_molecule(answer: str, expected: str) -> bool:
    """Reading a molecule may take long, so a process does it that can be killed; then it is no molecule."""
    try:
        return await run_isolated(same_molecule, answer, expected, timeout_s=RDKIT_LIMIT_S)
    except TimeoutError:
        return False


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def require_rdkit() -> None:
    """Checks that RDKit is there, without importing it.

    Raises:
        UsageError: it is not installed.
    """
    if find_spec("rdkit") is None:
        raise UsageError("answers of type 'smiles' need RDKit: pip install \"gym-runtime[ether0]\"")


class PythonWithRdkit(stateful_python.Pack):
    packages = (*stateful_python.PACKAGES, "rdkit")
