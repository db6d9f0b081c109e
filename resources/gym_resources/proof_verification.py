r"""Score a proof 0, 0.5 or 1 with an analysis, in agreement with an expert; a judge checks the analysis.

The score is in the ``\boxed{}`` of the reply's last line. ``agreement`` is 1 less its distance from the row's
``ground_truth_verify_score``. The reward is the agreement times ``meta_score``, what the judge, who knows the
expert's judgement, gives the analysis: 0, 0.5 or 1. A reply without a score, or with no agreement, is worth
0, and the judge is not asked. An answer of the judge without a score is a failure.

Rows and reward are those of NeMo Gym's environment of this name (agreement with the truth times a
meta-verifier), after DeepSeekMath-V2 (arXiv:2511.22570); prompts and example rows are our own.
"""

from __future__ import annotations

from typing import Annotated

from gym_runtime import Environment, Model, Prompt, Reply, UnusableAnswer, Verdict, quoted
from msgspec import Meta

from gym_resources.judging.asking import JudgedTask, Judging
from gym_resources.judging.proofs import META, SCORES, boxed_score
from gym_resources.judging.texts import last_message
from gym_resources.judging.thoughts import without_thoughts

REFERENCE = Prompt("""\
An expert has judged the solution, too; take that as right:
{judgement}""")


class ProofAnalysisTask(JudgedTask, kw_only=True):
    problem: str
    proof: str
    ground_truth_verify_score: Annotated[float, Meta(ge=0, le=1)]
    ground_truth_judgement: str = ""


async def verify(task: ProofAnalysisTask, reply: Reply, judge: Model) -> Verdict:
    analysis = without_thoughts(last_message(reply))
    found, judging = boxed_score(analysis), Judging(judge, task, boxed_score)
    agreement = 1 - abs(SCORES[found] - task.ground_truth_verify_score) if found else 0.0
    meta = None
    if agreement > 0:
        expert = task.ground_truth_judgement
        prompt = META.fill(
            problem=quoted(task.problem),
            proof=quoted(task.proof),
            analysis=quoted(analysis),
            reference=REFERENCE.fill(judgement=quoted(expert)) if expert else "",
        )
        said = await judging.label(prompt)
        if said is None:
            raise UnusableAnswer(
                "its answer ends with none of the scores 0, 0.5 and 1", stage=judge.role.name
            )
        meta = SCORES[said]
    fields = {"extracted_answer": found, "agreement": agreement, "meta_score": meta, **judging.fields()}
    return Verdict(agreement * (meta or 0.0), fields=fields)


environment = Environment(
    resource=verify,
    description="Score proofs with an analysis, which a judge checks.",
    domain="math",
    agent="single_turn",
    roles=("judge",),
    data_license="Apache-2.0 (own rows)",
)
