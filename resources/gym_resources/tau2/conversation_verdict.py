"""What a conversation is worth: the product of what its task wants to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_runtime import Model, Reply, ResourceError, Verdict
from gym_runtime.messages import FunctionCall

from gym_resources.judging.asking import Judging
from gym_resources.judging.labels import label
from gym_resources.tau2 import criteria
from gym_resources.tau2.criteria import HOLDS, LABELS
from gym_resources.tau2.task import ServiceTask

MOST_FAILED_CALLS = 10


def check(task: ServiceTask, judge: Model | None) -> None:
    """Refuse a task that cannot be judged.

    Raises:
        ResourceError: it needs a judge that is not given.
    """
    if task.judged and judge is None:
        raise ResourceError(
            "no model is given for the role 'judge': --judge PROVIDER/NAME, or --set use_judge=false "
            "to leave out what a judge decides",
            stage="judge",
        )


async def verdict(
    task: ServiceTask,
    reply: Reply,
    judge: Model | None,
    state: Mapping[str, bool],
    *,
    ended: bool,
    customers_calls: Sequence[FunctionCall] = (),
) -> Verdict:
    """The verdict.

    Args:
        state: what of the task's basis concerns the state, and whether it holds.
        ended: the conversation came to its end.
    """
    wanted = task.criteria
    failed = criteria.failed_calls(reply)
    parts = dict(state)
    if "COMMUNICATE" in wanted.reward_basis:
        parts["communicate"] = criteria.communicated(wanted.communicate_info or [], reply)
    if "ACTION" in wanted.reward_basis:
        parts["action"] = criteria.acted(wanted.actions or [], [*reply.function_calls, *customers_calls])
    spoke = any(message.text.strip() for message in reply.messages)
    finished = ended and spoke and failed < MOST_FAILED_CALLS
    fields: dict[str, Any] = {"failed_calls": failed, "finished": finished}
    if task.judged:
        assert judge is not None  # `check` has refused the task otherwise
        judging = Judging(judge, task, lambda text: label(text, LABELS))
        parts["nl_assertion"] = finished and all(parts.values())
        for statement in task.judged if parts["nl_assertion"] else ():
            found = await judging.label(criteria.question(statement, task, reply))
            parts["nl_assertion"] = parts["nl_assertion"] and found == HOLDS
        fields |= judging.fields()
    reward = float(finished and all(parts.values()))
    return Verdict(reward, {name: float(part) for name, part in parts.items()}, fields)
