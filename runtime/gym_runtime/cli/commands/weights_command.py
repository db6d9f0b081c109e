"""``weights``: what a trainer does to a serving model between steps. Rollouts wait; none is lost."""

from __future__ import annotations

import json
import sys
from typing import Literal

import anyio
import msgspec

from gym_runtime.cli import terminal
from gym_runtime.cli.model_choice import require_broker
from gym_runtime.cli.options.shared_options import BrokerOptions
from gym_runtime.client import connect
from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import Control, ControlAnswer

Action = Literal["state", "pause", "resume", "version", "update"]


def weights(
    action: Action,
    argument: str,
    *,
    version: str,
    model_pool: str,
    as_json: bool,
    broker: BrokerOptions,
) -> None:
    """Do one thing to all workers of a model, and show how they are then.

    Raises:
        UsageError: an argument is missing or superfluous, or no worker serves the model.
        ModelRefused: the engine cannot do it.
    """
    command = _command(action, argument, version)
    urls = require_broker(broker)

    async def ask() -> dict[str, ControlAnswer]:
        async with connect(urls, prefix=broker.prefix) as gym:
            return await gym.control(command, model=model_pool)

    answers = anyio.run(ask, backend_options={"use_uvloop": sys.platform != "win32"})
    if as_json:
        print(json.dumps({worker: msgspec.structs.asdict(answer) for worker, answer in answers.items()}))
        return
    for worker, answer in sorted(answers.items()):
        state = "paused" if answer.paused else "serving"
        terminal.output().print(f"{worker}  {state}  version {answer.version or 'unknown'}", soft_wrap=True)


def _command(action: Action, argument: str, version: str) -> Control:
    if action == "version" and argument and not version:
        return Control(op="set_version", version=argument)
    if action == "update" and argument:
        return Control(op="update", path=argument, version=version)
    if action in ("state", "pause", "resume") and not argument and not version:
        return Control(op=action)
    raise UsageError(
        f"'weights {action}' is used as: "
        + {"version": "weights version NAME", "update": "weights update PATH [--version NAME]"}.get(
            action, f"weights {action}"
        )
    )
