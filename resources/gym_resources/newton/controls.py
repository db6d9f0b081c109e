"""What a model sets in an experiment, and times and places at which something is measured."""

from __future__ import annotations

from collections.abc import Mapping

SERIES_POINTS = 20
POINTS_AT_MOST = 100


class BadExperimentError(Exception):
    """What the model asked for cannot be measured; it reads why."""


class Controls:
    """The arguments of an experiment; those that a system does not use may be missing."""

    def __init__(self, given: Mapping[str, float | None]) -> None:
        self._given = given

    def __getitem__(self, name: str) -> float:
        value = self._given.get(name)
        if value is None:
            raise BadExperimentError(f"this experiment needs '{name}'")
        return value

    def get(self, name: str, default: float) -> float:
        """A value that has a default."""
        value = self._given.get(name)
        return default if value is None else value

    def times(self, duration_s: float, step_s: float) -> list[float]:
        """The first times of a motion: at most `SERIES_POINTS`, however long it lasts."""
        duration, step = self.get("duration", duration_s), self.get("time_step", step_s)
        if not (duration > 0 and step > 0):
            raise BadExperimentError("'duration' and 'time_step' must be greater than 0")
        return [step * number for number in range(int(min(SERIES_POINTS - 1, duration / step)) + 1)]

    def points(self) -> int:
        """How many values a series has."""
        return int(min(max(2, self.get("num_points", SERIES_POINTS)), POINTS_AT_MOST))


def spread(end: float, points: int) -> list[float]:
    """So many values from 0 to the end, in equal steps."""
    return [end * number / (points - 1) for number in range(points)]
