"""A server of the tests' own that speaks Aviary's protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
import pytest
from data.web.site import Site, site
from gym_resources.aviary_episodes import task_server
from resources.aviary.remote.wrong_answers import saying

TOOL = {"function": {"name": "add", "parameters": {"properties": {"x": {"type": "number"}}}}}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    task_server._swept.clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Site]:
    """A server that answers as it should, until a test changes that."""
    quick = msgspec.structs.replace(task_server.SERVER, timeout_s=15.0, size_bytes=100_000)
    monkeypatch.setattr(task_server, "SERVER", quick)
    monkeypatch.setenv("AVIARY_SERVER_API_KEY", "a-secret")
    async with site() as found:
        monkeypatch.setenv("AVIARY_SERVER_URL", f"{found.url}/")
        for path, answer in {
            "close_old_envs": {"closed_env_ids": []},
            "info": {"dataset_size": None, "running_env_ids": []},
            "start": {"env_id": "e"},
            "reset": [[{"role": "user", "content": "Add."}], [TOOL]],
            "step": [[{"role": "tool", "content": "3", "tool_call_id": "c", "name": "add"}], 1, True, False],
            "close": {"env_id": "e"},
        }.items():
            found.answers[f"/{path}"] = saying(answer)
        yield found
