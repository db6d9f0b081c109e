"""A case of an instruction, and what cases of several families share."""

from __future__ import annotations

from typing import Any

LEAST, LESS = "at least", "less than"
PROMPT = "Name a river in Asia."

Case = tuple[dict[str, Any], list[str], list[str]]
"""Arguments, texts that follow the instruction, and texts that do not."""
