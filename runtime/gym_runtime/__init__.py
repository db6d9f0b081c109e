"""The runtime in which language models are trained and evaluated on verifiable rewards.

What authors and trainers use stands here; importing it is light, each name is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_runtime.client import Client as Client
    from gym_runtime.client import connect as connect
    from gym_runtime.environment.environment import Environment as Environment
    from gym_runtime.environment.shapes import Episode as Episode
    from gym_runtime.environment.shapes import Session as Session
    from gym_runtime.environment.shapes import Step as Step
    from gym_runtime.environment.shapes import Task as Task
    from gym_runtime.environment.tools import Text as Text
    from gym_runtime.environment.tools import ToolError as ToolError
    from gym_runtime.environment.tools import tool as tool
    from gym_runtime.environment.verdict import Reply as Reply
    from gym_runtime.environment.verdict import Verdict as Verdict
    from gym_runtime.errors import GymError as GymError
    from gym_runtime.rollout.agent import Agent as Agent
    from gym_runtime.rollout.rollout import Rollout as Rollout
    from gym_runtime.workers.adapter import Adapter as Adapter

_HOME = {
    "Adapter": "workers.adapter",
    "Agent": "rollout.agent",
    "Environment": "environment.environment",
    "Episode": "environment.shapes",
    "Client": "client",
    "GymError": "errors",
    "Reply": "environment.verdict",
    "Rollout": "rollout.rollout",
    "Session": "environment.shapes",
    "Step": "environment.shapes",
    "Task": "environment.shapes",
    "Text": "environment.tools",
    "ToolError": "environment.tools",
    "Verdict": "environment.verdict",
    "connect": "client",
    "tool": "environment.tools",
}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gym_runtime' has no attribute '{name}'")
    return getattr(import_module(f"gym_runtime.{home}"), name)
