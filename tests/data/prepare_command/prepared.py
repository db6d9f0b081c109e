"""The `prepare` command and what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Capture = pytest.CaptureFixture[str]


Prepare = Callable[..., tuple[int, str]]


Write = Callable[[str, list[Any]], Path]


APPLES_REF = {"type": "responses_api_agents", "name": "apples_env"}


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": f"Say {number}."}, "number": number, **fields}


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
