"""nats-py's client, imported without aiohttp.

That is there for WebSockets, which we do not offer, and would cost every process a tenth of a second and nine
MiB. Who needs both in one process imports ``nats`` first.
"""

from __future__ import annotations

import sys
from typing import Any, cast

_KEPT_OUT = "aiohttp" not in sys.modules
if _KEPT_OUT:
    cast(Any, sys.modules)["aiohttp"] = None
try:
    from nats import errors
    from nats.aio.client import Client, Server, Srv
finally:
    if _KEPT_OUT:
        del sys.modules["aiohttp"]

__all__ = ["Client", "Server", "Srv", "errors"]
