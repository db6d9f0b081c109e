"""Verifiers with one step changed by a machine: no author chose the holes.

A mutant is a verifier of `sound_rules` or `unseen_rules` with one node of its source changed by an operator
of mutation testing: a comparison, a condition, a returned value, an index, a pattern, a call or a statement.
It is a *hole* if it still pays all right replies, and pays a random edit of a right reply (`edits`) that its
sound twin refuses: so each hole can be reached. Edits that a fair reader may take for right are left out
(`arguable`).

Source: operators of mutation testing as in Offutt et al., "An experimental determination of sufficient mutant
operators" (1996).
"""

from __future__ import annotations

import ast
import copy
import inspect
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from testing.audit.holes import unseen_rules
from testing.audit.holes.sound_rules import SOUND, Calls, Rule

assert unseen_rules.code_d  # it adds to SOUND
EDITS = 1_500
"""Random replies of each row, among which a witness is looked for."""

Change = Callable[[ast.AST], ast.AST | None]
OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq, ast.In, ast.LtE, ast.GtE), ast.NotEq: (ast.Eq, ast.NotIn, ast.Lt, ast.Gt),
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
OTHER_NAMES = {
    "all": "any", "any": "all", "fullmatch": "match", "match": "search", "rfind": "find", "find": "rfind",
    "startswith": "endswith", "min": "max", "sorted": "set", "len": "bool", "repr": "len", "rsplit": "split",
    "Counter": "set",
}  # fmt: skip
PATTERN_PARTS = ((r"^\^", ""), (r"\$$", ""), (r"\^<>", "*"), (r"\\d\+", r"\\d*"), (r"\(\?i\)", ""))


def changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """What one node is replaced by, by each operator that is for it; None deletes a statement."""
    match node:
        case ast.Compare(ops=[operator]):
            for other in OTHER_COMPARISONS[type(operator)]:
                yield _with(node, ops=[other()])
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
            for place in range(len(node.values)):
                left = node.values[:place] + node.values[place + 1 :]
                yield left[0] if len(left) == 1 else _with(node, values=left)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.If() | ast.IfExp():
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
            if isinstance(node, ast.If):
                yield None
        case ast.Return(value=ast.Constant(value=bool(value))):
            yield _with(node, value=ast.Constant(not value))
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as number):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1), ast.Constant(number * 1000))
        case ast.Constant(value=str(text)):
            for old, new in PATTERN_PARTS:
                changed = re.sub(old, new, text)
                if changed != text:
                    yield ast.Constant(changed)
        case ast.Call():
            yield from _calls(node)
        case ast.Subscript():
            yield node.value
        case ast.Continue() | ast.AugAssign() | ast.Expr():
            yield None
        case ast.ListComp(generators=[ast.comprehension(ifs=[_, *_])]):
            generator = copy.copy(node.generators[0])
            generator.ifs = []
            yield _with(node, generators=[generator])
        case _:
            pass


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    match node.func:
        case ast.Name(name) if name in OTHER_NAMES:
            yield _with(node, func=ast.Name(OTHER_NAMES[name], ast.Load()))
        case ast.Attribute(value=owner, attr=name):
            if name in OTHER_NAMES:
                yield _with(node, func=ast.Attribute(owner, OTHER_NAMES[name], ast.Load()))
            if not isinstance(owner, ast.Name) or owner.id not in ("re", "json", "math", "sqlite3"):
                yield owner
        case _:
            pass
    if len(node.args) == 1 and not node.keywords:
        yield node.args[0]
    for keyword in node.keywords:
        if keyword.arg == "strict":
            yield _with(node, keywords=[ast.keyword("strict", ast.Constant(False))])


def _with(node: Any, **fields: Any) -> Any:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class _Replaced(ast.NodeTransformer):
    """A tree with its ``place``-th node replaced."""

    def __init__(self, place: int, new: ast.AST | None) -> None:
        self._place, self._new = place, new
        self._seen = -1

    def visit(self, node: ast.AST) -> Any:
        self._seen += 1
        if self._seen != self._place:
            return self.generic_visit(node)
        if self._new is not None:
            return self._new
        return ast.Pass() if isinstance(node, ast.stmt) else node


class _Nodes(ast.NodeVisitor):
    """The nodes in the order in which `_Replaced` counts them."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []

    def visit(self, node: ast.AST) -> None:
        self.found.append(node)
        self.generic_visit(node)


@cache
def sources(twin: str) -> tuple[str, ...]:
    """The source of each mutant of a sound verifier, in a fixed order."""
    text = textwrap.dedent(inspect.getsource(SOUND[twin].rule))
    tree = ast.parse(text[text.index("def ") :])
    nodes = _Nodes()
    nodes.visit(tree)
    made = dict[str, None]()
    for place, node in enumerate(nodes.found):
        for new in changes(node):
            mutant = _Replaced(place, new).visit(copy.deepcopy(tree))
            made[ast.unparse(ast.fix_missing_locations(mutant))] = None
    made.pop(ast.unparse(tree), None)
    return tuple(made)


@cache
def rule(verifier: str) -> Rule:
    """A verifier by its name: ``string_a`` is sound, ``string_a 7`` its seventh mutant."""
    twin, _, number = verifier.partition(" ")
    if not number:
        return SOUND[twin].rule
    space = dict(SOUND[twin].rule.__globals__)
    exec(sources(twin)[int(number)], space)
    return space[twin]


def pays(verifier: str, text: str, calls: Calls, goal: Any) -> bool:
    """Whether a verifier pays; one that breaks does not."""
    try:
        return bool(rule(verifier)(text, calls, goal))
    except Exception:
        return False


# -- random replies ------------------------------------------------------------------------------------

WORDS = (
    "not", "or", "and", "x", "I do not know", "0", "1", "7", "-", ".", ",", " ", "\n", "{", "}", "[", "]",
    '"', "null", "true", "A", "B", "C", "D", "\\boxed{", "<answer>", "</answer>", "Answer: ", "```",
    "[[YES]]", "YES", "=", "*",
)  # fmt: skip


def played(turns: Any) -> tuple[str, Calls]:
    """The text and the calls of a perfect rollout."""
    if isinstance(turns, str):
        return turns, []
    return "", [(item["name"], item["arguments"]) for turn in turns for item in turn]


def _edited(text: str, others: list[str], chance: random.Random) -> str:
    """A text with one to three tokens left out, doubled, exchanged or put in; or all of another text, too."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.randrange(len(parts) + 1)
        foreign = re.findall(r"\w+|\s+|[^\w\s]", chance.choice(others))
        word = chance.choice((*WORDS, *foreign))
        match chance.randrange(7):
            case 0:
                del parts[place : place + chance.choice((1, 1, 2, 5))]
            case 1:
                parts.insert(place, word)
            case 2:
                parts[place : place + 1] = [word]
            case 3:
                parts[place:place] = parts[place : place + 3]
            case 4 if len(parts) > 1:
                one, other = chance.randrange(len(parts)), chance.randrange(len(parts))
                parts[one], parts[other] = parts[other], parts[one]
            case 5:
                parts = [*parts, "\n", chance.choice(others)]
            case _:
                parts = [chance.choice(others), "\n", *parts]
    return "".join(parts)


def edits(twin: str, goal: Any, seed: int = 0) -> Iterator[tuple[str, Calls]]:
    """Replies, most of them wrong: nothing, those of other rows, and random edits of the right one."""
    one = SOUND[twin]
    chance = random.Random(f"{twin} {goal} {seed}")
    text, calls = played(one.write(goal))
    others = [played(one.write(other)) for other in one.goals]
    yield from (("", []), *others)
    for _ in range(EDITS if not twin.startswith("code") else EDITS // 3):
        if not calls:
            yield _edited(text, [other for other, _ in others], chance), []
            continue
        made = list(calls)
        foreign = [call for _, other in others for call in other]
        for _ in range(chance.choice((1, 1, 2))):
            place = chance.randrange(len(made) + 1)
            match chance.randrange(5):
                case 0:
                    del made[place : place + 1]
                case 1:
                    made.insert(place, chance.choice(foreign))
                case 2:
                    made[place : place + 1] = [chance.choice(foreign)]
                case 3:
                    made.reverse()
                case _ if made:
                    name, given = made[place % len(made)]
                    changed = _edited(given, [arguments for _, arguments in foreign], chance)
                    made[place % len(made)] = (name, changed)
                case _:
                    pass
        yield "", made


OPENINGS = re.compile(r"\n|\\boxed\{|<answer>|```|(?:Final a|A)nswer:|\{|\[|<<<<<<<|SELECT|diff --git")
FORM = frozenset(
    re.findall(
        r"\w+", "i thought of it looked up final answer these hence the is boxed so json sql py python diff"
    )
)
"""Words of the forms in which right replies are written."""


def _words(text: str) -> list[str]:
    return [word.lstrip("0") or "0" for word in re.findall(r"\w+", text.casefold()) if word not in FORM]


def arguable(twin: str, text: str, goal: Any) -> bool:
    """Whether a fair reader may take a reply for right.

    A part of it, up to or from an opening or a line on, is right; or it says what the right reply says, and
    nothing else, in another form.
    """
    right, _ = played(SOUND[twin].write(goal))
    if right and twin.startswith(("string", "choice", "number", "judge")) and _words(text) == _words(right):
        return True
    if isinstance(goal, str) and not _words(" ".join(text.split()).replace(goal, " ")):
        return True
    cuts = [found.start() for found in OPENINGS.finditer(text)]
    return any(
        pays(twin, part, [], goal) for cut in cuts for part in (text[:cut], text[cut:], text[cut + 1 :])
    )


@cache
def holes(twin: str) -> dict[str, tuple[Any, str, Calls]]:
    """The mutants with a witness each: the answer of a row, and a reply to it."""
    one = SOUND[twin]
    wrong = [
        (goal, *reply)
        for goal in one.goals
        for reply in dict.fromkeys((text, tuple(calls)) for text, calls in edits(twin, goal))
        if not pays(twin, reply[0], list(reply[1]), goal)
    ]
    found: dict[str, tuple[Any, str, Calls]] = {}
    for name in (f"{twin} {number}" for number in range(len(sources(twin)))):
        if not all(pays(name, *played(one.write(goal)), goal) for goal in one.goals):
            continue
        for goal, text, calls in wrong:
            if pays(name, text, list(calls), goal) and not arguable(twin, text, goal):
                found[name] = (goal, text, list(calls))
                break
    return found
