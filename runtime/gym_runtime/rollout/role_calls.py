"""Questions to models in roles over the bus: each is counted, limited and journaled.

A resource worker asks for the environment, on behalf of the request that it executes; an agent worker asks
for the agent. The answer is journaled before it is used, under the rollout's journal, so that the patterns
that delete the journal delete it too. The journal is read only when the request is a repetition, so the
normal case costs one record and no read. Reading from any replica is enough: a missed answer is asked for
again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b

import anyio
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus
from gym_runtime.environment.roles import DIGEST_BYTES, Role, RoleLog, question_digest
from gym_runtime.errors import UNREADABLE, DeadlineExceeded, ModelRefused, ModelUnavailable, TransportError
from gym_runtime.messages import calls
from gym_runtime.messages.responses import decode_items, decode_response
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.rpc.actors import Actors
from gym_runtime.rpc.retry_budget import RetryBudget

# Counts over all rollouts of the process, because `worker` may be the same for several of them.
_numbers = itertools.count()


RoleLimits = dict[tuple[str, str], anyio.Semaphore]
"""How many questions to each role of each environment may be in flight, in one worker."""


@dataclass(eq=False)
class RoleCalls:
    """The questions that one call asks: a call of a resource, or all of an agent's attempt.

    Attributes:
        _bus: where answers are journaled; None for no journal.
        environment: the environment that declares the roles.
        request: the request on whose behalf they are asked: rollout, attempt, deadline, pools of the roles,
            and whether the journal may have answers.
        worker: the asking worker, for the names of the questions.
        log: the answers so far.
    """

    _actors: Actors
    _limits: RoleLimits
    _bus: Bus | None
    _: KW_ONLY
    environment: str
    request: calls.Request[Raw]
    budget: RetryBudget
    worker: str
    log: RoleLog = field(default_factory=RoleLog)
    _times: Counter[str] = field(default_factory=Counter[str])

    async def ask(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        """The response, from the journal or from the model.

        Raises:
            ModelError: the model failed, took longer than the role allows, or cannot be reached.
            DeadlineExceeded: the rollout's deadline passed.
        """
        try:
            return await self._answer(role, params, items)
        except TransportError as error:
            # Unchanged, it would tell a resource's caller that the resource worker cannot be reached.
            kind = ModelUnavailable if error.retryable else ModelRefused
            raise kind(error.message) from error

    async def _answer(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        started_s = clock.monotonic()
        digest = question_digest(role.name, params, items)
        self._times[digest] += 1
        subject = self._subject(digest)
        response = await self._recorded(subject) if subject else None
        if response is None:
            response = await self._asked(role, params, items)
            if subject and self._bus is not None:
                await self._bus.append(subject, bytes(response))
        self.log.note(role.name, digest, items, response, clock.monotonic() - started_s)
        return response

    async def _asked(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        places = anyio.Semaphore(role.concurrency, fast_acquire=True)
        async with self._limits.setdefault((self.environment, role.name), places):
            with tracing.span(f"role {role.name}", {"gym.role": role.name}):
                answer = await self._send(role, calls.ModelCall(params=params, input=list(items)))
        try:
            response = calls.decode_model_answer(answer).response
            # Before it is journaled, where each later attempt would find it and fail, too.
            decode_items(decode_response(response).output)
            return response
        except UNREADABLE as error:
            raise ModelUnavailable(f"role '{role.name}' gave no answer that can be read: {error}") from error

    async def _send(self, role: Role, call: calls.ModelCall) -> Raw:
        asked = self.request
        pool = asked.roles.get(role.name, role.name)
        deadline_s = min(asked.deadline_s, clock.monotonic() + role.timeout_s)
        request = calls.Request(
            body=call,
            deadline_s=deadline_s,
            # The key must be unique: giving up one of two questions with the same key would end both.
            key=f"{self.worker}.{next(_numbers)}",
            rollout=asked.rollout,
            attempt=asked.attempt,
            call_timeout_s=asked.call_timeout_s,
        )
        # A limit here, because a model that lives in this process is called without a message.
        try:
            with anyio.move_on_after(deadline_s - clock.monotonic()):
                return (await self._actors.ask("model", pool, request, self.budget)).body
            raise DeadlineExceeded(f"the deadline passed while waiting for model '{pool}'", stage="model")
        except DeadlineExceeded as error:
            # The rollout's own time is over: the role is not at fault.
            if deadline_s >= asked.deadline_s:
                raise
            raise ModelUnavailable(
                f"model '{pool}' in the role '{role.name}' did not answer within {role.timeout_s:g} s"
            ) from error

    # -- the journal ----------------------------------------------------------------------------------

    def _subject(self, digest: str) -> str:
        """Where the answer is journaled; empty if it is not.

        The same question may be asked several times, in one call (votes) and in several (each step of an
        episode). The call's number, at the end of its key, and the count within the call tell them apart.
        """
        asked = self.request
        if self._bus is None or not asked.durable or not asked.rollout:
            return ""
        run, task_index, rollout_index = asked.rollout.rsplit(".", 2)
        name = f"{digest}.{asked.key.rpartition('.')[2]}.{self._times[digest]}"
        place = blake2b(name.encode(), digest_size=DIGEST_BYTES).hexdigest()
        journal = journal_subject(run, int(task_index), int(rollout_index))
        return f"{journal}.role.{place}"

    async def _recorded(self, subject: str) -> Raw | None:
        if self._bus is None or (not self.request.repeated and self.request.attempt <= 1):
            return None
        found = await self._bus.latest(subject, nearest=True)
        return Raw(found[0].payload) if found else None
