"""The Aviary library's own server with its own simplest environment, in its own process.

Run as a script, with the descriptor of a listening socket and a key, it serves until it is killed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

KEY = "key-of-the-tests"
TASKS = 8


def installed() -> bool:
    """Whether the server's packages are."""
    return all(find_spec(name) for name in ("aviary", "fastapi", "uvicorn"))


@contextmanager
def stub_aviary(key: str = KEY) -> Generator[str]:
    """Serve, and give the URL. Requests wait in the socket until the process has begun."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        command = [sys.executable, __file__, str(listening.fileno()), key]
        with subprocess.Popen(command, pass_fds=[listening.fileno()]) as server:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                server.kill()


def serve(descriptor: int, key: str) -> None:
    import uvicorn
    from aviary.core import DummyEnv, Message, TaskDataset, TaskDatasetServer, Tool, ToolRequestMessage

    class Stories(TaskDataset[DummyEnv]):
        def __len__(self) -> int:
            return TASKS

        def get_new_env_by_idx(self, idx: int) -> DummyEnv:
            return DummyEnv(task=["rain", "a fox", "lamps", "letters", "the sea", "x", "y", "z"][idx])

        def get_new_env_by_args(self, **kwargs: Any) -> DummyEnv:
            return Album(**kwargs) if kwargs.pop("album", False) else DummyEnv(**kwargs)

    class Album(DummyEnv):
        """Shows an image at first, and another one with each answer."""

        async def reset(self) -> tuple[list[Message], list[Tool]]:
            messages, tools = await super().reset()
            picture = Message.create_message(text="Look.", images=["data:image/png;base64,AAAA"])
            return [*messages, picture], tools

        async def step(self, action: Message) -> tuple[list[Any], float, bool, bool]:
            done = await super().step(action)
            assert isinstance(action, ToolRequestMessage)
            elsewhere = Message(content=[{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}])
            return [*done[0], elsewhere], *done[1:]

    stub = TaskDatasetServer(Stories(), api_key=key or None)
    assert stub.app is not None
    config = uvicorn.Config(stub.app, log_level="critical")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
