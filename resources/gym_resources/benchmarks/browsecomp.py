"""1,266 questions whose short answers are hard to find on the web and easy to check (BrowseComp).

``search`` asks a search engine several queries at once, ``browse`` reads the main text of several pages; the
authors prescribe no tools. A model in the role ``judge`` compares the final answer with the right one, by the
authors' rule in our own words (`gym_resources.judging.final_answer`). A reply without a text is worth 0 and
not judged; a judge's answer without ``correct: yes`` or ``correct: no`` counts as no, as for the authors, and
is counted in ``judge_unparseable``. The prompt is the authors'. The score is accuracy, and the calibration
error of the confidence that the reply states last, 100 without one, as `hle` computes it.

``search_backend`` names the engine as in `google_search`; ``replay`` plays a recording without a network.
After a call of more than 50,000 tokens the model sees the question and its last three rounds only, and a
rollout ends after 400 answers, as in NeMo Gym's configuration. Not here is what else it
adds: a shell on saved pages, its prompt, notes on the steps left, a board of progress (off by default), and
its subset of 400 questions (``--shuffle-seed 42 --limit 400`` draws another one).

The published file is encrypted, so that questions and answers are in no text that is crawled. ``prepare``
decrypts it with the key that it holds; the rows keep the ``canary``, so that they can be told from training
data. Keep ``data/`` and results to yourself, and exclude sites that repeat the answers
(``GYM_EXCLUDED_DOMAINS``).
Source: Wei et al. 2025, arXiv:2504.12516, github.com/openai/simple-evals (MIT). The example rows and pages
are our own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from gym_runtime import Asset, Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Verdict

from gym_resources.benchmarks.hle import confidence
from gym_resources.benchmarks.scoring.calibration import calibration_error
from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.judging import final_answer
from gym_resources.judging.asking import Judging
from gym_resources.judging.texts import last_message
from gym_resources.web_search.research_tools import Researcher

PROMPT = """\
{question}

Your response should be in the following format:
Explanation: {{your explanation for your final answer}}
Exact Answer: {{your succinct, final answer}}
Confidence: {{your confidence score between 0% and 100% for your answer}}"""
RESETS = {"context_reset_tokens": 50_000, "context_reset_keep_rounds": 3}
FILE = "browse_comp_test_set.csv"
ENCRYPTED = Asset(
    name="browsecomp",
    description="the encrypted questions and answers of BrowseComp",
    licence="MIT",
    urls={FILE: f"https://openaipublic.blob.core.windows.net/simple-evals/{FILE}"},
    size_bytes=20_000_000,
    setting="GYM_BROWSECOMP",
    page="https://github.com/openai/simple-evals",
)


class BrowseComp(Researcher):
    environment = "browsecomp"

    async def verify(self, reply: Reply) -> Verdict:
        said = last_message(reply)
        judging = Judging(self.models.judge, self.task, final_answer.correct)
        verdict = None
        if said:
            asked = final_answer.prompt(self.task.question, said, self.task.ground_truth)
            verdict = await judging.label(asked)
        judged = final_answer.judged_fields(judging.texts[0] if said else "")
        fields = {"confidence": confidence(said), "num_tool_calls": len(reply.function_calls)}
        return Verdict(float(verdict == "yes"), fields={**fields, **judged, **judging.fields()})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Accuracy, and the calibration error where there are enough answers for it."""
    error = calibration_error(
        [float(rollout.fields["confidence"]) for rollout in rollouts],
        [rollout.reward for rollout in rollouts],
    )
    return {**accuracy(rollouts), **({} if error is None else {"calibration error": error})}


def decrypted(text: str, password: str) -> str:
    """A published text: each byte is combined with one of the password's digest, again and again.

    >>> decrypted("fhpzMMVJxw==", "x")
    'Skerrow'
    """
    key = cycle(hashlib.sha256(password.encode()).digest())
    return bytes(byte ^ own for byte, own in zip(base64.b64decode(text), key, strict=False)).decode()


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(questions):
        yield {
            "id": f"browsecomp_{number}",
            "question": decrypted(one["problem"], one["canary"]),
            "ground_truth": decrypted(one["answer"], one["canary"]),
            "canary": one["canary"],
        }


environment = Environment(
    resource=BrowseComp,
    description="Questions whose short answers are hard to find on the web (BrowseComp).",
    domain="knowledge",
    agent_options=RESETS,
    max_turns=400,
    timeout_s=4 * 3600.0,
    parallel_tools=True,
    replayable=False,
    opens_first=True,
    roles=("judge",),
    benchmark=Benchmark(prompt=PROMPT, score=score, fields=("confidence",)),
    extra="search",
    data_license="MIT",
    datasets=(DatasetSource(asset=ENCRYPTED, file=FILE, split="benchmark", license="MIT", rows=rows),),
)
