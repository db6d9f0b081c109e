"""Problems of research, programmed step by step in Python (SciCode): 65 problems, 288 steps that count.

Each step is asked in a conversation of its own: what it is about, with its background
(``with_background``, as NeMo Gym), the code of all steps before, the model's own, and the head of the next
function; the last fenced block of the answer goes on the code. Three steps (13.6, 62.1, 76.3) are given by
the authors, neither asked nor counted. At the end each step's tests are run on the code up to it, in a
sandbox, within 30 seconds. The reward is 1 if all steps pass. The score is the share of steps over all
rollouts, then the share of problems.

The expected values are an asset that is downloaded by hand (``test_data.h5``, about 1 GB, from the page of
github.com/scicode-bench/SciCode); ``GYM_SCICODE_TARGETS`` names its folder, and h5py reads it, in a sandbox
of its own. Those of our own rows are in ``targets``.

Rows, steps and rewards are those of NeMo Gym's environment and agent of this name; the prompt is our own.
The published tests compare where the program runs: one made to search its process could find a target.
Source: Tian et al. 2024, arXiv:2407.13168 (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gym_runtime import (
    Benchmark,
    DatasetSource,
    Environment,
    Episode,
    Reply,
    ScoredRollout,
    Step,
    Verdict,
)

from gym_resources.benchmarks.scoring.shares import by_task, mean
from gym_resources.code.asserted import Asserted
from gym_resources.code.fenced_programs import defining_program
from gym_resources.code.scientific import GIVEN, TARGETS, ResearchTask, tested

PROMPT = """\
A problem of research is solved in Python, function by function. Write the next function.

The step:
{step}

The code so far, which is put before yours:
```python
{code}
```

The head of the function; keep its name, its parameters and what it returns ({returns}):
```python
{head}
```

Use these imports and no others, and do not write them again: {imports}
Answer with one ```python block that has this function, and helpers of its own if it needs any: no code of \
steps before, no examples, no tests.
"""
LIMIT_S = 30.0


class Research(Episode[ResearchTask]):
    async def open(self) -> None:
        self.codes: list[str] = []

    async def reset(self) -> str:
        return self._question() or ""

    def _question(self) -> str | None:
        """The next step that is asked; None after the last."""
        task = self.task
        for step in task.sub_steps[len(self.codes) :]:
            if step.step_number not in GIVEN:
                about = [step.step_description_prompt, step.step_background if task.with_background else ""]
                return PROMPT.format(
                    step="\n\n".join(filter(None, about)),
                    code="\n\n".join(self.codes) or "# nothing yet",
                    head=step.function_header,
                    returns=step.return_line.strip() or "see its text",
                    imports=task.required_dependencies or "none",
                )
            self.codes.append(step.ground_truth_code or "")
        return None

    async def step(self, reply: Reply) -> Step:
        text = reply.joined_text.rpartition("</think>")[2]
        name = self.task.sub_steps[len(self.codes)].name
        self.codes.append(defining_program(text, name) if "```" in text else "")
        question = self._question()
        return Step(observation=question or "That was the last step.", terminated=question is None)

    async def verify(self, reply: Reply) -> Verdict:
        results: dict[str, Asserted] = {}
        for number, step in enumerate(self.task.sub_steps):
            if step.step_number in GIVEN:
                continue
            found = Asserted(error="no code")
            if number < len(self.codes) and self.codes[number].strip():
                code = "\n\n".join((self.task.required_dependencies, *self.codes[: number + 1]))
                targets = None if self.task.targets is None else self.task.targets[step.step_number]
                found = await tested(code, step.step_number, step.test_cases, targets, LIMIT_S)
                if found.passed != len(step.test_cases) and not found.error:
                    found = Asserted(passed=found.passed, ran=found.ran, error="not all tests ran")
            results[step.step_number] = found
        passed = sum(not one.error for one in results.values())
        return Verdict(
            float(passed == len(results)),
            fields={
                "step_results": {name: one.error or "passed" for name, one in results.items()},
                "num_steps_passed": passed,
                "num_steps_total": len(results),
                "problem_accuracy": passed / len(results),
                "solutions": self.codes,
            },
        )


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The share of steps over all rollouts, and of problems."""
    passed, total = (sum(one.fields[f"num_steps_{name}"] for one in rollouts) for name in ("passed", "total"))
    return {"steps": 100 * passed / total, "problems": mean(by_task(rollouts))}


def rows(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in records:
        yield {"responses_create_params": {"input": []}, **one}


environment = Environment(
    resource=Research,
    description="Problems of research, programmed step by step in Python (SciCode).",
    domain="coding",
    agent="refinement",
    repeats=8,
    benchmark=Benchmark(score=score, fields=("num_steps_passed", "num_steps_total")),
    data_license="Apache-2.0",
    extra="sandbox",
    assets=(TARGETS,),
    datasets=(
        DatasetSource(
            repo_id="SciCode1/SciCode",
            file="problems_test.jsonl",
            split="benchmark",
            license="Apache-2.0",
            rows=rows,
        ),
    ),
)
