"""Sends a gateway's calls to the model workers, over the bus."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from gym_runtime.messages import calls
from gym_runtime.rpc import RetryBudget, Router

from gym_faces.gateway.question import Question


class Pools:
    """Asks the pool that a client names as its model, or the first pool if the name is unknown.

    Args:
        names: the pools that clients may use.
        return_tokens: have token ids and log-probabilities reported.
    """

    def __init__(self, router: Router, names: Sequence[str], *, return_tokens: bool) -> None:
        self._router = router
        self._names = tuple(names)
        self._return_tokens = return_tokens

    async def ask(self, question: Question) -> calls.ModelAnswer:
        """
        Raises:
            GymError: as `Router.ask`.
        """
        call = msgspec.structs.replace(question.call, return_tokens=self._return_tokens)
        request = calls.Request(
            body=call,
            deadline_s=question.deadline_s,
            key=f"gateway.{question.key}",
            rollout=question.rollout,
        )
        # Harnesses often have a model name of their own that cannot be changed.
        pool = question.model if question.model in self._names else self._names[0]
        answer = await self._router.ask("model", pool, request, RetryBudget())
        return calls.decode_model_answer(answer.body)
