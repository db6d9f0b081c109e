"""What can go wrong, sorted by whose fault it is.

    GymError
    ├── UsageError            the caller's: a bad flag, file, name or setting; one line with the remedy
    │   └── NotThereYet       nothing answers at an address; it may later, so ``--wait`` asks again
    ├── TaskError             the row's: a field is missing or has the wrong type; never retried
    ├── ModelError            the engine's
    │   ├── ModelRefused      it refused the request: bad key, unknown model, content filter; never retried
    │   ├── ModelUnavailable  overloaded, unreachable or cut off; retried within the rollout's budget
    │   │   └── ModelLimited  it is up, and limits how often it is asked (429)
    │   ├── UnusableAnswer    a judge's answer was cut short or has no label; never retried
    │   ├── ConversationUnknown  the worker has not kept the conversation; it is sent again in full
    │   └── StaleWeights      sampled from weights older than the run allows; the rollout starts again
    ├── ResourceError         the environment's: a verifier raised, or its reward is not a finite number
    │   ├── AssetMissing      a file that the row needs is not on the worker's machine; never retried
    │   ├── ReplayDiffers     a repeated call of a forked rollout is answered differently; never retried
    │   ├── ServiceUnavailable  a service outside is down or not configured, or its quota is used up
    │   └── SessionLost       the worker that held the session's state is gone; the rollout starts again
    ├── TransportError        the connection between two workers
    │   ├── NoWorker          no worker serves this subject
    │   ├── Busy              every candidate is at its capacity
    │   ├── ConnectionLost    the connection to the broker broke while waiting
    │   ├── BrokerError       the broker refuses or lacks what the runtime needs
    │   └── PayloadTooLarge   a message is larger than the broker takes
    ├── DeadlineExceeded      the rollout's one deadline passed; *not* an engine's own time limit
    ├── Fenced                another attempt has taken over this rollout; this one stops without a record
    ├── JournalMismatch       the agent's calls differ from its journal; the rollout starts again
    └── RuntimeFault          ours: a bug; please report it

An error has two axes: ``kind`` (whose fault it is) and ``retryable`` (whether the same request may succeed
later). A failure is never a reward: it travels as a `Fault` and ends as a ``failed`` outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import ClassVar, SupportsIndex, cast

import msgspec

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeError)
"""What msgspec raises for a text that it cannot decode: malformed, nested too deep, or not UTF-8."""

NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError)
"""What msgspec raises for a value that it cannot encode: of another type, too large, or within itself."""


MOST_MESSAGE_CHARACTERS = 4000
"""Of a fault: an exception may quote all that a model wrote, and what is too large is not delivered."""
MESSAGE_END_CHARACTERS = 300


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it is sent between workers and written to a failure row."""

    kind: str
    name: str = "GymError"
    message: str = ""
    stage: str = ""
    retryable: bool = False

    @property
    def outage(self) -> bool:
        """Whether something outside the rollout was missing: an engine, a worker, the broker, or time."""
        if self.kind == "transport":
            return self.name != "PayloadTooLarge"
        return self.kind == "deadline" or (self.kind == "model" and self.retryable)


class GymError(Exception):
    """Any error of this runtime.

    ``stage`` names where it happened (``model``, ``tool``, ``verify`` …). Code that does not know it leaves
    it empty, and a caller fills it in.
    """

    kind: ClassVar[str] = "runtime"
    retryable: bool = False

    def __init__(self, message: str = "", *, stage: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage

    def fault(self) -> Fault:
        """This error in its wire form. A class of another module goes by the nearest one of this module.

        Of a long message `MOST_MESSAGE_CHARACTERS` are kept, with its end, where the place or the remedy is.
        Half a surrogate pair in it, which UTF-8 cannot hold, becomes a question mark.
        """
        said = self.message
        if len(said) > MOST_MESSAGE_CHARACTERS:
            beginning = said[: MOST_MESSAGE_CHARACTERS - MESSAGE_END_CHARACTERS]
            said = f"{beginning} … {said[-MESSAGE_END_CHARACTERS:]}"
        return Fault(
            kind=self.kind,
            name=next(cls.__name__ for cls in type(self).__mro__ if _BY_NAME.get(cls.__name__) is cls),
            message=said.encode(errors="replace").decode(),
            stage=self.stage,
            retryable=self.retryable,
        )


class UsageError(GymError):
    """The caller's: a bad flag, file, name or setting."""

    kind = "usage"


def require_at_least(least: int, **values: object) -> None:
    """Check arguments, given by their names.

    Raises:
        UsageError: one is no whole number, or is less than ``least``.
    """
    for name, value in values.items():
        if not isinstance(value, SupportsIndex) or index(value) < least:
            raise UsageError(f"{name} is {value!r}; it must be a whole number of at least {least}")


class NotThereYet(UsageError):
    """Nothing answers where a setting says that something is: it may not have started yet."""

    retryable = True


class TaskError(GymError):
    """The row's: a field is missing or has the wrong type."""

    kind = "task"


class ModelError(GymError):
    """The engine's."""

    kind = "model"


class ModelRefused(ModelError):
    """The engine refused the request for good; asking again changes nothing.

    ``any_call``: any other call would be refused as well, because the URL, the key or the model's name is
    wrong; only the process that asked the engine knows this.
    """

    def __init__(self, message: str = "", *, stage: str = "", any_call: bool = False) -> None:
        super().__init__(message, stage=stage)
        self.any_call = any_call


class ModelUnavailable(ModelError):
    """Overloaded, unreachable, or cut off in mid-answer.

    ``retry_after_s`` is the pause in seconds that the engine asked for, or None.
    """

    retryable = True

    def __init__(self, message: str = "", *, stage: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, stage=stage)
        self.retry_after_s = retry_after_s


class ModelLimited(ModelUnavailable):
    """The engine is up, and limits how often it is asked (429)."""


class UnusableAnswer(ModelError):
    """A model in a role answered, and its answer cannot be used: it was cut short, or has no label.

    It is not retryable, because the answer is journaled: a second attempt would read the same one.
    """


class ConversationUnknown(ModelError):
    """The worker has not kept the conversation that a call continues; the caller must send it in full."""

    retryable = True


class StaleWeights(ModelError):
    """The rollout was sampled from weights older than its run allows."""

    retryable = True


class ResourceError(GymError):
    """The environment's: a verifier raised, or its reward is not a finite number."""

    kind = "resource"


class AssetMissing(ResourceError):
    """A file that the row needs, which the project does not ship, is not on the worker's machine."""


class ReplayDiffers(ResourceError):
    """A call that a fork repeats in a new session is answered differently than it was recorded."""


class ServiceUnavailable(ResourceError):
    """A service outside that the environment needs does not serve it: it is down, or its quota is used up.

    It is retryable where the same request may succeed soon.
    """

    def __init__(self, message: str = "", *, stage: str = "", retryable: bool = False) -> None:
        super().__init__(message, stage=stage)
        self.retryable = retryable


class SessionLost(ResourceError):
    """The worker that held the session's state is gone, or has forgotten it."""

    retryable = True


class TransportError(GymError):
    """The connection between two workers failed."""

    kind = "transport"
    retryable = True


class NoWorker(TransportError):
    """No worker serves this subject."""


class Busy(TransportError):
    """Every candidate is at its capacity."""


class ConnectionLost(TransportError):
    """The connection to the broker broke while waiting for an answer."""


class BrokerError(TransportError):
    """The broker refuses a request, lacks a feature that the runtime needs, or is ``silent``.

    ``final``: it does not take us, or we do not trust it; another attempt would end the same way.
    """

    retryable = False

    def __init__(
        self, message: str = "", *, stage: str = "", silent: bool = False, final: bool = False
    ) -> None:
        super().__init__(message, stage=stage)
        self.silent = silent
        self.final = final


class PayloadTooLarge(TransportError):
    """A message is larger than the broker takes, headers included."""

    retryable = False


class DeadlineExceeded(GymError):
    """The rollout's one deadline passed."""

    kind = "deadline"


class Fenced(GymError):
    """Another attempt has taken over this rollout."""


class JournalMismatch(GymError):
    """The agent's calls differ from its journal: its code or its settings changed."""

    retryable = True


class RuntimeFault(GymError):
    """A bug of this runtime."""


def _tree(cls: type[GymError]) -> dict[str, type[GymError]]:
    found = {cls.__name__: cls}
    for sub in cls.__subclasses__():
        found |= _tree(sub)
    return found


_BY_NAME = _tree(GymError)


def from_fault(fault: Fault) -> GymError:
    """The error that a `Fault` describes.

    An unknown name, which a newer peer may send, becomes a `RuntimeFault` with the fault's own retryability.
    """
    cls = _BY_NAME.get(fault.name, RuntimeFault)
    error = cls(fault.message, stage=fault.stage)
    error.retryable = fault.retryable
    return error


def described(error: BaseException) -> str:
    """A foreign exception by class and text, also if it cannot make its text.

    >>> described(ValueError("boom")), described(AssertionError())
    ('ValueError: boom', 'AssertionError')
    """
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - foreign code
        return f"{type(error).__name__}, whose text cannot be made"


def leaf(error: BaseException) -> BaseException:
    """The one exception of a group, nested or not, that decides what happens next.

    `Fenced` comes first, because another attempt has taken over whatever else happened. Then come this
    runtime's errors that are not retryable, this runtime's other errors, other exceptions, and last a
    cancellation. Among equals the first one is returned.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    return min(_leaves(cast("BaseExceptionGroup[BaseException]", error)), key=_rank)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", inner))
        else:
            yield inner


def _rank(error: BaseException) -> int:
    if isinstance(error, Fenced):
        return 0
    if isinstance(error, GymError):
        return 2 if error.retryable else 1
    return 3 if isinstance(error, Exception) else 4
