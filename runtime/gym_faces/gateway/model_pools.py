"""A call that the gateway passes on to a model, and the pools of model workers that answer it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from gym_runtime.adapters import ModelAnswer, ModelCall
from gym_runtime.messages import Request, decode_model_answer
from gym_runtime.rpc import RetryBudget, Router


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A call for a model.

    Attributes:
        rollout: its id; empty if the client named none.
        model: the name that the client used.
        key: unique, also the id of the captured call.
    """

    rollout: str
    model: str
    call: ModelCall
    key: str
    deadline_s: float


Ask = Callable[[Question], Awaitable[ModelAnswer]]


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

    async def ask(self, question: Question) -> ModelAnswer:
        """
        Raises:
            GymError: as `Router.ask`.
        """
        call = msgspec.structs.replace(question.call, return_tokens=self._return_tokens)
        request = Request(
            body=call,
            deadline_s=question.deadline_s,
            key=f"gateway.{question.key}",
            rollout=question.rollout,
        )
        # Many harnesses have a fixed model name.
        pool = question.model if question.model in self._names else self._names[0]
        answer = await self._router.ask("model", pool, request, RetryBudget())
        return decode_model_answer(answer.body)
