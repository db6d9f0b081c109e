"""One attempt at a theorem: the proof in an answer, what Lean says of it, and what the model reads."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from anyio import to_thread
from gym_runtime import Prompt, quoted

from gym_resources.lean import checker, program
from gym_resources.lean.lean_messages import ALLOWED, Checked

FEEDBACK_CHARS = 2000
OUTPUT_CHARS = 10_000
CORRECTION = Prompt("""\
A theorem is to be proved in Lean 4:

```lean4
{header}{statement}
```

This proof was tried:
{proof}

Lean does not accept it:
{errors}

Say in a few sentences what is wrong, then write a whole corrected proof of the same theorem as one block \
that begins with ```lean4. It must not contain sorry.
""")


class Theorem(NamedTuple):
    """What is to be proved; ``only_proof``: of an answer's block only the proof counts."""

    header: str
    statement: str
    only_proof: bool


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A proof that was checked, and what was said of it."""

    turn_index: int
    generation: str
    predicted_proof: str
    proof_status: str
    reward: float
    compiler_output: dict[str, str] | None = None
    error_feedback: str | None = None
    correction_prompt: str | None = None


async def tried(theorem: Theorem, text: str, turn: int, timeout_s: float, *, last: bool) -> Attempt:
    """The attempt in a text; unless it is right or the ``last``, with the prompt for the next one.

    Raises:
        ResourceError: Lean could not check it, for a reason that no proof causes.
    """
    proof = await to_thread.run_sync(_proof, text, theorem.only_proof)
    made = program.build(theorem.header, theorem.statement, proof)
    status, feedback, found = await _check(made, proof, timeout_s)
    prompt = None
    if status != "completed" and not last:
        prompt = CORRECTION.fill(
            header=theorem.header,
            statement=theorem.statement.strip(),
            proof=quoted(proof[:OUTPUT_CHARS]),
            errors=quoted(feedback),
        )
    return Attempt(
        turn_index=turn,
        generation=text[:OUTPUT_CHARS],
        predicted_proof=made.text[:OUTPUT_CHARS] if proof else "",
        proof_status=status,
        reward=float(status == "completed"),
        compiler_output=found and _compiler_output(found),
        error_feedback=feedback or None,
        correction_prompt=prompt,
    )


async def _check(made: program.Program, proof: str, timeout_s: float) -> tuple[str, str, Checked | None]:
    """The status of a proof, what is wrong with it, and what Lean said."""
    if not proof:
        return "empty_generation", "The answer has no proof.", None
    refused = await to_thread.run_sync(_refused, proof)
    if refused is not None:
        return (*refused, None)
    found = await checker.check(made, timeout_s)
    if found.status == "timeout":
        return "timeout", f"Lean was stopped after {timeout_s:g} s.", found
    if found.has_hole:
        return "has_sorry", "The proof is not complete: Lean says that it uses sorry.", found
    if found.status != "completed":
        return "failed", _errors(found, made.proof_line), found
    axioms = found.axioms(made.name)
    if axioms is None:
        return "failed", "Lean did not come to the end of the proof.", found
    if not axioms <= ALLOWED:
        return "forbidden", f"The proof needs axioms: {', '.join(sorted(axioms - ALLOWED))}.", found
    return "completed", "", found


def _proof(text: str, only_proof: bool) -> str:
    return program.proof_in(text, only_proof=only_proof)


def _refused(proof: str) -> tuple[str, str] | None:
    if len(proof) > program.MAX_CHARS:
        return "forbidden", f"A proof may have at most {program.MAX_CHARS} characters."
    if program.hole(proof):
        return "has_sorry", "The proof is not complete: it contains sorry or admit."
    word = program.forbidden(proof)
    return ("forbidden", f"A proof may not contain '{word}'.") if word else None


def _errors(found: Checked, proof_line: int) -> str:
    """Lean's errors; lines count from the proof's first one."""
    errors = [f"line {max(1, e.pos.line - proof_line + 1)}: {e.data}" for e in found.errors]
    return ("\n".join(errors) or found.output)[:FEEDBACK_CHARS]


def _compiler_output(found: Checked) -> dict[str, str]:
    return {"process_status": found.status, "stdout": found.output[:OUTPUT_CHARS], "stderr": ""}
