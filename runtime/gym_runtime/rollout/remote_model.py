"""An attempt's model, which is sent only what is new; and the envelope of all requests of the attempt.

A rollout asks the worker that answered it last, whose engine has its prefix cached, and sends only the items
that this worker has not kept. Another worker, or one that has dropped the conversation, gets all items and
the tokens so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gym_runtime import clock
from gym_runtime.errors import (
    UNREADABLE,
    ConversationUnknown,
    DeadlineExceeded,
    ModelUnavailable,
    TaskError,
    UsageError,
    leaf,
)
from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import ID_BYTES, Ids, Prefix, ids_after
from gym_runtime.messages.responses import NULL, Item, Response, decode_items, decode_response
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.journal import DIGEST_BYTES, Journal
from gym_runtime.rpc.actors import Actors
from gym_runtime.rpc.retry_budget import RetryBudget


class Envelope:
    """Builds an attempt's requests.

    It holds no reference to the rollout, because that would keep the whole transcript in memory.

    Attributes:
        deadline_s: the rollout's deadline, by `gym_runtime.clock.monotonic`.
    """

    def __init__(self, task: RolloutSpec, attempt: int, left_s: float) -> None:
        self.deadline_s = clock.monotonic() + left_s
        self._task = task
        self._rollout = task.rollout_id
        self._attempt = attempt

    def __call__(
        self,
        call: object,
        key: str,
        *,
        with_roles: bool = False,
        repeated: bool = False,
        opening: bool = False,
    ) -> calls.Request[Any]:
        """The request for a call and its key.

        Args:
            with_roles: the receiver may ask models in roles.
            repeated: it was delivered before, and a worker may have executed it.
            opening: it opens a session, which may save its state.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        # Checked here, so that no request is sent that its receiver would refuse for its deadline.
        if clock.monotonic() >= self.deadline_s:
            raise DeadlineExceeded(
                f"the rollout took longer than {self._task.timeout_s:.0f} s", stage="agent"
            )
        return calls.Request(
            body=call,
            deadline_s=self.deadline_s,
            key=key,
            rollout=self._rollout,
            attempt=self._attempt,
            roles=self._task.roles if with_roles else {},
            role_sampling=self._task.role_sampling if with_roles else {},
            durable=self._task.durability == "turn" and (opening or (with_roles and bool(self._task.roles))),
            # Of a rollout that was taken up, an attempt that left no note may have made the same calls.
            repeated=repeated or self._task.taken_up,
            call_timeout_s=self._task.call_timeout_s,
        )


class Answered(NamedTuple):
    """A model's answer. A shortened prompt continues ``before``; ``after`` includes this answer's tokens."""

    response: Response
    answer: calls.ModelAnswer
    items: list[Item]
    before: Ids = ()
    after: Ids = ()


@dataclass(eq=False)
class RemoteModel:
    """One attempt's model.

    Attributes:
        _conversation: the name under which workers keep this attempt's conversation.
    """

    _task: RolloutSpec
    _conversation: str
    _actors: Actors
    _budget: RetryBudget
    _journal: Journal
    _envelope: Envelope
    _calls: int = 0
    _answered: bool = False
    _worker: str = ""
    _kept: int = 0
    _mark: int = 0
    _ids: Ids = ()
    _covered: int = 0
    _sampled: int = 0
    _params: Raw = field(default_factory=lambda: NULL)
    _items: list[Raw] = field(default_factory=list[Raw])
    _hash: blake2b = field(default_factory=lambda: blake2b(digest_size=DIGEST_BYTES))
    _storing: anyio.Lock = field(default_factory=anyio.Lock)  # each record names the one before it

    def another(self, pool: str, name: str) -> RemoteModel:
        """Another model of this attempt, whose conversation workers keep under its own name."""
        task, conversation = replace(self._task, model=pool), f"{self._conversation}.{name}"
        return RemoteModel(task, conversation, self._actors, self._budget, self._journal, self._envelope)

    async def ask(self, params: Raw, items: Sequence[Raw]) -> Answered:
        """The model's answer to a conversation: from the journal, or from a worker and then journaled.

        Raises:
            GymError: the model refused, or stayed unavailable up to the deadline.
        """
        if params != self._params:  # the worker keeps the old tools, so the whole prompt is sent again
            self._params, self._kept, self._ids = params, 0, ()
        self._follow(items)
        identity = _identity(params, before=self._hash) if self._task.durability == "turn" else ""
        body = self._journal.model_answer(identity)
        if body is None:
            await self._journal.turn()
            body, answered = await self._asked(params, items)
            # Stored before the answer is used, or a resumed attempt could diverge.
            await self._journal.store(identity, body)
        else:
            answered = _decoded(body)
        self._answered = True
        response, answer, output, _, _ = answered
        self._extend(response.output)
        before, self._ids = self._ids, ids_after(answer.tokens, self._ids)
        self._covered = len(self._items)
        self._sampled = len(answer.tokens.generation_ids) // ID_BYTES if answer.tokens else 0
        # The worker must have kept exactly this conversation; after an answer from the journal, that worker
        # may be gone.
        self._kept = answer.kept if self._worker and answer.kept == len(self._items) else 0
        self._mark = answer.mark
        return Answered(response, answer, output, before, self._ids)

    async def ask_each(self, params: Raw, conversations: Sequence[Sequence[Raw]]) -> list[Answered]:
        """The answers to separate conversations, asked at the same time; each is journaled on arrival.

        Raises:
            GymError: as `ask`.
        """
        durable = self._task.durability == "turn"
        identities = [_identity(params, items) if durable else "" for items in conversations]
        bodies = self._journal.model_answers(identities)
        answers = [None if body is None else _decoded(body) for body in bodies]
        if None in answers:
            await self._journal.turn()

        async def one(index: int) -> None:
            body, answers[index] = await self._send(params, conversations[index], first=True)
            async with self._storing:
                await self._journal.store(identities[index], body)

        try:
            async with anyio.create_task_group() as tasks:
                for index, answered in enumerate(answers):
                    if answered is None:
                        tasks.start_soon(one, index)
        except BaseExceptionGroup as group:
            # The caller handles single errors, as if it had made a single call.
            raise leaf(group) from group
        return [answered for answered in answers if answered is not None]

    async def ask_apart(
        self,
        params: Raw,
        items: Sequence[Raw],
        prefix: Prefix | None = None,
        *,
        note: Raw | None = None,
        past: int | None = None,
    ) -> Answered:
        """The answer to a separate conversation: not kept; calls may run concurrently.

        Args:
            note: what the caller recognises the call by in a later attempt; without one it is not journaled.
            past: the place of the recorded turn that this call repeats; its answer is used.

        Raises:
            GymError: as `ask`.
        """
        if past is not None:
            return _decoded(self._journal.answer_of(past))
        if note is not None:
            await self._journal.turn()
        body, answered = await self._send(params, items, prefix=prefix)
        if note is not None:
            async with self._storing:
                await self._journal.store("", body, note)
        return answered

    async def _asked(self, params: Raw, items: Sequence[Raw]) -> tuple[Raw, Answered]:
        # A worker need not keep the conversation of a rollout with one turn.
        name = "" if self._task.max_turns == 1 else self._conversation
        kept: dict[str, Any] = {"conversation": name, "brief": bool(self._ids)}
        if known := self._kept:
            try:
                return await self._send(NULL, items[known:], known=known, mark=self._mark, **kept)
            except ConversationUnknown:
                self._kept = 0
        prefix = None
        if self._ids:
            prefix = Prefix(ids=b"".join(self._ids), items=self._covered, completion=self._sampled)
        return await self._send(params, items, prefix=prefix, first=not self._answered, **kept)

    async def _send(self, params: Raw, items: Sequence[Raw], **fields: Any) -> tuple[Raw, Answered]:
        if not (items or self._calls or self._answered):
            _check_asks(params)
        tokens = self._task.return_tokens
        call = calls.ModelCall(params=params, input=list(items), return_tokens=tokens, **fields)
        # Each try has a new key: aborting one must not abort the next.
        self._calls += 1
        request = self._envelope(call, f"{self._conversation}.m{self._calls}")
        answer = await self._actors.ask("model", self._task.model, request, self._budget, prefer=self._worker)
        self._worker = answer.worker
        # Decoded before it is journaled, where each later attempt would find it and fail, too.
        return answer.body, _decoded(answer.body)

    def _follow(self, items: Sequence[Raw]) -> None:
        """Add the items since the last answer; start over if earlier items have changed."""
        known = len(self._items)
        # Lists are compared by identity first: nearly all items are the same objects, and may be long.
        if self._items != list(items[:known]):
            self._items, known = [], 0
            self._hash = blake2b(digest_size=DIGEST_BYTES)
            self._ids, self._kept = (), 0
        self._extend(items[known:])

    def _extend(self, items: Sequence[Raw]) -> None:
        _hash(self._hash, items)
        self._items += items


def _check_asks(params: Raw) -> None:
    # Not when the row is read: an environment, or an agent, may begin the conversation.
    asked = msgspec.json.decode(params, type=dict[str, Raw])
    if all(asked.get(name, NULL) == NULL for name in ("instructions", "prompt", "previous_response_id")):
        what = "the row has no input, and neither its environment nor its agent begins the conversation"
        raise TaskError(f"{what}: there is nothing to answer", stage="agent")


def _identity(params: Raw, items: Sequence[Raw] = (), before: blake2b | None = None) -> str:
    # A copy of the state, so that a long conversation is not hashed again for each turn.
    whole = before.copy() if before else blake2b(digest_size=DIGEST_BYTES)
    _hash(whole, items)
    whole.update(params)
    return whole.hexdigest()


def _hash(whole: blake2b, items: Sequence[Raw]) -> None:
    for item in items:
        try:
            whole.update(item)
        except TypeError as error:
            what = f"an item of the conversation is {item!r}; it must be JSON: user_message(TEXT), or Raw(…)"
            raise UsageError(what, stage="agent") from error
        whole.update(b"\n")


def _decoded(body: Raw) -> Answered:
    try:
        answer = calls.decode_model_answer(body)
        # A slice would keep the whole body in memory, with the ids that are decoded already.
        response = answer.response.copy() if answer.tokens is not None else answer.response
        decoded = decode_response(response)
        return Answered(decoded, answer, decode_items(decoded.output))
    except UNREADABLE as error:
        raise ModelUnavailable(f"the model's answer is not a response: {error}", stage="model") from error
