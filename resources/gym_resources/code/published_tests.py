"""Inputs and expected values, read from the test programs that HumanEval+ and MBPP+ publish.

Nothing of them is executed. Such a program assigns lists of literals to ``inputs`` and ``results``, then
asserts for each pair; where the expected values are long it calls a reference function instead, and has no
``results``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from gym_resources.code.called_inside import tagged

DIGITS_AT_MOST = 1_000_000
FACTOR_AT_MOST = 1_000_000
EXPONENT_AT_MOST = 20
NAMES = {"inf": float("inf"), "nan": float("nan")}
RESULTS = ("results", "exp_out")


class PublishedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test program's data; inputs and results are tagged as by `called_inside.tagged`.

    Attributes:
        function: that is called with each input; of HumanEval+ ``candidate``.
        results: None where the test compares with a reference function.
        tolerance: of floats, absolute.
    """

    function: str
    inputs: list[list[Any]]
    results: list[Any] | None
    tolerance: float


def read_test(program: str) -> PublishedTest:
    """The data of a published test program.

    Raises:
        ValueError: it is not of the published form, or has values that are no literals.
    """
    with _long_numbers():
        statements = list(_statements(_parsed(program)))
        lists = {
            target.id: statement.value
            for statement in statements
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        if "inputs" not in lists:
            raise ValueError("the test has no list of inputs")
        inputs = [list(one) for one in read_literal(lists["inputs"])]
        results = next((read_literal(lists[name]) for name in RESULTS if name in lists), None)
    if results is not None and len(results) != len(inputs):
        raise ValueError(f"{len(inputs)} inputs and {len(results)} results")
    return PublishedTest(
        function=_called(statements),
        inputs=[[tagged(argument) for argument in one] for one in inputs],
        results=None if results is None else [tagged(one) for one in results],
        tolerance=_tolerance(statements),
    )


def arguments_in(assertions: Sequence[str], function: str) -> list[list[Any]] | None:
    """The tagged arguments of a function's calls in assertions; None if one has no call, or no literals."""
    found: list[list[Any]] = []
    for assertion in assertions:
        try:
            calls = [node for node in ast.walk(_parsed(assertion)) if isinstance(node, ast.Call)]
            calls = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == function]
            found += [[tagged(read_literal(argument)) for argument in call.args] for call in calls]
        except ValueError:
            return None
        if not calls:
            return None
    return found


def read_literal(node: ast.expr) -> Any:
    """The value of a literal; ``inf``, ``nan``, ``set()`` and ``float("…")`` are such, too, and so are sums,
    products and powers of small integers, and texts put together.

    Raises:
        ValueError: it is something else.
    """
    match node:
        case ast.Constant(value=None | bool() | int() | float() | complex() | str() as value):
            return value
        case ast.List(elts=elements):
            return [read_literal(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(read_literal(element) for element in elements)
        case ast.Set(elts=elements):
            return {read_literal(element) for element in elements}
        case ast.Dict(keys=keys, values=values):
            named = zip(keys, values, strict=True)
            return {read_literal(key): read_literal(value) for key, value in named if key is not None}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = read_literal(operand)
            if isinstance(number, int | float | complex):
                return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() | ast.Pow() as sign, right=right):
            return _reckoned(read_literal(left), sign, read_literal(right), node.lineno)
        case ast.Name(id=name) if name in NAMES:
            return NAMES[name]
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return set[Any]()
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as text)], keywords=[]):
            return float(text)
        case _:
            pass
    raise ValueError(f"line {node.lineno} has a {type(node).__name__}, which is no literal")


def _reckoned(left: object, sign: ast.operator, right: object, line: int) -> str | int:
    if isinstance(left, str) and isinstance(right, str) and isinstance(sign, ast.Add):
        return left + right
    if isinstance(left, int) and isinstance(right, int) and max(abs(left), abs(right)) <= FACTOR_AT_MOST:
        if isinstance(sign, ast.Add):
            return left + right
        if isinstance(sign, ast.Mult):
            return left * right
        if 0 <= right <= EXPONENT_AT_MOST:
            return int(left**right)
    raise ValueError(f"line {line} has a BinOp, which is no literal")


def _statements(module: ast.Module) -> Generator[ast.stmt]:
    """Those of the module and of its function ``check``; the names in helpers mean other things."""
    for statement in module.body:
        if not isinstance(statement, ast.FunctionDef):
            yield statement
        elif statement.name == "check":
            yield from statement.body


def _called(statements: Sequence[ast.stmt]) -> str:
    """The function under test: ``NAME(*inp)``. The reference and helpers with ``_`` may be called so, too."""
    names = [
        node.func.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and not node.func.id.startswith(("_", "ref_func"))
        and any(isinstance(argument, ast.Starred) for argument in node.args)
    ]
    if len(set(names)) != 1:
        raise ValueError(f"the test calls {sorted(set(names))} with its inputs, not one function")
    return names[0]


def _tolerance(statements: Sequence[ast.stmt]) -> float:
    for node in (node for statement in statements for node in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Name(id="assertion"), args=[_, _, *_, bound]):
                return float(read_literal(bound))
            case ast.Compare(left=ast.Call(), ops=[ast.LtE()], comparators=[ast.Constant() as bound]):
                return float(read_literal(bound))
            case _:
                pass
    raise ValueError("the test has no assertion with a tolerance")


def _parsed(program: str) -> ast.Module:
    try:
        return ast.parse(program)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the test is no Python program: {error}") from error


@contextmanager
def _long_numbers() -> Generator[None]:
    """Python refuses to read numbers of more than 4,300 digits; published tests have some."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(DIGITS_AT_MOST)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)
