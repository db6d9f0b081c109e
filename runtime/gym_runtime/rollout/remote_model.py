"""The model as a rollout sees it: the worker that keeps its conversation, and which items are new.

A rollout asks the worker that answered it last, whose engine has its prefix cached, and sends it only the
items that this worker has not kept. A worker that does not have the conversation, because it is another one
or has dropped it, gets all items and the tokens so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Raw

from gym_runtime.errors import ConversationUnknown, ModelUnavailable
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL, Response, decode_response
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.envelope import Envelope
from gym_runtime.rollout.journal import DIGEST_BYTES, Journal
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.router import Router


class RemoteModel:
    """One attempt's model.

    Args:
        conversation: the name under which workers keep this attempt's conversation.
    """

    def __init__(
        self,
        task: RolloutSpec,
        conversation: str,
        router: Router,
        budget: RetryBudget,
        journal: Journal,
        envelope: Envelope,
    ) -> None:
        self._task = task
        # A worker need not keep the conversation of a rollout with one turn.
        self._name = "" if task.max_turns == 1 else conversation
        self._key = conversation
        self._router = router
        self._budget = budget
        self._journal = journal
        self._envelope = envelope
        self._calls = 0
        self._worker = ""
        self._kept = 0
        self._prefix: calls.Prefix | None = None
        self._items: list[Raw] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    async def ask(self, params: Raw, items: Sequence[Raw]) -> tuple[Response, calls.ModelAnswer]:
        """The model's answer to a conversation: from the journal, or from a worker and then journaled.

        Raises:
            GymError: the model refused, or stayed unavailable up to the deadline.
        """
        self._follow(items)
        identity = self._identity(params) if self._task.durability == "turn" else ""
        body = self._journal.model_answer(identity)
        if body is None:
            body = await self._asked(params, items)
            await self._journal.store(identity, body)
        response, answer = _decoded(body)
        self._extend(response.output)
        self._prefix = calls.prefix_after(answer.tokens, len(self._items))
        self._kept = answer.kept if self._worker and answer.kept == len(self._items) else 0
        return response, answer

    async def ask_apart(
        self, params: Raw, items: Sequence[Raw], prefix: calls.Prefix | None
    ) -> tuple[Response, calls.ModelAnswer]:
        """The answer to a separate conversation: not journaled, not kept; calls may run concurrently.

        Raises:
            GymError: as `ask`.
        """
        call = calls.ModelCall(
            params=params, input=list(items), return_tokens=self._task.return_tokens, prefix=prefix
        )
        return _decoded(await self._send(call))

    async def _asked(self, params: Raw, items: Sequence[Raw]) -> Raw:
        tokens, known = self._task.return_tokens, self._kept
        if known:
            new = calls.ModelCall(
                params=NULL,
                input=list(items[known:]),
                return_tokens=tokens,
                conversation=self._name,
                known=known,
            )
            try:
                return await self._send(new)
            except ConversationUnknown:
                self._kept = 0
        return await self._send(
            calls.ModelCall(
                params=params,
                input=list(items),
                return_tokens=tokens,
                conversation=self._name,
                prefix=self._prefix,
            )
        )

    async def _send(self, call: calls.ModelCall) -> Raw:
        self._calls += 1
        request = self._envelope(calls.pack(call), f"{self._key}.m{self._calls}")
        answer = await self._router.ask("model", self._task.model, request, self._budget, prefer=self._worker)
        self._worker = answer.worker
        return answer.body

    def _follow(self, items: Sequence[Raw]) -> None:
        """Add the items since the last answer; start over if earlier items have changed."""
        known = len(self._items)
        if known > len(items) or any(
            old is not new and old != new for old, new in zip(self._items, items, strict=False)
        ):
            self._items, known = [], 0
            self._hash = blake2b(digest_size=DIGEST_BYTES)
            self._prefix, self._kept = None, 0
        self._extend(items[known:])

    def _extend(self, items: Sequence[Raw]) -> None:
        for item in items:
            self._hash.update(item)
            self._hash.update(b"\n")
        self._items += items

    def _identity(self, params: Raw) -> str:
        whole = self._hash.copy()
        whole.update(params)
        return whole.hexdigest()


def _decoded(body: Raw) -> tuple[Response, calls.ModelAnswer]:
    try:
        answer = calls.decode_model_answer(body)
        return decode_response(answer.response), answer
    except msgspec.DecodeError as error:
        raise ModelUnavailable(f"the model's answer is not a response: {error}", stage="model") from error
