"""A function's tests as rows hold them, made of HumanEval+'s and MBPP+'s records."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gym_resources.code.published_tests import PublishedTest, arguments_in, read_test
from gym_resources.code.returned_values import Rule

SETS = "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum intersection_array"
MBPP_RULES: dict[str, Rule] = {
    **dict.fromkeys((*SETS.split(), "find_dissimilar", "Diff"), "set"),
    **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), "not none"),
    "are_equivalent": "any",
    "sum_div": "equal or zero",
    "surface_Area": "pyramid",
    "digit_distance_nums": "digits",
}


class FunctionTests(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a function must return. Values are tagged as by `gym_resources.code.called_inside.tagged`.

    Attributes:
        inputs: the arguments of each call.
        outputs: the expected values; without them, what ``reference``, a trusted program, returns.
        given: goes before a program that does not define the function.
        base: how many of the tests, from the first, are the original benchmark's; None if that is not known.
    """

    task_id: str
    function: str
    inputs: list[list[Any]]
    outputs: list[Any] | None = None
    reference: str = ""
    given: str = ""
    rule: Rule = "equal"
    tolerance: float = 0.0
    base: int | None = None

    def __post_init__(self) -> None:
        if not self.inputs or (self.outputs is None and not self.reference):
            raise ValueError("there are no inputs, or neither outputs nor a reference")
        if self.outputs is not None and len(self.outputs) != len(self.inputs):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.outputs)} outputs")
        if self.base is not None and not 0 < self.base <= len(self.inputs):
            raise ValueError(f"{self.base} of {len(self.inputs)} tests are base tests")


def from_humaneval(record: dict[str, Any], original: str = "") -> tuple[str, FunctionTests]:
    """The problem's text, and its tests: first those of HumanEval.

    Args:
        original: HumanEval's own test, a program that asserts.

    Raises:
        ValueError: the published test cannot be read.
        KeyError: the record lacks a field.
    """
    test, function, prompt = read_test(record["test"]), record["entry_point"], record["prompt"]
    inputs, outputs, base = _base_first(test, arguments_in([original], test.function) if original else None)
    return prompt.strip(), FunctionTests(
        task_id=record["task_id"],
        function=function,
        inputs=inputs,
        outputs=outputs,
        reference="" if outputs is not None else prompt + record["canonical_solution"],
        given=prompt,
        rule="root" if function == "find_zero" else "equal",
        tolerance=test.tolerance,
        base=base,
    )


def from_mbpp(record: dict[str, Any]) -> tuple[str, FunctionTests]:
    """The problem's text with its first assertion, and its tests: first those of ``test_list``.

    Raises:
        ValueError, KeyError: as `from_humaneval`.
    """
    test, assertions = read_test(record["test"]), record["test_list"]
    inputs, outputs, base = _base_first(test, arguments_in(assertions, test.function))
    return f'"""\n{record["prompt"].strip()}\n{assertions[0].strip()}\n"""', FunctionTests(
        task_id=f"Mbpp/{record['task_id']}",
        function=test.function,
        inputs=inputs,
        outputs=outputs,
        reference="" if outputs is not None else record["code"],
        rule=MBPP_RULES.get(test.function, "equal"),
        tolerance=test.tolerance,
        base=base,
    )


def _base_first(
    test: PublishedTest, base_inputs: list[list[Any]] | None
) -> tuple[list[list[Any]], list[Any] | None, int | None]:
    """The tests with those of the base inputs first, and their number; None if one of them is not there."""
    wanted = {json.dumps(one) for one in base_inputs or ()}
    is_base = [json.dumps(one) in wanted for one in test.inputs]
    order = sorted(range(len(is_base)), key=lambda place: not is_base[place])
    inputs = [test.inputs[place] for place in order]
    outputs = None if test.results is None else [test.results[place] for place in order]
    known = wanted and wanted <= {json.dumps(one) for one in inputs}
    return inputs, outputs, sum(is_base) if known else None
