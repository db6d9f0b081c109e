"""The answers of models in roles to an environment: a ledger for each call, linked to its session's log.

The reply to a call says what the roles have cost in the session so far, even if the call fails; a verdict
also has their answers. A call's questions become part of its session once the call has an answer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec import Raw

from gym_runtime.environment.roles import Role, RoleLog
from gym_runtime.environment.shapes import as_features
from gym_runtime.environment.verdict import Pending, Verdict
from gym_runtime.rollout.role_calls import RoleCalls
from gym_runtime.rpc.retry_budget import RetryBudget

_encode = msgspec.json.Encoder().encode
_asking: ContextVar[RoleCalls] = ContextVar("what the call in progress asks models in roles")


class RoleLedger:
    """The ledger of one call.

    Args:
        budget: the call's budget, from which its reply is built.
        asking: the questions of the call; None where the environment has no roles.

    Attributes:
        session: the answers to earlier calls of its session.
    """

    def __init__(self, budget: RetryBudget, asking: RoleCalls | None) -> None:
        self.session = RoleLog()
        self._budget = budget
        self._asking = asking
        if asking is not None:
            # Not reset: a `TaskPool` ends a task whose context was changed, so no later request inherits it.
            _asking.set(asking)

    @property
    def log(self) -> RoleLog:
        """All answers in the session so far."""
        log = RoleLog(self.session.answers, self.session.use)
        if self._asking is not None:
            log.extend(self._asking.log)
        return log

    @contextmanager
    def reported(self) -> Generator[None]:
        """Add what the roles have cost to the reply, even if the block raises."""
        try:
            yield
        finally:
            if self._asking is not None:
                self._budget.role_use = self.log.use

    def keep(self) -> None:
        """The call has an answer: its questions now belong to its session."""
        if self._asking is not None:
            self.session.extend(self._asking.log)

    def pack(self, verdict: Verdict | Pending) -> Raw:
        """A verdict as an answer, with the answers of models in roles.

        Raises:
            ResourceError: the features of a `Pending` are not JSON.
        """
        if isinstance(verdict, Pending):
            return Raw(_encode(self.log.pending(as_features(verdict.features))))
        return Raw(_encode(verdict if self._asking is None else self.log.judged(verdict)))


async def ask_role(role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
    """Ask on behalf of the call in progress: a session, and its models, live longer than one call."""
    return await _asking.get().ask(role, params, items)
