r"""Chemistry problems whose answers are molecules, reactions or names (ether0).

The answer is what stands in the last ``<answer>`` tag of the model's last message, else in its last
``\boxed{}``, else behind its last ``Answer:`` up to the end of the line; without one the reward is 0.
``verifier_metadata.solution``, ``function!:!information!:!problem type``, says how it is judged, and the
reward is 1 or 0: the same text or name; the same molecule (``product_eval``, ``caption_eval``); a molecule of
the right formula and like the right one (``formula_eval``), with functional groups
(``functional_group_eval``) or that goes on as begun (``valid_mol_eval``), if chemists know the like of it,
which only the filters of the package ``ether0`` can tell where the reference does not; any molecule
(``should_answer_eval``). ``sol_eval`` and ``rxn_forward`` end with a question to a service on the network.
What is not to be told here is a failure of the rollout, never a 0.

RDKit may take long over a text, so it runs in a process that can be killed. Rows and rewards as its namesake
in NeMo Gym. Source: github.com/Future-House/ether0 (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

import re

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract.boxed import last_boxed
from gym_resources.extract.tagged import last_tagged

BETWEEN = "!:!"
FUNCTIONS = (
    "str_eval",
    "should_not_answer_eval",
    "rxn_eval",
    "product_eval",
    "caption_eval",
    "formula_eval",
    "functional_group_eval",
    "valid_mol_eval",
    "should_answer_eval",
    "sol_eval",
    "rxn_forward",
)

_SAID = re.compile(r"\banswer:[\s*]*(\S.*)", re.IGNORECASE)


class Metadata(msgspec.Struct):
    solution: str
    problem_type: str = ""
    ideal: str | None = None
    id: str = ""

    def __post_init__(self) -> None:
        function, *rest = self.solution.split(BETWEEN, 2)
        if len(rest) < 2 or function not in FUNCTIONS:
            raise ValueError(
                f"'solution' is {self.solution!r}; it must be function{BETWEEN}information{BETWEEN}type, "
                f"with a function of {', '.join(FUNCTIONS)}"
            )


class ChemistryTask(Task):
    verifier_metadata: Metadata


def extract(text: str) -> str | None:
    """The answer, or None without one."""
    for found in (last_tagged(text, "answer"), last_boxed(text)):
        if found is not None:
            return found.strip()
    said = _SAID.findall(text)
    return said[-1].strip() if said else None


async def verify(task: ChemistryTask, reply: Reply) -> Verdict:
    from gym_resources.chemistry.evaluation import EVALUATIONS

    answer = extract(reply.text)
    function, information, _ = task.verifier_metadata.solution.split(BETWEEN, 2)
    right = answer is not None and EVALUATIONS[function](answer, information)
    return Verdict(float(right), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Chemistry problems whose answers are molecules, reactions or names (ether0).",
    domain="knowledge",
    heavy=True,
    imports=("rdkit.Chem", "exmol", "molbloom"),
    data_license="CC-BY-4.0",
    extra="ether0",
)
