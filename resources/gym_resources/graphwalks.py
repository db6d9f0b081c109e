"""Walks on a graph in a long prompt: the parents of a node, or the nodes of a breadth-first search.

The answer is the list in the last line that is not blank, ``Final Answer: [node1, node2]``; without such a
line the reward is 0. Else it is the F1 of the named nodes against ``expected_answer``, a list or one as JSON:
1 if both are empty. A node's quotation marks and the order do not matter. The score is the mean, and the same
by kind of walk.

Rows and rewards are those of NeMo Gym's environment of this name. Source: OpenAI's GraphWalks (MIT; the data
set openai/graphwalks); the example rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract import jsons
from gym_resources.lc_niah import f1

_FINAL = re.compile(r"[\s*_`]*+final answer:[\s*_`]*+\[([^\[\]]*+)\]\W*+", re.IGNORECASE)
_AROUND = " \t\r\n'\"`*"


class WalkTask(Task):
    expected_answer: str | list[str]
    problem_type: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.expected_answer, str):
            listed = jsons.decode(self.expected_answer, list[str])
            if listed is None:
                raise ValueError(f"expected_answer {self.expected_answer!r:.60}: it must be a list of nodes")
            self.expected_answer = listed


def nodes(text: str) -> list[str] | None:
    """The nodes in a text's last line; None if it is no answer.

    >>> nodes("Final Answer: [a]\\n**Final Answer:** ['b', c]\\n\\n"), nodes("Final Answer: []"), nodes("[a]")
    (['b', 'c'], [], None)
    """
    last = text.rstrip().rpartition("\n")[2]
    found = _FINAL.fullmatch(last)
    return sorted({node.strip(_AROUND) for node in found[1].split(",")} - {""}) if found else None


async def verify(task: WalkTask, reply: Reply) -> Verdict:
    answer = nodes(reply.joined_text)
    reward = 0.0 if answer is None else f1(answer, list(task.expected_answer))
    return Verdict(reward, fields={"extracted_answer": answer})


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for records in files:
        for one in records:
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": one["prompt"]}]},
                "expected_answer": list(one["answer_nodes"]),
                "problem_type": one["problem_type"],
                "prompt_chars": one["prompt_chars"],
            }


environment = Environment(
    resource=verify,
    description="Parents and neighbourhoods of a node in the graph of a long prompt (GraphWalks).",
    domain="long_context",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="problem_type"), fields=("problem_type",)),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="openai/graphwalks",
            file="graphwalks_128k_and_shorter.parquet",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
)
