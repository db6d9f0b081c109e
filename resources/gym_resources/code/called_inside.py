"""Calls a program's function with one input after the other, inside the sandbox.

This script imports nothing of this project. The request holds the program, the function's name and the
inputs, as JSON after its length; each answer is such a message, too. No expected value ever enters the
sandbox, so a program that takes over this process, or writes answers itself, still has to know the right
ones. `tagged` and `untagged` are used on both sides.

All calls run in one process, as with the benchmarks' authors; the values of an input are made for its call.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

LENGTH_BYTES = 8
ERROR_BYTES = 2000
ANSWER_BYTES_AT_MOST = 8 << 20
EXACT_AT_MOST = 1 << 53


def tagged(value: Any) -> Any:
    """A value as JSON that keeps the distinctions of Python's equality; ``{"never": …}`` equals nothing.

    >>> tagged([(1, 2.5), {3}])
    [{'tuple': [1, 2.5]}, {'set': [3]}]
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # numpy's numbers
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= EXACT_AT_MOST else {"int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [tagged(value.real), tagged(value.imag)]}
    if isinstance(value, list):
        return [tagged(element) for element in cast("list[Any]", value)]
    if isinstance(value, tuple | set | frozenset):
        elements = cast("tuple[Any, ...] | set[Any] | frozenset[Any]", value)
        kind = "tuple" if isinstance(elements, tuple) else "set" if isinstance(elements, set) else "frozenset"
        return {kind: [tagged(element) for element in elements]}
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {"dict": [[tagged(key), tagged(element)] for key, element in pairs]}
    return {"never": type(value).__name__}


def untagged(value: Any) -> Any:
    """The value that `tagged` wrote.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: it did not write this.
    """
    if isinstance(value, list):
        return [untagged(element) for element in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = cast("dict[str, Any]", value).items()
    if kind == "int":
        return int(content, 16)
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(*map(untagged, content))
    if kind == "tuple":
        return tuple(map(untagged, content))
    if kind == "set":
        return set(map(untagged, content))
    if kind == "frozenset":
        return frozenset(map(untagged, content))
    if kind == "dict":
        return {untagged(key): untagged(element) for key, element in content}
    return object()


def main(arguments: Sequence[str]) -> None:
    """Answer each input of the request, up to the first that the function does not return from."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    request = json.loads(requests.read(int.from_bytes(requests.read(LENGTH_BYTES), "big")))
    module = ModuleType("solution")
    sys.modules["solution"] = module
    pid = os.getpid()
    try:
        exec(compile(request["code"], "<program>", "exec", dont_inherit=True), module.__dict__)
        function = getattr(module, request["function"])
        for given in request["inputs"]:
            answer = json.dumps({"status": "done", "value": tagged(function(*map(untagged, given)))}).encode()
            if len(answer) > ANSWER_BYTES_AT_MOST:
                answer = b'{"status": "overlong"}'
            answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
            answers.flush()
    except BaseException as error:  # noqa: BLE001 - an exception of a model's program is its result
        said = f"{type(error).__name__}: {error}"[:ERROR_BYTES]
        answer = json.dumps({"status": "raised", "error": said}).encode()
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        answers.flush()
    finally:
        if os.getpid() == pid:
            os._exit(0)  # threads and exit handlers of the program have no say


if __name__ == "__main__":
    main(sys.argv[1:])
