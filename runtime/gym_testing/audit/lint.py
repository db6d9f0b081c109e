"""What in a verifier's source often pays for wrong replies, such as rules that fall through.

It reads the syntax tree only, so what it says is a place to look at, and no finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

TEXTS = ("text", "all_text", "joined_text", "lines_text")
"""Properties of a reply that hold all that it says."""
BROAD = ("Exception", "BaseException")


class Place(msgspec.Struct, frozen=True, order=True):
    """A line of a module, and what may be wrong there."""

    line: int
    problem: str


def places(path: Path) -> list[Place]:
    """The places of a module to look at, in order; none of one that cannot be parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    whole = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_reply(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {Place(*one) for node in ast.walk(tree) for one in _of(node, frozenset(whole))}
    return sorted(found)


def _of(node: ast.AST, whole: frozenset[str]) -> Iterator[tuple[int, str]]:
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            last = body[-1]
            if _passes(last) and any(isinstance(one, ast.If | ast.Match | ast.For) for one in body[:-1]):
                yield last.lineno, "what no rule before it knows passes: let it fail, or raise"
        case ast.ExceptHandler(type=kind, body=body) if any(_passes(one) for one in body):
            what = "any error" if kind is None or _name(kind) in BROAD else "a caught error"
            yield node.lineno, f"{what} passes: a failure is no reward"
        case ast.BoolOp(op=ast.Or(), values=[_, *others]) if any(_is_reply(one, whole) for one in others):
            yield node.lineno, "without an answer the whole reply is taken for it: give nothing"
        case ast.Compare(ops=[ast.In()], comparators=[right]) if _is_reply(right, whole):
            yield (
                node.lineno,
                "a reply that only contains it passes, such as many guesses: compare the answer",
            )
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(generators=[one, *_])]):
            if _zips(one.iter):
                yield node.lineno, "zip ends with the shorter one, and all() of nothing is true: strict=True"
        case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
            yield node.lineno, f"{name}() runs what a model wrote in this process: use gym_sandbox"
        case _:
            pass


def _passes(node: ast.stmt) -> bool:
    """Whether a statement returns full reward: ``return True``, ``return 1.0``, ``return Verdict(1.0)``."""
    match node:
        case ast.Return(value=ast.Constant(value=value)):
            return value is True or value == 1.0
        case ast.Return(value=ast.Call(func=ast.Name(id="Verdict"), args=[ast.Constant(value=value), *_])):
            return value == 1.0
        case _:
            return False


def _is_reply(node: ast.expr, whole: frozenset[str]) -> bool:
    """Whether an expression is all that a reply says, perhaps in small letters; or a name for that."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="lower" | "casefold" | "strip" | "upper")):
            return _is_reply(value, whole)
        case ast.Attribute(value=ast.Name(), attr=name):
            return name in TEXTS
        case ast.Name(id=name):
            return name in whole
        case _:
            return False


def _zips(node: ast.expr) -> bool:
    """Whether it is a ``zip`` that ends with the shorter one."""
    match node:
        case ast.Call(func=ast.Name(id="zip"), keywords=keywords):
            return not any(keyword.arg == "strict" for keyword in keywords)
        case _:
            return False


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def shown(found: Sequence[Place], file: str) -> list[str]:
    """Each place as ``file:line: problem``."""
    return [f"{file}:{one.line}: {one.problem}" for one in found]
