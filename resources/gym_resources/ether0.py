r"""Chemistry problems whose answers are molecules, reactions or names (ether0).

The texts of all the model's messages, one below the other, hold the answer in the last ``<answer>`` tags with
something in them (``<|answer_start|>`` and ``<|answer_end|>`` are such tags), unless another ``<answer>``
opens in there; else in the last ``\boxed{}``; else as the one letter behind the last ``Answer:``, at the end
of its line. A single letter stands for the molecule of that choice, if ``verifier_metadata.choices`` lists
any. Without an answer the reward is 0.

``verifier_metadata.solution``, ``function!:!information!:!problem type``, sets how it is judged, and the
reward is 1 or 0 for: the same text or name; the same molecule (``product_eval``, ``caption_eval``); a
molecule of the right formula and like the right one (``formula_eval``), with functional groups
(``functional_group_eval``) or that goes on as begun (``valid_mol_eval``), if it resembles known molecules,
which only the filters of the benchmark's authors can decide where the reference does not; any molecule
(``should_answer_eval``). ``sol_eval`` and ``rxn_forward`` need a service on the network. An answer that
cannot be judged here is a failure of the rollout, never a 0; rows that need the filters are refused where
these are missing: ``gym-runtime prepare --assets ether0`` fetches them.

RDKit may take long over a text, so it runs in a process that can be killed. Rows and rewards are those of
NeMo Gym's environment of this name; there, a malformed solution, an unknown function or a reference that
cannot be read is worth 0; here such a row is refused.
Source: github.com/Future-House/ether0 (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

import re

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict, assets

from gym_resources.chemistry import solution
from gym_resources.chemistry.filters import FILTERS, NAMES
from gym_resources.extract.tagged import last_pair

FILTERED = {"formula_eval", "functional_group_eval", "valid_mol_eval", "sol_eval"}
_BOX = re.compile(r"\\boxed\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}")
_LETTER_LINE = re.compile(r"Answer\s*+:\s*+([A-Za-z])\s*$", re.MULTILINE)


class Metadata(msgspec.Struct):
    solution: str
    problem_type: str = ""
    ideal: str | None = None
    id: str = ""
    choices: list[str] | dict[str, str] | None = None

    def __post_init__(self) -> None:
        solution.read(self.solution)

    def chosen(self, answer: str) -> str:
        """The molecule that a single letter stands for; any other answer stands for itself."""
        choices = self.choices or {}
        if isinstance(choices, list):
            choices = {chr(ord("A") + number): choice for number, choice in enumerate(choices[:26])}
        return choices.get(answer, choices.get(answer.upper(), answer))


class ChemistryTask(Task):
    verifier_metadata: Metadata

    def check_assets(self) -> None:
        if solution.read(self.verifier_metadata.solution).function in FILTERED:
            assets.find(FILTERS, "ether0", *NAMES)


def extract(text: str) -> str | None:
    """The answer in a text, in linear time; None without one."""
    text = text.replace("<|answer_start|>", "<answer>").replace("<|answer_end|>", "</answer>")
    tagged = last_pair(text, "answer", filled=True)
    if tagged and "<answer>" not in tagged:
        return tagged
    for found in (_BOX.findall(text), _LETTER_LINE.findall(text)):
        if found:
            return found[-1].strip() or None
    return None


async def verify(task: ChemistryTask, reply: Reply) -> Verdict:
    from gym_resources.chemistry.evaluation import EVALUATIONS

    metadata = task.verifier_metadata
    answer, wanted = extract(reply.lines_text), solution.read(metadata.solution)
    right = answer is not None and EVALUATIONS[wanted.function](metadata.chosen(answer), wanted.information)
    fields = {
        "extracted_answer": answer,
        "eval_function": wanted.function,
        "problem_type": metadata.problem_type or wanted.problem_type,
    }
    return Verdict(float(right), fields=fields)


environment = Environment(
    resource=verify,
    description="Chemistry problems whose answers are molecules, reactions or names (ether0).",
    domain="knowledge",
    isolated=True,
    imports=("rdkit.Chem", "exmol", "molbloom"),
    data_license="CC-BY-4.0",
    extra="ether0",
    assets=(FILTERS,),
)
