"""Verification by another environment, in the same process: its verdict, reached as its own workers reach it.

The other environment's rules are used, not its workers: its row fields, its isolated process if it has one,
its second look, its prompts. Its models in roles are those of the environment that asks.
"""

from __future__ import annotations

from msgspec import Raw

from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.roles import Models
from gym_runtime.environment.settings import filled
from gym_runtime.environment.verdict import Pending, Reply, Verdict
from gym_runtime.errors import TaskError, UsageError


class Delegate:
    """Another environment, by a name from data, that verifies in place of the one that asks.

    Args:
        name: one of those that are installed or that the user has named; never a path.
        row: the rollout's row, with the fields that the other environment wants.
        models: the models of the session that asks.

    Raises:
        TaskError: there is no such environment, it keeps a state (it has tools or steps), or it does not
            accept the row.
        UsageError: its packages are missing, or a role that it needs is not declared or has no model.
    """

    def __init__(self, name: str, row: Raw | bytes, models: Models) -> None:
        try:
            self._environment = catalogue.known_environment(name)
        except UsageError as error:
            raise TaskError(error.message) from error
        if self._environment.definition.shape != "verify":
            raise TaskError(f"'{name}' cannot verify for another environment: it keeps a state of its own")
        requirements.require(self._environment)
        roles = self._environment.resource.roles
        missing = [role.name for role in roles if not role.optional and models.get(role.name) is None]
        if missing:
            raise UsageError(
                f"'{name}' verifies here and asks a model in the role '{missing[0]}', and none is given: "
                f"--role {missing[0]}=PROVIDER/NAME; the environment that asks it must declare the role, too"
            )
        self._models = models.under(roles)
        self._row = filled(self._environment, bytes(row), None)
        self._environment.resource.task(self._row)

    async def verify(self, reply: Reply) -> Verdict:
        """Its verdict on a rollout.

        Raises:
            GymError: as its own verification would.
        """
        verdict = await judge_recorded(self._environment, self._row, bytes(reply.raw), self._models)
        if isinstance(verdict, Pending):
            raise TaskError(
                f"'{self._environment.name}' compares whole groups, and cannot verify for another"
            )
        return verdict
