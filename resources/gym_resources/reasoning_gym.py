r"""The procedurally generated tasks of reasoning-gym, scored by each task's own scorer.

The texts of all the model's messages are joined. The answer is the content of the last pair of
``<answer>`` tags, by the library's rule, else between the first ``\boxed{`` with something in it and the
next ``}``, else all of the text, even if that is empty. ``metadata.source_dataset`` names the scorer; many
give partial rewards for partial answers, some a little for any answer. Scorers are a hundred pieces of
third-party code that parses expressions and solves puzzles, so they run in a sandboxed process. An answer on
which a scorer raises is worth 0, unless it raises on the row's own answer as well.

Nine scorers execute the answer as Python, five of them by way of SymPy. Those that expect a list get it from
a parser of literals; those that expect a formula get an answer only if it consists of numbers, letters,
operators and names of functions, and any other answer counts as unreadable.

With ``strict``, which the library lacks, the reward is 1 or 0: an answer in part, an answer that has more
beside the row's own (``not …``, ``… or …``), boxes with different contents, and infinity or ``nan``, with
which a scorer may come to 1, are worth 0. Where a scorer pays any text in full, the answer must be the row's.

Rows and rewards are those of NeMo Gym's environment of this name; two things differ: a row whose dataset does
not exist is refused, and the boards of two datasets, which the library compares as tuples and JSON has as
lists, can be right (in NeMo Gym they never are).
Source: github.com/open-thought/reasoning-gym (Apache-2.0); the rows were generated with it.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from typing import Any, cast

from gym_runtime import AgentChoice, Environment, Reply, Task, TaskError, Verdict, published

from gym_resources.extract.boxed import MARK, alone
from gym_resources.extract.formulas import is_formula
from gym_resources.extract.tagged import last_pair
from gym_resources.puzzles.library_puzzles import generate
from gym_resources.puzzles.library_scorers import UNREADABLE, Scorer, is_told

LANGGRAPH = {
    "langgraph": "reflection",
    "reflection": "reflection",
    "orchestrator": "orchestrator",
    "parallel_thinking": "parallel_thinking",
    "rewoo": "rewoo",
}
"""NeMo Gym's agents on LangGraph, and which of ours are like them."""

_BOARDS = {"arc_agi", "rearc"}
_LISTS = {"binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"}
_FORMULAS = {
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
}
_NO_FORMULA = "("


class ReasoningTask(Task):
    question: str
    metadata: dict[str, Any]
    answer: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.metadata.get("source_dataset"), str):
            raise ValueError("'metadata.source_dataset' must name a dataset of reasoning-gym")


@cache
def scorer(dataset: str) -> Scorer:
    """A dataset's scorer.

    Raises:
        TaskError: there is no such dataset.
    """
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    try:
        found = cast("Any", reasoning_gym).get_score_answer_fn(dataset)
    except ValueError as error:
        raise TaskError(f"metadata.source_dataset: {error}") from error
    if dataset in _LISTS:
        vars(sys.modules[found.__module__])["eval"] = ast.literal_eval  # replaces the built-in function
    return cast("Scorer", found)


def extract(text: str) -> str:
    """The answer in a text; takes linear time."""
    tagged = last_pair(text, "answer")
    if tagged is not None:
        return tagged
    start = text.find(MARK)
    while start >= 0:
        start += len(MARK)
        end = text.find("}", start)
        if end < 0:
            break
        if end > start:
            return text[start:end].strip()
        start = text.find(MARK, end)
    return text.strip()


async def verify(task: ReasoningTask, reply: Reply) -> Verdict:
    answer = extract(reply.joined_text)
    dataset, metadata = task.metadata["source_dataset"], task.metadata
    if dataset in _BOARDS:
        metadata = {**metadata, "output": tuple(tuple(row) for row in metadata["output"])}
    entry = {"question": task.question, "answer": task.answer, "metadata": metadata}
    score = scorer(dataset)
    shown = answer if dataset not in _FORMULAS or is_formula(answer) else _NO_FORMULA
    try:
        reward = float(score(answer=shown, entry=entry))
    except UNREADABLE:
        if task.answer is not None:
            score(answer=task.answer, entry=entry)
        reward = 0.0
    if task.strict and reward:
        own = task.answer or ""
        same = answer.strip(" .\n").casefold() == own.casefold()
        certain = alone(reply.joined_text, answer, own) and (same or is_told(score, entry, answer))
        reward = float(reward >= 1 and certain)
    return Verdict(reward, fields={"extracted_answer": answer, "score": reward, "task_name": dataset})


environment = Environment(
    resource=verify,
    description="Procedurally generated reasoning puzzles of many kinds, each with its own scorer.",
    domain="other",
    isolated=True,
    extra="reasoning-gym",
    imports=("reasoning_gym",),
    generate=generate,
    agents={
        name: AgentChoice(agent)
        for kind, agent in LANGGRAPH.items()
        for name in (f"reasoning_gym_{kind}_agent", f"langgraph_{kind}_reasoning_gym_agent")
    },
    agent_refs=tuple(f"langgraph_{kind}_reasoning_gym_agent" for kind in LANGGRAPH),
    datasets=published(
        "nvidia/Nemotron-RL-ReasoningGym-v1", "CC-BY-4.0", train="data/train.jsonl", validation=""
    ),
)
