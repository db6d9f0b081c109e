r"""Questions of any field, answered by a number, yes or no, a text or a molecule in a wrapper.

The answer is what the model's last message with a text has in the last wrapper of the row's
``answer_format``: ``fmt_00`` is ``((…))``, ``fmt_07`` ``\boxed{…}``, ``fmt_15``
``<final_answer>…</final_answer>``, ``fmt_18`` ``**Answer: …**``. Without the field it is ``fmt_07`` if
``use_box_format`` is true, else ``fmt_00``. ``output_regex``, an expression whose first group is the answer,
has priority over both. The row's ``answer_type`` says how it is read: ``float`` (the only number in it),
``bool`` (``1``, ``yes``, ``present`` and the like), ``string``, or ``smiles``. It is compared with
``expected_answer`` by the rule that the row's ``match`` names, or else the first one of its type:

``isclose``     for numbers, by its ``rel_tol`` and ``abs_tol``, else ``float_rel_tol``, ``float_abs_tol``
``exact``       for numbers, both rounded to integers
``abs_window``  for numbers, at most ``abs_tol`` apart
``rel_window``  for numbers, at most ``rel_tol`` times the expected one apart
``bool_eq``     for yes and no
``string_eq``   for texts, in any case and with any spaces
``smiles_eq``   for molecules, the same one with its stereochemistry, as RDKit reads it (extra ``ether0``)

Rows may have chemistry's older ``property_type`` in place of ``answer_type``; those that name
``rdkit_chemistry_agent`` are of this environment. A row that offers ``stateful_python_code_exec`` gets a
Python session in a sandbox, with RDKit if it is installed. The reward is 1 or 0.

With ``strict``, which NeMo Gym lacks, a number must stand alone or before a unit: NeMo Gym's rule reads
"not 3" and "3i" as 3.

Rows and rules are those of NeMo Gym's environment of this name. Of its 31 formats only the four above are
published; a row with another one is refused unless it has an ``output_regex``. ``smiles`` is our own.
Source: the rules of NeMo Gym's ``litmus_agent``, in our own code; the rows are our own.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Verdict, published
from gym_runtime.environment import offered_packs

from gym_resources.chemistry.litmus import LitmusTask, PythonWithRdkit, extracted, require_rdkit


class Litmus(Session[LitmusTask]):
    judged_by_transcript = True

    async def open(self) -> None:
        if self.task.kind == "smiles":
            require_rdkit()
        if "stateful_python" in offered_packs(self.task.responses_create_params.tools):
            self.packs.take("stateful_python", PythonWithRdkit)

    async def verify(self, reply: Reply) -> Verdict:
        said = next((one.text for one in reversed(reply.messages) if one.text.strip()), "")
        answer = await extracted(self.task, said)
        right = answer is not None and await self.task.right(answer)
        fields = {
            "extracted_answer": answer,
            "resolved_answer_type": self.task.kind,
            "resolved_reward_rule": self.task.rule,
        }
        return Verdict(float(right), fields=fields)


environment = Environment(
    resource=Litmus,
    description="Questions answered by a number, yes or no, a text or a molecule in a wrapper.",
    domain="knowledge",
    max_turns=10,
    opens_first=True,
    agent_refs=("litmus_agent_agent", "rdkit_chemistry_agent", "rdkit_chemistry_simple_agent"),
    data_license="CC-BY-4.0",
    datasets=published("nvidia/Nemotron-RL-litmus-bench-v0.1", "CC-BY-4.0", validation=""),
)
