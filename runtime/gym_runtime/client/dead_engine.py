"""Whether an engine has answered only errors, so that it is of no use to go on with a run."""

from __future__ import annotations

from gym_runtime.client.client import Client
from gym_runtime.rpc.members import fresh


async def dead_engine(client: Client, model: str) -> str:
    """The engine's last error, if every worker of the model has had only errors so far; else empty."""
    asked = [one for one in await client.workers() if one.kind == "model" and model in one.pools]
    said = [one.detail.get("only_errors", "") for one in await fresh(client.driver.bus, asked)]
    return said[0] if said and all(said) else ""
