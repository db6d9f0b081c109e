"""Examples of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode


Decode = Callable[[bytes], Any]
