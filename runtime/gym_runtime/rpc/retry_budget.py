"""How often one rollout may ask again, over all of its hops and attempts."""

from __future__ import annotations

from gym_runtime.errors import GymError

RETRIES = 32


class Budget:
    """Retries that are left. A hop's share travels with its request, and what it spent with its answer.

    Attributes:
        left: retries that remain.
        spent: retries that were taken.
    """

    def __init__(self, retries: int = RETRIES) -> None:
        self.left = retries
        self.spent = 0

    def spend(self, error: GymError) -> None:
        """Take one retry.

        Raises:
            GymError: ``error`` itself, when none is left.
        """
        if self.left <= 0:
            raise error
        self.take(1)

    def take(self, retries: int) -> None:
        """Count what another hop has spent."""
        self.left -= retries
        self.spent += retries
