"""Questions for base models, answered by the option that the model finds most likely (21 base-model tasks).

Each option stands behind the question in a text of its own, which goes to ``/v1/completions`` with ``echo``;
nothing is written. An option's log-probability is the sum of its tokens'. The reward is 1 if the right option
has the highest, or, of rows with ``by_length``, the highest per character; both are in the fields. Engines
without ``echo`` or log-probabilities give no verdict but a failure: run it with ``--model-api completions``.

MMLU (5 worked examples) is the first data set; the others are ``arc_challenge`` (25), ``global_mmlu_lite``
(5, English), ``hellaswag``, ``openbookqa``, ``piqa``, ``race`` (high school) and ``winogrande`` (5). The
score is the share that is right, the same by length, and by subject.

They are the tasks by log-probabilities of the suite with which NVIDIA evaluates Nemotron's base models. The
forms are lm-evaluation-harness's; NVIDIA's variants of them are not published as text, so figures may differ
by a little. Sources: Hendrycks et al. 2021 (MIT), Clark et al. 2018 (CC-BY-SA-4.0), Singh et al. 2024
(Apache-2.0), Zellers et al. 2019 (MIT), Mihaylov et al. 2018 (Apache-2.0), Bisk et al. 2020 (AFL-3.0), Lai et
al. 2017 (see its card), Sakaguchi et al. 2020 (CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import accuracy, by_task, categories, mean
from gym_resources.extract.likelihoods import likelihood, said_tokens
from gym_resources.published_sets.continuations import SETS

SHARE, BY_LENGTH = "right", "right_by_length"


class OptionsTask(Task):
    """Options behind a text.

    Attributes:
        answer: which is right, from 0.
        by_length: the log-probability per character decides.
    """

    options: list[str]
    answer: int
    by_length: bool = False
    category: str | None = None

    def __post_init__(self) -> None:
        if len(self.options) < 2 or not all(self.options) or not 0 <= self.answer < len(self.options):
            raise ValueError("'answer' is the place of one of at least two 'options', none of them empty")


async def verify(task: OptionsTask, reply: Reply) -> Verdict:
    messages = said_tokens(reply)
    found: dict[str, object] = {
        "likelihoods": None,
        SHARE: False,
        BY_LENGTH: False,
        "category": task.category,
    }
    if len(messages) != len(task.options):
        return Verdict(0.0, fields=found)
    sums = [likelihood(one, option) for one, option in zip(messages, task.options, strict=True)]
    lengths = [one / len(option) for one, option in zip(sums, task.options, strict=True)]
    right = [most.index(max(most)) == task.answer for most in (sums, lengths)]
    found |= {"likelihoods": sums, SHARE: right[0], BY_LENGTH: right[1]}
    return Verdict(float(right[task.by_length]), fields=found)


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The mean reward, the shares that are right in either way, and the mean by category."""
    tasks = by_task(rollouts)
    ways = {"right": mean(tasks, SHARE), "right by length": mean(tasks, BY_LENGTH)}
    return (
        accuracy(rollouts)
        | ways
        | {name: mean(one) for name, one in categories(rollouts, "category").items()}
    )


environment = Environment(
    resource=verify,
    description="Questions for base models, answered by the likelier option (MMLU, HellaSwag …).",
    domain="knowledge",
    agent="each_alone",
    reads_input=False,
    benchmark=Benchmark(score=score, fields=(SHARE, BY_LENGTH, "category")),
    data_license="MIT (MMLU, HellaSwag), others by data set",
    datasets=tuple(
        DatasetSource(
            repo_id=one.repo_id,
            file=one.files[0],
            further_files=one.files[1:],
            revision=one.revision,
            split="benchmark",
            license=one.licence,
            name=name,
            rows=one.rows,
        )
        for name, one in SETS.items()
    ),
)
