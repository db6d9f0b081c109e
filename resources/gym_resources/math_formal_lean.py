"""Theorems to be proved in Lean 4, checked by Lean.

The proof is in the last fenced block of the last message, preferably one of ``lean4``; if it states a
theorem, only what follows its ``:=`` is used, unless ``extract_proof_only`` is false. The program is the
row's ``header`` and ``formal_statement`` with this proof. The reward is 1 if Lean finds no error and no hole,
and the theorem needs no axioms but Lean's own three. Proofs with holes, axioms, new syntax or code that runs
while Lean elaborates are refused before (`gym_resources.lean.program`).

``proof_status`` is ``completed``, ``failed``, ``timeout``, ``has_sorry``, ``forbidden`` (a word or an axiom
that a proof may not have) or ``empty_generation``. A Lean that cannot be reached, or cannot load the header,
fails the rollout. Which Lean checks is a setting (`gym_resources.lean.checker`).

With ``--agent refinement``, the model gets up to ``max_correction_turns`` further tries: each is a new
conversation with the earlier proof and Lean's errors. The record has them all, and ``all_attempts``.
Source: the rule of NeMo Gym's ``math_formal_lean``; rows of miniF2F (as in Goedel-Prover-V2, MIT) and of
nvidia/Nemotron-Math-Proofs-v1 (Apache-2.0) are used as they are; the example rows are our own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Task, Verdict

from gym_resources.lean import checker
from gym_resources.lean.attempts import Attempt, Theorem, tried

CONFIGURATIONS = (
    "nemotron_clean_easy",
    "nemotron_first_try_hard",
    "nemotron_medium_500",
    "nemotron_very_easy",
)


class LeanTask(Task):
    header: str
    formal_statement: str
    name: str = ""
    extract_proof_only: bool = True
    compilation_timeout: float = 30.0
    max_correction_turns: int = 2


class LeanSession(Episode[LeanTask]):
    async def open(self) -> None:
        self.attempts: list[Attempt] = []

    async def step(self, reply: Reply) -> Step:
        attempt = await self.attempt(reply)
        self.attempts.append(attempt)
        return Step(observation=attempt.correction_prompt, terminated=attempt.correction_prompt is None)

    async def verify(self, reply: Reply) -> Verdict:
        if not self.attempts:  # of an agent that takes no steps
            self.attempts.append(await self.attempt(reply))
        last = self.attempts[-1]
        fields: dict[str, Any] = {
            **msgspec.structs.asdict(last),
            "needs_correction": last.correction_prompt is not None,
            "total_turns": len(self.attempts),
        }
        if len(self.attempts) > 1:
            fields["all_attempts"] = msgspec.to_builtins(self.attempts)
        return Verdict(last.reward, fields=fields)

    async def attempt(self, reply: Reply) -> Attempt:
        """The proof in an answer, checked."""
        task, turn = self.task, len(self.attempts)
        theorem = Theorem(task.header, task.formal_statement, task.extract_proof_only)
        last = turn >= task.max_correction_turns
        return await tried(theorem, reply.text, turn, task.compilation_timeout, last=last)


environment = Environment(
    resource=LeanSession,
    description="Prove theorems in Lean 4; Lean checks the proof and its axioms.",
    domain="math",
    agent="single_turn",
    data_license="MIT (miniF2F), Apache-2.0 (Nemotron-Math-Proofs-v1)",
    assets=(checker.LEAN,),
    require=checker.require,
    timeout_s=3600.0,
    agent_refs=(*CONFIGURATIONS, *(f"{name}_simple_agent" for name in CONFIGURATIONS)),
)
