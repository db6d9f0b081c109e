"""The runtime in which language models are trained and evaluated on verifiable rewards.

What authors and trainers use stands here; importing it is light, each name is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_runtime.agent import Agent as Agent
    from gym_runtime.client import Gym as Gym
    from gym_runtime.client import connect as connect
    from gym_runtime.environment import Environment as Environment
    from gym_runtime.errors import GymError as GymError
    from gym_runtime.model import Adapter as Adapter
    from gym_runtime.rollout import Rollout as Rollout
    from gym_runtime.shapes import Episode as Episode
    from gym_runtime.shapes import Session as Session
    from gym_runtime.shapes import Step as Step
    from gym_runtime.shapes import Task as Task
    from gym_runtime.tools import Text as Text
    from gym_runtime.tools import ToolError as ToolError
    from gym_runtime.tools import tool as tool
    from gym_runtime.verdict import Reply as Reply
    from gym_runtime.verdict import Verdict as Verdict

_HOME = {
    "Adapter": "model",
    "Agent": "agent",
    "Environment": "environment",
    "Episode": "shapes",
    "Gym": "client",
    "GymError": "errors",
    "Reply": "verdict",
    "Rollout": "rollout",
    "Session": "shapes",
    "Step": "shapes",
    "Task": "shapes",
    "Text": "tools",
    "ToolError": "tools",
    "Verdict": "verdict",
    "connect": "client",
    "tool": "tools",
}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gym_runtime' has no attribute '{name}'")
    return getattr(import_module(f"gym_runtime.{home}"), name)
