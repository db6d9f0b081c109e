"""The envelope of an attempt's requests: deadline, rollout and attempt."""

from __future__ import annotations

from typing import Any

from gym_runtime import clock
from gym_runtime.errors import DeadlineExceeded
from gym_runtime.messages import calls
from gym_runtime.messages.rollout_spec import RolloutSpec


class Envelope:
    """Builds an attempt's requests.

    It holds no reference to the rollout, because that would keep the whole transcript in memory.

    Attributes:
        deadline_s: the rollout's deadline, by `gym_runtime.clock.monotonic`.
    """

    __slots__ = ("_attempt", "_rollout", "_task", "deadline_s")

    def __init__(self, task: RolloutSpec, attempt: int, left_s: float) -> None:
        self.deadline_s = clock.monotonic() + left_s
        self._task = task
        self._rollout = task.rollout_id
        self._attempt = attempt

    def __call__(
        self, call: object, key: str, *, with_roles: bool = False, repeated: bool = False
    ) -> calls.Request[Any]:
        """The request for a call and its key.

        Args:
            with_roles: the receiver may ask models in roles.
            repeated: it was delivered before, and a worker may have executed it.

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
            durable=with_roles and bool(self._task.roles) and self._task.durability == "turn",
            repeated=repeated,
            call_timeout_s=self._task.call_timeout_s,
        )
