"""Text in a format with named parts: JSON, YAML, TOML, XML or CSV (StructEval, the kinds not rendered).

The code is what stands between ``<|BEGIN_CODE|>`` and ``<|END_CODE|>``, else in the last fenced block, else
the whole reply. The reward is 0.2 if it can be read as ``output_type``, plus 0.8 times the share of the paths
of ``raw_output_metric`` that are there; code that cannot be read is worth 0. A path names keys with dots
between them, items of lists by number or with ``[*]`` any of them (``chapters[1].title``), attributes of XML
with ``@``, and columns of CSV as ``csv::name``. The score is the mean, and the same by task.

Rows are those of NeMo Gym's environment of this name. Weights and paths are the authors'; that a key may
itself hold dots, and that XML's root may be left out of a path, is our reading. Source: Yang et al. 2025,
arXiv:2505.20139 (github.com/TIGER-AI-Lab/StructEval, MIT); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.schema import paths
from gym_resources.schema.formats import Format, Malformed, read

FORMATS: dict[str, Format] = {"JSON": "json", "YAML": "yaml", "TOML": "toml", "XML": "xml", "CSV": "csv"}
SYNTAX, PATHS = 0.2, 0.8


class StructTask(Task):
    output_type: str
    raw_output_metric: list[str]
    task_name: str = ""

    def __post_init__(self) -> None:
        if self.output_type.upper() not in FORMATS:
            known = ", ".join(FORMATS)
            raise ValueError(f"'output_type' is {self.output_type[:40]!r}; what is judged here is {known}")
        if not self.raw_output_metric:
            raise ValueError("'raw_output_metric' is empty")


async def verify(task: StructTask, reply: Reply) -> Verdict:
    kind = FORMATS[task.output_type.upper()]
    try:
        value = read(paths.code(reply.joined_text), kind, {})
    except Malformed as error:
        return Verdict(0.0, fields={"problem": str(error), "paths_found": 0})
    found = sum(paths.holds(value, path, rootless=kind == "xml") for path in task.raw_output_metric)
    reward = SYNTAX + PATHS * found / len(task.raw_output_metric)
    return Verdict(reward, fields={"problem": None, "paths_found": found})


def rows(tasks: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in tasks:
        if not one["rendering"] and one["output_type"] in FORMATS:
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": one["query"]}]},
                "raw_output_metric": list(one["raw_output_metric"]),
                **{name: one[name] for name in ("task_id", "task_name", "input_type", "output_type")},
            }


environment = Environment(
    resource=verify,
    description="Text in JSON, YAML, TOML, XML or CSV with the parts that are asked for (StructEval).",
    domain="instruction_following",
    agent="single_turn",
    isolated=True,
    benchmark=Benchmark(score=partial(by_category, field="task_name"), fields=("task_name",)),
    data_license="MIT",
    extra="structured-outputs",
    imports=("yaml", "xmltodict"),
    datasets=(
        DatasetSource(
            repo_id="TIGER-Lab/StructEval",
            file="data/test-00000-of-00001.parquet",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=("structeval_nonrenderable",),
)
