"""Runs a submitted law on many points, inside the sandbox: a script that imports nothing of this project.

It reads ``{"code", "parameters", "points"}`` from its standard input and writes ``{"problem"}`` or
``{"values"}``, with null for a point that the law does not answer with a number. What the law prints is
dropped. The true values never enter the sandbox, so a law that takes over this process cannot know them.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

NAME = "discovered_law"


def main() -> None:
    """Answer the one request."""
    given = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        answer = _answer(given["code"], given["parameters"], given["points"])
    except BaseException as error:  # noqa: BLE001 - what a model's code raises is its result
        answer = {"problem": f"{type(error).__name__}: {str(error)[:500]}"}
    answers.write(json.dumps(answer).encode())
    answers.close()
    os._exit(0)


def _answer(code: str, parameters: list[str], points: list[list[float]]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "submission", "math": math}
    exec(compile(code, "<submission>", "exec", dont_inherit=True), names)
    law = names.get(NAME)
    if not callable(law):
        return {"problem": f"there is no function {NAME}"}
    if list(inspect.signature(law).parameters) != parameters:
        return {"problem": f"the signature is not {NAME}({', '.join(parameters)})", "fits": False}
    return {"values": [_value(law, point) for point in points]}


def _value(law: Callable[..., Any], point: list[float]) -> float | None:
    try:
        value = float(law(*point))
    except Exception:  # noqa: BLE001 - a law may be undefined at a point, and raise anything
        return None
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    main()
