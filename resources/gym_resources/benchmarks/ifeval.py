"""541 prompts with instructions on the answer's form, each checked by a rule (IFEval).

The instructions are those of `instruction_following`; the reward is 1 if the text follows all of them. The
prompts are used as they are. The score is the authors': the share of prompts of which all instructions are
followed, and the share of instructions that are, each strictly and loosely. Loosely, a text counts also
without its first line, its last line or its asterisks (`gym_resources.instructions.adherence`). As with the
authors, a blank text follows no instruction. Source: Zhou et al. 2023, arXiv:2311.07911; prompts and rules
are Apache-2.0. The example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Verdict

from gym_resources.benchmarks.scoring.shares import by_task, mean
from gym_resources.instruction_following import InstructionTask
from gym_resources.instructions.adherence import followed_by

STRICT, LOOSE = "follow_instruction_list", "follow_instruction_list_loose"


async def verify(task: InstructionTask, reply: Reply) -> Verdict:
    text, instructions = reply.last_item_text, task.instructions
    strict = await followed_by(text, instructions) if text.strip() else [False] * len(instructions)
    loose = strict if all(strict) else await followed_by(text, instructions, leniently=True)
    return Verdict(
        fmean(strict) if task.mode == "fraction" else float(all(strict)),
        fields={
            "follow_all_instructions": all(strict),
            "follow_all_instructions_loose": all(loose),
            STRICT: strict,
            LOOSE: loose,
        },
    )


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Shares of prompts and of instructions that are followed, strictly and loosely."""
    tasks = by_task(rollouts)
    return {
        "prompt strict": mean(tasks, "follow_all_instructions"),
        "instruction strict": instructions(rollouts, STRICT),
        "prompt loose": mean(tasks, "follow_all_instructions_loose"),
        "instruction loose": instructions(rollouts, LOOSE),
    }


def instructions(rollouts: Sequence[ScoredRollout], field: str) -> float:
    """The share of all instructions that are followed."""
    return 100 * fmean(followed for rollout in rollouts for followed in rollout.fields[field])


def rows(prompts: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in prompts:
        yield {
            "key": one["key"],
            "prompt": one["prompt"],
            "instruction_id_list": one["instruction_id_list"],
            "kwargs": one["kwargs"],
        }


environment = Environment(
    resource=verify,
    description="Prompts with instructions on the answer's form, counted strictly and loosely (IFEval).",
    domain="instruction_following",
    agent="single_turn",
    extra="instruction-following",
    benchmark=Benchmark(
        prompt="{prompt}",
        score=score,
        fields=("follow_all_instructions", "follow_all_instructions_loose", STRICT, LOOSE),
    ),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="google/IFEval",
            file="ifeval_input_data.jsonl",
            split="benchmark",
            license="Apache-2.0",
            rows=rows,
        ),
    ),
)
