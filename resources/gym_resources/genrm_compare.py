"""Replies to one conversation, compared with each other by a generative reward model (RLHF).

All rollouts of a row are compared in pairs by a model in the role ``genrm``: each with the next one
(``circular``) or each with every other (``all_pairs``). It scores both from 1 to 5 and ranks them from 1 to
6; equal scores are moved apart by the ranking, and the reward is the mean, plus a bonus for the shortest of
the best, plus what is added or taken off for length and style. Only answers are compared, not the reasoning.

Every key of NeMo Gym's configuration is a field of the row, so ``--set answer_bonus=0.5`` changes it for a
run. ``genrm_format=roles`` asks as Nemotron's GenRM expects it: the conversation, then messages of the roles
``response_1``, ``response_2`` and ``principle``; ``prompt``, the default, asks any model.

Rows that name the agent ``genrm_simple_agent_reasoning_off`` are answered without thinking: the chat template
gets ``enable_thinking`` false. NeMo Gym has another model server for them.

Different on purpose: a comparison that cannot be read, also when it was asked again, is missing and not a
neutral score; a rollout without any comparison has failed. The whole history is shown, not some parts of it.
Source: the rule of NeMo Gym's ``genrm_compare``; the prompt and the rows are our own.
"""

from __future__ import annotations

import anyio
from gym_runtime import Candidates, Environment, GymError, Model, Pending, Reply, Role, Verdict
from gym_runtime.errors import ModelUnavailable, leaf
from gym_runtime.messages import Reasoning

from gym_resources.judging import pairwise
from gym_resources.judging.genrm import Conversation
from gym_resources.judging.pairwise import Compared, Features, Scores

REASONING_OFF = "genrm_simple_agent_reasoning_off"


def verify(task: Conversation, reply: Reply) -> Pending:
    answer = reply.joined_text
    thoughts = sum(len(item.text) for item in reply.items if isinstance(item, Reasoning))
    density = pairwise.style_density(answer)
    return Pending(Features(answer=answer, reasoning_chars=thoughts, style_density=density))


async def compare(candidates: Candidates[Conversation], genrm: Model) -> list[Verdict | GymError]:
    task, features = candidates.task, candidates.features(Features)
    asked = [
        (first, second, judge)
        for first, second in pairwise.pairs(len(features), task.comparison_strategy)
        for judge in range(task.num_judges_per_comparison)
    ]
    found: list[Scores | None] = [None] * len(asked)

    async def ask(place: int) -> None:
        first, second, _ = asked[place]
        question = task.question(features[first].answer, features[second].answer)
        for _ in range(1 + task.genrm_parse_retries):
            answer = await genrm.ask(question, whole=False, **task.sampling)
            if answer.incomplete:
                continue
            found[place] = pairwise.read_scores(
                answer.text, default_score=task.default_score, default_ranking=task.default_ranking
            )
            if found[place] is not None:
                return

    try:
        async with anyio.create_task_group() as tasks:
            for place in range(len(asked)):
                tasks.start_soon(ask, place)
    except BaseExceptionGroup as group:
        raise leaf(group) from group
    comparisons = [
        Compared(response_i=first, response_j=second, judge_idx=judge, scores=scores)
        for (first, second, judge), scores in zip(asked, found, strict=True)
        if scores is not None
    ]
    return verdicts(task, features, comparisons, unparseable=found.count(None))


def verdicts(
    task: Conversation, features: list[Features], comparisons: list[Compared], *, unparseable: int = 0
) -> list[Verdict | GymError]:
    """What comparisons come to: a verdict for each answer, or that none of its comparisons could be read."""
    bases = pairwise.mean_scores(len(features), comparisons)
    metrics = pairwise.group_metrics(bases, comparisons)
    made: list[Verdict | GymError] = []
    for place, reward in enumerate(pairwise.rewards(bases, features, task.adjustments)):
        if reward is None:
            made.append(ModelUnavailable("none of its comparisons could be read", stage="genrm"))
            continue
        own = [one.fields() for one in comparisons if place in (one.response_i, one.response_j)]
        fields = {
            "genrm_base_reward": reward.base,
            "bonus": reward.bonus,
            "length_adjustment": reward.adjustment,
            "comparisons": own,
            "judge_unparseable": unparseable,
            **metrics,
        }
        made.append(Verdict(reward.total, fields=fields))
    return made


environment = Environment(
    resource=verify,
    compare=compare,
    description="Replies rewarded by comparing all replies to one conversation (RLHF, GenRM).",
    domain="rlhf",
    data_license="Apache-2.0 (own rows)",
    agent="single_turn",
    repeats=4,
    roles=(Role(name="genrm", sampling={"max_output_tokens": 16384, "temperature": 0.6, "top_p": 0.95}),),
    agent_refs=("genrm_simple_agent",),
    agent_sampling={REASONING_OFF: {"chat_template_kwargs": {"enable_thinking": False}}},
    gold_reward=5.0,
    silence_reward=1.0,
)
