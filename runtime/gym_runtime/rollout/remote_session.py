"""A session as its rollout sees it: the worker that holds it, the keys of its calls, and how it is rebuilt.

The first call carries the task, which opens the session; the answer names the worker that holds it, and later
calls go to that worker. When it is gone, the session is opened on another worker and its calls are repeated,
if the environment is ``replayable``. If an answer then differs from the first one, the environment is not
replayable after all, and the session is lost. A rebuilt session has a name of its own: another attempt may
have the rollout too, and must not find a session of which only a part is repeated.
"""

from __future__ import annotations

import random

import anyio
import msgspec
from msgspec import Raw

from gym_runtime.errors import SessionLost
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.envelope import Envelope
from gym_runtime.rollout.journal import Journal, digest
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.router import RoutedReply, Router


class _Past(msgspec.Struct, frozen=True):
    """A call that the session has answered."""

    call: calls.ResourceCall
    number: int
    answer: str


class RemoteSession:
    """One rollout's session.

    Attributes:
        names: its name, and behind it those that it got when it was rebuilt.
        worker: the worker that holds it; empty before the first call and while it is being rebuilt.
        asked: the workers that may have opened it, also those that never answered: each must be told when
            the session is over.
        rebuilt: how often it was rebuilt.
    """

    def __init__(
        self, task: RolloutSpec, router: Router, budget: RetryBudget, journal: Journal, envelope: Envelope
    ) -> None:
        self.names = [journal.session]
        self.worker = journal.worker
        self.asked = {self.worker} if self.worker else set[str]()
        self.rebuilt = 0
        self._task = task
        self._router = router
        self._budget = budget
        self._journal = journal
        self._envelope = envelope
        self._past: list[_Past] = []
        self._count = 0
        self._rebuilding: anyio.Lock | None = None

    async def ask(
        self,
        call: calls.ResourceCall,
        *,
        repeated: bool = False,
        limit_s: float | None = None,
        instead: Raw = NULL,
    ) -> Raw:
        """The answer to a call: from the journal, or from the worker that holds the session.

        Args:
            repeated: models in roles may have answered to it for an earlier client.
            limit_s: a call that takes longer, in seconds, is given up and counts as answered with
                ``instead``. A rebuilt session does not repeat it: how much of it took effect is not known.

        Raises:
            SessionLost: that worker is gone, and the session cannot be rebuilt.
        """
        # Counted also when the journal answers, so that each call has the same key in every attempt.
        self._count += 1
        number = self._count
        identity = digest(calls.encode(call))
        body = self._journal.environment_answer(identity)
        if body is None:
            answer = await self._deliver(call, number, repeated=repeated, limit_s=limit_s)
            body = instead if answer is None else answer.body
            self._journal.note(identity, body)
        if limit_s is None or body != instead:
            self._remember(call, number, body)
        return body

    async def close(self) -> None:
        """Tell each worker that may hold it that the rollout is over; wait for no answer."""
        for name in self.names:
            # Sorted, because a set's order differs from run to run, and simulated runs must repeat.
            for worker in sorted(self.asked):
                await self._router.closings.add(self._task.environment, worker, name)

    def _remember(self, call: calls.ResourceCall, number: int, body: Raw) -> None:
        if self._task.replayable and not isinstance(call, calls.Verify):
            self._past.append(_Past(call, number, digest(body)))

    async def _deliver(
        self, call: calls.ResourceCall, number: int, *, repeated: bool, limit_s: float | None
    ) -> RoutedReply | None:
        """The answer; None if it took too long, for which the time of rebuilding a session does not count."""
        lost = ""
        while True:
            losses = self._budget.losses
            try:
                if lost and not await self._rebuilt(lost):
                    break
                again = repeated or bool(lost)
                if limit_s is None:  # as nearly always: a scope is not free
                    return await self._send(call, number, repeated=again)
                with anyio.move_on_after(limit_s):
                    return await self._send(call, number, repeated=again)
                return None
            except SessionLost as error:
                if not self._task.replayable:
                    raise
                # A worker that lives and has lost the session counts no loss; without a retry this could go
                # on for ever.
                if self._budget.losses == losses:
                    self._budget.spend(error)
                lost = self.worker or lost
        raise SessionLost(
            f"resource '{self._task.environment}' answered a repeated call differently: its sessions cannot "
            "be rebuilt; declare the environment replayable=False",
            stage="resource",
        )

    async def _rebuilt(self, lost: str) -> bool:
        """Open the session on another worker and repeat its calls; False if an answer differs.

        Tool calls that run concurrently lose their session together; the first one rebuilds it.
        """
        # Almost no rollout needs it.
        self._rebuilding = self._rebuilding or anyio.Lock()
        async with self._rebuilding:
            # Another call may have rebuilt it while this one waited for the lock.
            if self.worker == lost:
                self.worker = ""
                self.rebuilt += 1
                name = f"{self.names[0]}-{random.getrandbits(40):010x}"
                self.names.append(name)
                self._journal.session = name
                for past in self._past:
                    answer = await self._send(past.call, past.number, repeated=True)
                    if digest(answer.body) != past.answer:
                        return False
        return True

    async def _send(self, call: calls.ResourceCall, number: int, *, repeated: bool) -> RoutedReply:
        name = self.names[-1]
        # Only the call that opens it carries the task, because a row may be large.
        opening = not self.worker
        sent = msgspec.structs.replace(call, session=name, task=self._task.row if opening else NULL)
        request = self._envelope(sent, f"{name}.{number}", with_roles=True, repeated=repeated)
        pool = self._task.environment
        if not opening:
            return await self._router.ask_session(pool, self.worker, request, self._budget)
        answer = await self._router.ask("resource", pool, request, self._budget, asked=self.asked)
        self.worker = self._journal.worker = answer.worker
        return answer
