"""``weights``: changes a model's weights between a trainer's steps. Rollouts wait; no rollout is lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from gym_runtime.cli import terminal
from gym_runtime.cli.options import BROKER, AsJson, Broker
from gym_runtime.cli.remote import ask
from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import Control

Action = Literal["state", "pause", "resume", "version", "update"]


def weights(
    action: Action,
    argument: str = "",
    /,
    *,
    version: str = "",
    model_pool: str = "policy",
    json: AsJson = False,
    broker: Broker = BROKER,
) -> None:
    """Pause a serving model, change its weights, and resume: rollouts wait meanwhile, and no rollout is lost.

    Args:
        action: What to do.
        argument: A version's name, or where the weights are.
        version: The name of the updated weights, such as step-12. Rollouts say by it which weights sampled
            them, so "update" needs it.
        model_pool: The pool of the model.
    """
    command = _command(action, argument, version)
    answers = ask(broker, lambda gym: gym.control(command, model=model_pool))
    if json:
        terminal.print_json({worker: msgspec.structs.asdict(answer) for worker, answer in answers.items()})
        return
    for worker, answer in sorted(answers.items()):
        state = "paused" if answer.paused else "serving"
        terminal.say(f"{worker}  {state}  version {answer.version or 'unknown'}")


def _command(action: Action, argument: str, version: str) -> Control:
    if action == "version" and argument and not version:
        return Control(op="set_version", version=argument)
    if action == "update" and argument and version:
        return Control(op="update", path=argument, version=version)
    if action in ("state", "pause", "resume") and not argument and not version:
        return Control(op=action)
    raise UsageError(
        f"'weights {action}' is used as: "
        + {"version": "weights version NAME", "update": "weights update PATH --version NAME"}.get(
            action, f"weights {action}"
        )
    )
