"""What the span of a rollout says: at its beginning, and of the record at its end."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from gym_runtime import tracing
from gym_runtime.bus.interface import Delivery
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec


def span(task: RolloutSpec, delivery: Delivery) -> AbstractContextManager[None]:
    """The span of a delivered rollout; a child of the context in which it was published."""
    if not tracing.enabled():
        return nullcontext()
    about: tracing.Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": task.environment,
        "gen_ai.conversation.id": task.rollout_id,
        "gym.agent": task.agent,
        "gym.environment": task.environment,
        "gym.model": task.model,
        "gym.run": task.run,
        "gym.task_index": task.task_index,
        "gym.rollout_index": task.rollout_index,
    }
    return tracing.span(f"invoke_agent {task.environment}", about, parent=delivery.headers)


def note(record: RolloutRecord, worker: str) -> None:
    """What a rollout's span says at its end; a failed rollout is an error."""
    if not tracing.recording():
        return
    outcome = record.outcome
    numbers = record.numbers
    tracing.note(
        {
            "gym.worker": worker,
            "gym.attempt": record.attempt,
            "gym.outcome": type(outcome).__name__.lower(),
            "gym.turns": record.turns,
            "gym.tool_calls": record.tool_calls,
            "gen_ai.usage.input_tokens": int(numbers.get("input_tokens", 0)),
            "gen_ai.usage.output_tokens": int(numbers.get("output_tokens", 0)),
            **({} if record.reward is None else {"gym.reward": record.reward}),
        }
    )
    if isinstance(outcome, Failed):
        tracing.note({"gym.stage": outcome.fault.stage})
        tracing.fail(outcome.fault.name, outcome.fault.message)
