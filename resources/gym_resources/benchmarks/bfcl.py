"""Calls of functions in one turn, checked against possible answers: the Berkeley leaderboard (BFCL v3).

The categories that are checked by the structure of the calls: simple, multiple, parallel and parallel
multiple, and the same with functions that users contributed (live); simple ones in Java and in JavaScript;
irrelevance, where no function fits and none must be called; and relevance, where at least one must be.
`gym_resources.expected_calls.possible_answers` has the rule. Conversations of several turns are
`bfcl_multi_turn`. The categories of executed calls are not here: they asked services of others on the
Internet, and the authors have retired them. ``bfcl:v4`` has the same categories with the rows of v4, which
are in the authors' package: ``pip install --no-deps bfcl-eval==2026.3.23``.

Functions are offered as tools, in the types of JSON schema, as the authors offer them to models that call
functions; the user's messages are the prompt. The score has the authors' summaries: the mean of the four
categories (``non-live AST``), where simple is the mean of its three languages, all live rows together
(``live AST``), the mean of both irrelevance categories (``irrelevance``), and each category. Different on
purpose: a reply without calls and without text is worth 0 in irrelevance, too.

With ``strict``, which the authors lack, a reply without calls must have five different words, since ``1.0``
is right otherwise. Where any call is right, each must be of one of the functions, with all parameters that it
requires and no others than it has, and none is made twice.

Source: Patil et al., github.com/ShishirPatil/gorilla (Apache-2.0, code and data). The example rows are our
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Literal

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_task, categories, mean
from gym_resources.expected_calls.messages import says_something
from gym_resources.expected_calls.possible_answers import Function, Language, all_match, made, well_formed
from gym_resources.expected_calls.tool_schemas import tool

AST = ("simple", "multiple", "parallel", "parallel_multiple")
SIMPLE: dict[str, Language] = {"simple": "python", "java": "java", "javascript": "javascript"}
LIVE_AST = tuple(f"live_{name}" for name in AST)
IRRELEVANT = ("irrelevance", "live_irrelevance")
CATEGORIES = (*AST, *LIVE_AST, *IRRELEVANT, "live_relevance", "java", "javascript")
ANSWERED = (*AST, *LIVE_AST, "java", "javascript")
V4_NAMES = {"simple": "simple_python", "java": "simple_java", "javascript": "simple_javascript"}
FILES = (
    *(f"BFCL_v3_{name}.json" for name in CATEGORIES),
    *(f"possible_answer/BFCL_v3_{name}.json" for name in ANSWERED),
)
V4_FILES = (
    *(f"bfcl_eval/data/BFCL_v4_{V4_NAMES.get(name, name)}.json" for name in CATEGORIES),
    *(f"bfcl_eval/data/possible_answer/BFCL_v4_{V4_NAMES.get(name, name)}.json" for name in ANSWERED),
)


class BfclTask(Task, kw_only=True):
    category: str
    expects: Literal["calls", "no call", "any call"]
    language: Language = "python"
    functions: list[Function] = []  # noqa: RUF012 - a msgspec field, copied for each
    possible_answers: list[dict[str, dict[str, list[Any]]]] = []  # noqa: RUF012
    strict: bool = False

    def __post_init__(self) -> None:
        known = {function.name for function in self.functions}
        if (self.expects == "calls") != bool(self.possible_answers):
            raise ValueError("'possible_answers' are needed where 'expects' is \"calls\", and only there")
        for answer in self.possible_answers:
            if len(answer) != 1 or not known.issuperset(answer):
                raise ValueError("each of 'possible_answers' has the name of one of the 'functions'")


async def verify(task: BfclTask, reply: Reply) -> Verdict:
    calls = made(reply.function_calls)
    if task.expects == "calls":
        fits = all_match(calls, task.functions, task.possible_answers, task.language)
    elif task.expects == "any call":
        fits = bool(calls) and (not task.strict or well_formed(calls, task.functions))
    else:
        fits = not calls and (says_something(reply.text) if task.strict else bool(reply.text.strip()))
    return Verdict(float(fits), fields={"predicted_calls": calls})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The authors' summaries of the categories that there are, then these."""
    shares = {name: mean(tasks) for name, tasks in categories(rollouts, "category").items()}
    live = by_task([rollout for rollout in rollouts if rollout.fields["category"] in LIVE_AST])
    simple = [shares[name] for name in SIMPLE if name in shares]
    summaries = {
        "non-live AST": [
            *([fmean(simple)] if simple else []),
            *(shares[name] for name in AST if name in shares and name not in SIMPLE),
        ]
    }
    summaries["live AST"] = [mean(live)] if live else []
    summaries["irrelevance"] = [shares[name] for name in IRRELEVANT if name in shares]
    means = {name: fmean(parts) for name, parts in summaries.items() if parts}
    return {**means, **{f"category {name}": share for name, share in shares.items()}}


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each question of each category, with its answers if it has any."""
    questions = dict(zip(CATEGORIES, files, strict=False))
    answered = dict(zip(ANSWERED, files[len(CATEGORIES) :], strict=True))
    for category, records in questions.items():
        answers = {one["id"]: one["ground_truth"] for one in answered.get(category, ())}
        for one in records:
            language = SIMPLE.get(category, "python")
            calls = {"possible_answers": answers[one["id"]]} if category in answered else {}
            yield {
                "responses_create_params": {
                    "input": one["question"][0],
                    "tools": [tool(function, language) for function in one["function"]],
                },
                "id": one["id"],
                "category": category,
                "expects": "calls" if calls else "no call" if category in IRRELEVANT else "any call",
                "language": language,
                "functions": one["function"],
                **calls,
            }


environment = Environment(
    resource=verify,
    description="Calls of functions in one turn, checked against possible answers (BFCL v3).",
    domain="agent",
    agent="single_turn",
    benchmark=Benchmark(score=score, fields=("category",)),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="gorilla-llm/Berkeley-Function-Calling-Leaderboard",
            file=FILES[0],
            further_files=FILES[1:],
            split="benchmark",
            license="Apache-2.0",
            rows=rows,
        ),
        DatasetSource(
            repo_id="bfcl-eval",
            installed=True,
            file=V4_FILES[0],
            further_files=V4_FILES[1:],
            split="benchmark",
            license="Apache-2.0",
            name="v4",
            rows=rows,
        ),
    ),
)
