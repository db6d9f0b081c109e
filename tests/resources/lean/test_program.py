"""Proofs in replies, and the programs that they become."""

from __future__ import annotations

import time

import pytest
from gym_resources.lean.lean_messages import Message, Position, judged, read_text
from gym_resources.lean.program import OWN_NAME, build, forbidden, hole, proof_in
from tables import table

HEADER = "import Mathlib\n\n"
STATEMENT = "theorem gold (n : ℕ) : n + 0 = n := by\n"


@table(
    ("reply", "proof"),
    [
        ("```lean4\ntheorem gold (n : ℕ) : n + 0 = n := by\n  simp\n```", "by\n  simp\n"),
        ("```lean4\ntheorem gold (n : ℕ := 1) (h : n = 1 := by rfl) : n = n := rfl\n```", "rfl\n"),
        ("```lean4\n  simp\n```", "  simp\n"),
        ("```lean\na\n```\n```lean4\nb\n```\n```lean\nc\n```", "b\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("```python\na\n```", ""),
        ("<think>```lean4\na\n```</think>simp", "simp"),
        ("```lean4\ntheorem gold : True\n```", ""),
        ("", ""),
    ],
)
def test_the_proof_in_a_reply(reply: str, proof: str) -> None:
    assert proof_in(reply) == proof


@table("statement", [STATEMENT, "theorem gold (n : ℕ) : n + 0 = n := by sorry", STATEMENT[:-4]])
@table("proof", ["by\n  simp", "  simp", "simp", "\n  simp"])
def test_the_program_states_the_rows_theorem(statement: str, proof: str) -> None:
    made = build(
        HEADER, statement, proof if "by" in proof or statement.rstrip()[-2:] != ":=" else f"by {proof}"
    )
    assert made.text.startswith(f"{HEADER}theorem gold (n : ℕ) : n + 0 = n := by")
    assert made.text.split()[-1] == "simp"
    assert (made.name, made.text.count(" by")) == ("gold", 1)


def test_an_example_gets_a_name() -> None:
    made = build(HEADER, "example (n : ℕ) : n = n := by", "by rfl")
    assert made.name == OWN_NAME
    assert f"theorem {OWN_NAME} (n : ℕ)" in made.text


@pytest.mark.parametrize(
    "before",
    [
        "/-- Prove, for example, that nothing changes. -/\n",
        "/-- By the\ntheorem of Euclid. -/\n",
        "-- lemma of Zorn\n",
        "lemma helper : 1 = 1 := rfl\n\n",
        "@[simp] ",
    ],
)
def test_what_stands_before_a_statement_does_not_name_it(before: str) -> None:
    assert build(HEADER, before + STATEMENT, "by simp").name == "gold"
    example = build(HEADER, f"{before}example (n : ℕ) : n = n := by", "by rfl")
    assert example.name == OWN_NAME
    assert example.body == f"{before}theorem {OWN_NAME} (n : ℕ) : n = n := by rfl\n"


@table(
    "proof",
    [
        "  sorry",
        "  admit",
        "  have h : False := by sorry\n  exact h.elim",
        "  simp -- fine\n  sorry",
        '  have : "--" = "--" := by sorry',
        "  /- open -/ sorry /- -/",
        "  have «--» : False := by sorry",
        "  simp /- --/ sorry /- -/",
        "  rw [<--x] sorry",
        "  have : {x : Int //-x = 0} := sorry -/",
    ],
)
def test_holes_are_found(proof: str) -> None:
    assert hole(proof)


@table(
    "proof",
    [
        "  simp -- no sorry",
        "  /- sorry /- admit -/ -/ simp",
        "  /--/ sorry -/ simp",
        "/---------\nsorry\n---------/ simp",
        "  (simp)-- sorry /-\n  rfl",
        "  exact sorryish",
    ],
)
def test_holes_in_comments_are_none(proof: str) -> None:
    assert not hole(proof)


@table(
    ("proof", "word"),
    [
        ("  simp\naxiom cheat : False", "axiom"),
        ("  native_decide", "native_decide"),
        ("  simp\n#eval IO.println 1", "eval"),
        ('  simp\nmacro "x" : tactic => `(tactic| sorry)', "macro"),
        ("  simp\nnamespace Other\ntheorem gold : True := trivial", "namespace"),
        ("  simp\nset_option autoImplicit true", "set_option autoImplicit"),
        ('  run_tac Lean.logInfo "x"', "run_tac"),
        ("  simp\n@[implemented_by f] def g := 1", "implemented_by"),
        ("  simp\nimport Lean", "import"),
        ("  simp\nset_option\n  debug.skipKernelTC true", "set_option debug.skipKernelTC"),
        ('  simp\nset_option/-"-/debug.skipKernelTC true', 'set_option /-"-/debug.skipKernelTC'),
        ("  exact no_such_proof /- --/\naxiom cheat : False /- -/", "axiom"),
        ("  simp /--/ -- -/ macro x", "macro"),
        ("  /- //- -/ -/\n  run_tac skip", "run_tac"),
        (
            "  simp\n@[command_elab x] def f : A := fun _ => modify fun s => { s with messages := {} }",
            "command_elab",
        ),
        ("  simp\nopen Lean Elab Command", "Lean"),
        ("  simp\n#guard_msgs(drop info) in", "guard_msgs"),
        ("  exact eval% x", "eval"),
        ("  exact 1.prefix x", "prefix"),
        ("  exact 2e5.prefix x", "prefix"),
        ("  simp\n@[init] def x := 1", "init"),
        ("  simp\n@[norm_num _ + _] def f : Mathlib.Meta.NormNum.NormNumExt := g", "Meta"),
    ],
)
def test_what_could_deceive_the_check_is_refused(proof: str, word: str) -> None:
    assert forbidden(proof) == word


@pytest.mark.parametrize(
    "proof",
    [
        "  set_option  maxHeartbeats 400000 in\n  simp [macros] -- axiom\n  open Nat in omega",
        "  have h : P.eval 1 = 3 := by simp [Polynomial.eval, eval_add]\n  exact eval 2 P",
        "  exact (Fin.init q) ▸ h₁'.prefix (f x).partial",
    ],
)
def test_what_cannot_deceive_is_not_refused(proof: str) -> None:
    assert not forbidden(proof)


@table("unit", ["```lean4\n", ":=", "(", "/-", "--", '"', "theorem ", "set_option ", "by ", "\n"])
def test_every_reply_is_read_in_linear_time(unit: str) -> None:
    start_s = time.thread_time()
    proof = proof_in(f"```lean4\ntheorem x{unit * (1_000_000 // len(unit))}\n```")
    hole(proof), forbidden(proof), build(HEADER, STATEMENT, proof)
    assert time.thread_time() - start_s < 5


def test_messages_in_a_text() -> None:
    text = (
        "/p/t.lean:3:2: error: unsolved goals\n⊢ False\n/p/t.lean:4:0: warning: declaration uses 'sorry'\n"
        "'gold' depends on axioms: [propext,\n Quot.sound]\n"
    )
    first, second = read_text(text)
    assert first == Message("error", Position(3, 2), "unsolved goals\n⊢ False")
    assert judged([first], "").status == "failed"
    found = judged([second], "")
    assert found.has_hole
    assert found.axioms("gold") == {"propext", "Quot.sound"}
    assert found.axioms("gol") is None


def test_a_forged_line_does_not_hide_an_axiom() -> None:
    forged = Message("info", Position(1), "'gold' does not depend on any axioms")
    true = Message("info", Position(9), "'gold' depends on axioms: [sorryAx]")
    for messages in ([forged, true], [true, forged]):
        assert judged(messages, "").axioms("gold") == {"sorryAx"}
