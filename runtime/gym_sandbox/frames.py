"""Requests and answers between a worker and its verifiers: named functions, typed arguments, typed results.

Only a module's function can be called. Its parameters and its result must be annotated with types that
msgspec can decode; both sides decode what they receive as these types, so received data is never executed.
Arguments are sent as MessagePack, answers as JSON.

A frame is a length of 8 bytes, followed by so many bytes: for a request `REQUEST` and the arguments, for an
answer `ANSWER` and its data.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import struct
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from gym_sandbox.sandbox_errors import FunctionRaised

T = TypeVar("T")

LENGTH = struct.Struct("!Q")
REQUEST = struct.Struct("!Qd")
"""A request's number; the seconds of processor time that it may take, infinity for no limit."""
ANSWER = struct.Struct("!QBB")
"""The request's number, or 0 if it was not read; how it ended; whether the process takes no further one."""
ANSWERED, DIED, OVERRAN = 0, 1, 2
"""How a request ends, and its data: `CallDone` or `CallFailed`; the reason of the fork's end; nothing."""
ANSWER_BYTES = 16 << 20
ANSWER_CONTAINERS, ANSWER_VALUES = 100_000, 340_000
"""A reply may have taken over the fork that answers, and the worker's event loop decodes the answer."""
TEXTS_BYTES = 4 << 20
"""Of a longer answer brackets and commas in texts count, too."""
MESSAGE_CHARACTERS = 4000


LARGE_PAGES = ("PYTHONMALLOC=malloc", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
"""Settings of a fork server's own memory. For each fork the kernel copies an entry for each page; with large
pages an isolated verification costs 2.8 to 3.0 ms of processor time, without them 2.7 to 4.6."""


class Start(msgspec.Struct, frozen=True):
    """The first message to a fork server.

    Attributes:
        function: the function that it calls for each request, in the form of `name`.
        explain: the function that describes the other function's exception, as `explained`.
        prepare: a function that it calls once before, with texts as arguments, for imports; empty for none.
            If it returns True, a fork serves several requests in turn, because nothing in them is executed.
        variables: its environment variables.
        isolated: it is in namespaces of its sandbox, and not only limited.
    """

    function: str
    explain: str
    prepare: str = ""
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    isolated: bool = True


class CallDone(msgspec.Struct, frozen=True, tag="done"):
    """The function returned this."""

    result: msgspec.Raw


class CallFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The function raised: the fields of `FunctionRaised`."""

    name: str
    message: str
    stage: str = ""

    def error(self) -> FunctionRaised:
        """The error to raise in the worker."""
        return FunctionRaised(self.name, self.message[:MESSAGE_CHARACTERS], self.stage[:MESSAGE_CHARACTERS])


Explain = Callable[[BaseException], CallFailed]


def explained(error: BaseException) -> CallFailed:
    """A function's exception, by class and text. This runs in the fork."""
    return CallFailed(type(error).__name__, f"{type(error).__name__}: {error}")


encode_start = msgspec.json.Encoder().encode
decode_start = msgspec.json.Decoder(Start).decode
encode_answer = msgspec.json.Encoder().encode
decode_answer: Callable[[bytes], CallDone | CallFailed] = msgspec.json.Decoder(CallDone | CallFailed).decode
encode_arguments = msgspec.msgpack.Encoder().encode
encode_result = msgspec.json.Encoder().encode


def is_decodable(answer: bytes) -> bool:
    """Whether decoding an answer takes less than 50 ms."""
    # So short that it cannot have too many values.
    if len(answer) < ANSWER_CONTAINERS or _has_few_values(answer):
        return True
    if len(answer) > TEXTS_BYTES:
        return False
    # Brackets and commas may be in texts, such as a reply of nothing but brackets. Without escapes, every
    # second part between quotes is a text.
    bare = answer.replace(rb"\\", b"").replace(rb"\"", b"")
    # Each part becomes an object here, and again when the answer is decoded.
    return bare.count(b'"') <= 2 * ANSWER_CONTAINERS and _has_few_values(b"".join(bare.split(b'"')[::2]))


def decoded(decode: Callable[[bytes], T], foreign: bytes, *, counted: bytes | None = None) -> T:
    """Foreign JSON, in less than 50 ms. A thread would not help: a decoder holds the interpreter's lock.

    Args:
        counted: the part of it whose values are decoded, if `decode` leaves others raw.

    Raises:
        msgspec.DecodeError: it is malformed, or has too many values (`is_decodable`).
        RecursionError: it is nested too deep.
        UnicodeError: a text is not UTF-8.
    """
    if not is_decodable(foreign if counted is None else counted):
        raise msgspec.DecodeError(
            f"it has more than {ANSWER_CONTAINERS:,} objects and lists, or more than {ANSWER_VALUES:,} values"
        )
    return decode(foreign)


def _has_few_values(json: bytes) -> bool:
    return json.count(b"{") + json.count(b"[") <= ANSWER_CONTAINERS and json.count(b",") <= ANSWER_VALUES


def name(function: Callable[..., object]) -> str:
    """``module:function``.

    Raises:
        TypeError: it is not a module's function that can be imported.
    """
    # "<locals>" and "<lambda>" cannot be imported.
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise TypeError(f"{function.__qualname__} is not the function of a module that can be imported")
    return f"{function.__module__}:{function.__qualname__}"


def find(named: str) -> Callable[..., Any]:
    """The function of a name."""
    module, _, function = named.partition(":")
    # The name may have dots, as that of a method has.
    return operator.attrgetter(function)(importlib.import_module(module))


@cache
def argument_decoder(function: Callable[..., Any]) -> Callable[[bytes | memoryview], tuple[Any, ...]]:
    """Reads the arguments of a function from MessagePack."""
    hints = typing.get_type_hints(function)
    types = tuple(hints[parameter] for parameter in inspect.signature(function).parameters)
    wanted: Any = tuple[types] if types else tuple[()]
    return msgspec.msgpack.Decoder(wanted).decode


@cache
def result_decoder(function: Callable[..., Any]) -> Callable[[msgspec.Raw], Any]:
    """Reads the result of a function from JSON."""
    return msgspec.json.Decoder(typing.get_type_hints(function)["return"]).decode
