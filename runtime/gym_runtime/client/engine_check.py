"""Whether a model's engine has what a run wants to sample with, as far as its adapter knows beforehand.

An adapter's module may have a function ``sampling(settings)``: the names, among those that the Responses API
lacks and ``reasoning_effort``, that its engine may have. What it cannot know is refused at the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_settings import BEYOND_RESPONSES
from gym_runtime.workers.adapter import ModelSettings


def check_engine(settings: ModelSettings, overrides: Mapping[str, Any]) -> None:
    """
    Args:
        overrides: as `gym_runtime.messages.rollout_settings.Sampling.overrides` gives them.

    Raises:
        UsageError: the engine is known not to have one of them; names both. Or there is no such adapter.
    """
    ask: Any = vars(catalogue.load("models", settings.provider)).get("sampling")
    known = ask(settings) if ask is not None else None
    if known is None:
        return
    asked = [name for name in BEYOND_RESPONSES if name in (overrides.get("extra_body") or {})]
    reasoning = overrides.get("reasoning")
    if isinstance(reasoning, Mapping) and reasoning.get("effort") is not None:
        asked.append("reasoning_effort")
    if lacking := [name for name in asked if name not in known]:
        api = ", asked by the Responses API," if settings.api == "responses" else ""
        raise UsageError(
            f"{settings.provider}/{settings.name}{api} has no {', '.join(lacking)}: leave it out, or name a "
            "model that has it"
        )
