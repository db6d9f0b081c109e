"""Several dependent tool calls: look up a value for each synonym of a term, then hand in the list.

A synonym's value is the sum of its characters' code points, so it cannot be guessed without the tool. The
reward is 1 if the last ``extract_synonym_values`` call hands in exactly the expected values in order.
Three fields of the result row describe other outcomes: ``set_overlap`` is the share of expected values handed
in, ``original_term_minefield_hit`` that the value of the term itself was handed in as if it were a synonym,
``order_instruction_following_failure`` that only the order is wrong.

Tools and rewards are those of NeMo Gym's environment of this name; a last call whose arguments do not fit, an
error there, hands in nothing here, as does one with more than `CHARACTERS_AT_MOST` characters.
Source: the rule of NeMo Gym's ``example_multi_step``; the rows are our own.
"""

from __future__ import annotations

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

from gym_resources.extract import jsons

CHARACTERS_AT_MOST = 100_000


class SynonymTask(Task):
    expected_synonym_values: list[int]
    minefield_label_value: int


class Extraction(msgspec.Struct):
    synonym_values: list[int | float]


class Synonyms(Session[SynonymTask]):
    @tool
    def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Get the value of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    @tool
    def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Hand in the values of the synonyms of the relevant term."""
        return {"success": True}

    async def verify(self, reply: Reply) -> Verdict:
        expected = self.task.expected_synonym_values
        extracted = last_extraction(reply)
        accuracy = extracted == expected
        overlap = len(set(expected).intersection(extracted or ())) / len(set(expected)) if expected else 0.0
        return Verdict(
            float(accuracy),
            fields={
                "accuracy": accuracy,
                "set_overlap": overlap,
                "original_term_minefield_hit": self.task.minefield_label_value in (extracted or ()),
                "order_instruction_following_failure": not accuracy
                and extracted is not None
                and len(extracted) == len(expected)
                and sorted(extracted) == sorted(expected),
            },
        )


def last_extraction(reply: Reply) -> list[int | float] | None:
    """The values of the last extraction; None without one, or if its arguments do not fit."""
    calls = [call for call in reply.function_calls if call.name == "extract_synonym_values"]
    if not calls or len(calls[-1].arguments) > CHARACTERS_AT_MOST:
        return None
    found = jsons.decode(calls[-1].arguments, Extraction)
    return found.synonym_values if found else None


environment = Environment(
    resource=Synonyms,
    description="Look up values step by step with one tool, then hand them all in, in order, with another.",
    domain="instruction_following",
    data_license="Apache-2.0 (own rows)",
)
