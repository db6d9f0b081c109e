"""The Lean program of a proof: the row's header and statement with the proof that a reply holds.

The statement is always the row's, so a reply cannot weaken it. What could deceive the check from within a
proof is refused before Lean sees it: declaring axioms, leaving holes, code that runs while Lean elaborates
(of which Lean's own names, as in ``Lean.Elab``, are the sign), new syntax, namespaces (in which another
theorem could take the name). All functions take linear time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHARS = 200_000
PREFERRED = ("lean4", "lean3", "lean", "")
HOLES = frozenset({"sorry", "admit", "stop"})
FORBIDDEN = frozenset(
    {
        *(
            "axiom",
            "axioms",
            "constant",
            "unsafe",
            "partial",
            "opaque",
            "extern",
            "implemented_by",
            "csimp",
            "init",
        ),
        *("builtin_init", "initialize", "export", "macro", "macro_rules", "elab", "elab_rules", "by_elab"),
        *(
            "syntax",
            "declare_syntax_cat",
            "notation",
            "notation3",
            "infix",
            "infixl",
            "infixr",
            "prefix",
            "postfix",
        ),
        *("run_cmd", "run_elab", "run_meta", "run_tac", "simproc", "dsimproc"),
        *(
            "simproc_decl",
            "meta",
            "import",
            "prelude",
            "namespace",
            "native_decide",
            "binop",
            "IO",
            "dbg_trace",
        ),
        *("register_simp_attr", "register_option", "add_decl_doc", "deriving", "mk_iff"),
        # An elaborator of the proof's own, which an attribute puts in the place of Lean's, deletes errors.
        *("Lean", "Elab", "Meta", "CoreM", "MetaM", "TermElabM", "TacticM", "CommandElabM", "CommandElab"),
        *("command_elab", "term_elab", "command_parser", "term_parser", "tactic_parser"),
    }
)
COMMANDS = frozenset({"eval", "exit", "reduce", "guard_msgs"})
"""Forbidden behind ``#`` or before ``%``: by themselves they are names, such as ``Polynomial.eval``. The last
one takes the messages of the command behind it, such as the one that asks for the axioms.
"""
MEMBERS = frozenset({"constant", "init", "partial", "prefix", "postfix", "infix"})
"""Allowed behind a name and a dot, such as ``Fin.init``."""
_OPTIONS = re.compile(r"\bset_option\b(?!\s++(?:maxHeartbeats|maxRecDepth)\s)\s*+(\S{0,100})")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWNER = re.compile(r"(?:(?<!\w)[^\W\d][\w']*|[)\]⟩])\.\Z")
_FENCE = re.compile(r"^[ \t]*```([^\n`]*)$", re.MULTILINE)
_THEOREM = re.compile(r"^(?:theorem|example|lemma)\b", re.MULTILINE)
_NAME = re.compile(r"\b(theorem|lemma|example)\b[ \t]*([^\s({\[:]*)")
_HOLE_AT_END = re.compile(r"\bsorry$")
OWN_NAME = "gym_statement"


class Program(NamedTuple):
    """A program: its header, its declaration, the declared name, and the line at which the proof begins."""

    header: str
    body: str
    name: str
    proof_line: int

    @property
    def text(self) -> str:
        return self.header + self.body


def proof_in(reply: str, *, only_proof: bool = True) -> str:
    """The proof in a reply, with a leading ``by`` if it has one; empty without a proof.

    The last fenced block of the most preferred language counts; without a fence, the whole text. If it
    states a theorem, the proof is what follows its ``:=``.

    >>> proof_in("```lean4\\ntheorem t (n : Nat := 1) : 1 = 1 := by\\n  rfl\\n```")
    'by\\n  rfl\\n'
    """
    block = _block(reply.rpartition("</think>")[2])
    stated = _THEOREM.search(block) if only_proof else None
    if stated is None:
        return block if block.strip() else ""
    proof = block[_assignment(block, stated.start()) :]
    return proof.lstrip(" ") if proof.strip() else ""


def build(header: str, statement: str, proof: str) -> Program:
    """The program of a proof. A hole at the end of the statement is left out.

    The last declaration of the statement is the one to prove; a declaration in a comment does not count.
    """
    stated = _HOLE_AT_END.sub("", statement.rstrip()).rstrip()
    found = next(reversed(list(_NAME.finditer(_blanked(stated)))), None)
    name = found[2] if found else ""
    if found and not name:
        name = OWN_NAME  # an example has no name by which its axioms could be asked for
        stated = f"{stated[: found.start()]}theorem {name} {stated[found.end() :]}"
    by_tactics = stated.endswith("by") and stated[:-2].rstrip().endswith(":=")
    if proof.split(None, 1)[:1] == ["by"]:
        proof = proof.lstrip()[2:]
        stated = stated if by_tactics else f"{stated} by"
    elif by_tactics and not proof.startswith((" ", "\t", "\n")):
        proof = f"\n  {proof}"
    head = header if header.endswith("\n") or not header else f"{header}\n"
    gap = "" if proof.startswith((" ", "\n")) else " "
    return Program(head, f"{stated}{gap}{proof.rstrip()}\n", name, (head + stated).count("\n") + 1)


def hole(proof: str) -> bool:
    """Whether a proof leaves something open."""
    return not HOLES.isdisjoint(_WORD.findall(_code(proof)))


def forbidden(proof: str) -> str:
    """The first word or option that a proof may not have; empty if it has none."""
    code = _code(proof)
    for found in _WORD.finditer(code):
        word, (start, end) = found[0], found.span()
        if word in COMMANDS and (code[start - 1 : start] == "#" or code[end : end + 1] == "%"):
            return word
        if word in FORBIDDEN and not (word in MEMBERS and _OWNER.search(code, max(0, start - 100), start)):
            return word
    option = _OPTIONS.search(code)
    return f"set_option {option[1]}" if option else ""


def _block(text: str) -> str:
    blocks: dict[str, str] = {}
    opened: tuple[str, int] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = (fence[1].strip().lower(), fence.end() + 1)
        else:
            blocks[opened[0]] = text[opened[1] : fence.start()]
            opened = None
    for language in PREFERRED:
        if language in blocks:
            return blocks[language]
    return _FENCE.sub("", text) if not blocks else ""


def _assignment(text: str, start: int) -> int:
    """Behind the first ``:=`` outside of all brackets; without one, the end."""
    depth = 0
    for place in range(start, len(text)):
        letter = text[place]
        if letter in "([{⟨":
            depth += 1
        elif letter in ")]}⟩":
            depth -= 1
        elif letter == ":" and depth <= 0 and text.startswith(":=", place):
            return place + 2
    return len(text)


_OPENS = re.compile(r"--|/-[-!]?")
_NESTED = re.compile(r"/-|-/")
_BEFORE_A_COMMENT = re.compile(r"[\s\w)\]}⟩,;']")
"""Behind other characters a mark may be two tokens, as in ``<--1`` and ``//-1``."""


def _code(text: str) -> str:
    """A proof without its comments; with them, where it is not certain what is one: where a string or a
    quoted name may hold the mark of one, or a mark stands directly behind a sign.
    """
    comments = None if '"' in text or "«" in text else _comments(text)
    if comments is None:
        return text
    ends = [0, *(end for _, end in comments)]
    starts = [*(start for start, _ in comments), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _blanked(text: str) -> str:
    """A text with blanks in the places of its comments."""
    for start, end in _comments(text) or ():
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


def _comments(text: str) -> list[tuple[int, int]] | None:
    """Where the comments begin and end; None if it is not certain what is one."""
    found: list[tuple[int, int]] = []
    place = 0
    while mark := _OPENS.search(text, place):
        if mark.start() and not _BEFORE_A_COMMENT.match(text, mark.start() - 1):
            return None
        place = _line_end(text, mark.end()) if mark[0] == "--" else _comment_end(text, mark.end())
        found.append((mark.start(), place))
    return found


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)


def _comment_end(text: str, start: int) -> int:
    """Where a block comment has ended, of which ``start`` is inside; comments in it are closed first."""
    depth = 1
    for mark in _NESTED.finditer(text, start):
        depth += 1 if mark[0] == "/-" else -1
        if not depth:
            return mark.end()
    return len(text)
