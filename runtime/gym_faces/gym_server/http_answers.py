"""Errors over HTTP, as FastAPI writes them: ``{"detail": "…"}``, one line.

    ======================================  ======  ==============================================
    what happened                           status  what NeMo RL makes of it
    ======================================  ======  ==============================================
    the row is wrong (`TaskError`)          422     a data error
    everything else that a rollout fails of  503    a transport error, which it retries
    ======================================  ======  ==============================================

Either way there is no reward: a failure must not become a 0.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from aiohttp import web
from gym_runtime.errors import Fault, GymError, NotThereYet, TaskError, UsageError
from gym_runtime.timing import RETRY_AFTER_S

from gym_faces.dialects.dialect import Kind, Problem

_STATUS: dict[Kind, int] = {
    "invalid": 422,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "slow": 408,
    "too_large": 413,
    "media_type": 415,
    # No client of NeMo Gym knows 429: it would take it for a fault of the row.
    "rate_limit": 503,
    "overloaded": 503,
    "timeout": 503,
    "internal": 503,
}
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """A status and a body of JSON."""

    status: int
    body: bytes

    def response(self) -> web.Response:
        headers = {"retry-after": f"{RETRY_AFTER_S:g}"} if self.status == 503 else None
        return web.Response(
            status=self.status, body=self.body, content_type="application/json", headers=headers
        )


def refused(problem: Problem) -> Answer:
    """The answer to a request that the server does not take."""
    return _told(_STATUS[problem.kind], problem.message)


def of_error(error: GymError) -> Answer:
    """The answer where something could not be asked of the workers, or they failed."""
    of_the_row = isinstance(error, TaskError | UsageError) and not isinstance(error, NotThereYet)
    return of_fault(error.fault()) if not of_the_row else _told(422, error.message)


def of_fault(fault: Fault) -> Answer:
    """The answer where a rollout failed."""
    where = f"{fault.stage}: " if fault.stage else ""
    return _told(422 if fault.kind == "task" else 503, f"{where}{fault.message or fault.name}")


def _told(status: int, message: str) -> Answer:
    return Answer(status, _encode({"detail": " ".join(message.split())}))
