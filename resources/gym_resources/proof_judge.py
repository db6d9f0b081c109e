"""Prove a statement; a judge scores the proof 0, 0.5 or 1, and another one checks its analysis.

The judge's score is the reward. With a model in the role ``meta_judge``, it scores the judge's analysis in
the same way, ``meta_score``; an analysis that it refutes, with 0, is a failure of the judge and no reward. An
answer of either without a score is such a failure, too. An empty reply is worth 0, without asking.

NeMo Gym's environment of this name is described as a verifier and a meta-verifier after DeepSeekMath-V2; how
the two come together is our reading. Prompts and example rows are our own.
"""

from __future__ import annotations

from gym_runtime import Environment, Model, Reply, Role, UnusableAnswer, Verdict, quoted

from gym_resources.judging.asking import JudgedTask, Judging
from gym_resources.judging.proofs import META, SCORES, VERIFY, boxed_score
from gym_resources.judging.texts import last_message
from gym_resources.judging.thoughts import without_thoughts


class ProofTask(JudgedTask, kw_only=True):
    problem: str


async def scored(judging: Judging, prompt: str, role: str) -> float:
    """The score of a model in a role.

    Raises:
        UnusableAnswer: it gives none.
    """
    found = await judging.label(prompt)
    if found is None:
        raise UnusableAnswer("its answer ends with none of the scores 0, 0.5 and 1", stage=role)
    return SCORES[found]


async def verify(task: ProofTask, reply: Reply, judge: Model, meta_judge: Model | None = None) -> Verdict:
    proof = without_thoughts(last_message(reply))
    if not proof:
        return Verdict(0.0, fields={"judge_evaluations": [], "judge_unparseable": 0, "meta_score": None})
    problem, judging = quoted(task.problem), Judging(judge, task, boxed_score)
    reward = await scored(judging, VERIFY.fill(problem=problem, proof=quoted(proof)), judge.role.name)
    fields, meta = judging.fields(), None
    if meta_judge is not None:
        checking = Judging(meta_judge, task, boxed_score)
        analysis = quoted(without_thoughts(judging.texts[-1]))
        prompt = META.fill(problem=problem, proof=quoted(proof), analysis=analysis, reference="")
        meta = await scored(checking, prompt, meta_judge.role.name)
        fields["judge_evaluations"] += checking.evaluations
        if meta == 0:
            raise UnusableAnswer("the meta_judge refutes the judge's analysis", stage=judge.role.name)
    return Verdict(reward, fields={**fields, "meta_score": meta})


environment = Environment(
    resource=verify,
    description="Prove statements; a judge scores the proof, another one checks its analysis.",
    domain="math",
    agent="single_turn",
    roles=("judge", Role(name="meta_judge", optional=True)),
    data_license="Apache-2.0 (own rows)",
    agent_refs=("proof_simple_agent",),
)
