"""One measurement: the experiment of a row's system under its law, with its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, cast

from gym_resources.newton.apparatus import APPARATUS, System
from gym_resources.newton.controls import BadExperimentError, Controls
from gym_resources.newton.laws import Law
from gym_resources.newton.motions import Measured

EXACT = {"time", "depth"}
"""What a series is measured at: it is set and not measured."""


def measure(
    module: str,
    system: System,
    law: Law,
    given: Mapping[str, float | None],
    *,
    noise_level: float,
    seed: str,
) -> Measured | dict[str, str] | None:
    """What an experiment shows; None where nothing is defined, or ``{"error": …}``.

    The same seed gives the same noise, and the same chances in systems that have any. Noise is normal, with
    a standard deviation of ``noise_level`` times the value, and at least the module's floor.
    """
    apparatus, random = APPARATUS[module], Random(seed)
    try:
        shown = apparatus.setup(system).run(law, Controls(given), random)
    except BadExperimentError as error:
        return {"error": str(error)}
    except (ArithmeticError, ValueError):
        return None

    def noisy(value: float) -> float:
        if not noise_level or not math.isfinite(value):
            return value
        return random.gauss(value, max(abs(value) * noise_level, apparatus.floor))

    if not isinstance(shown, dict):
        return noisy(shown) if math.isfinite(shown) else None
    return {name: value if name in EXACT else _noisy(value, noisy) for name, value in shown.items()}


def _noisy(value: Any, noisy: Callable[[float], float]) -> Any:
    if isinstance(value, list):
        return [_noisy(one, noisy) for one in cast("list[Any]", value)]
    return noisy(value) if isinstance(value, float) else value
