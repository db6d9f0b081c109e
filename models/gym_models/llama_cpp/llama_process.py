"""The engine's process: started, waited for, ended."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import anyio
import msgspec
from gym_runtime import UsageError

START_LIMIT_S = 60.0
_END_LIMIT_S = 2.0
_SHOWN_CHARS = 300


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve, and how.

    Attributes:
        slots: calls that are generated at the same time.
        context_tokens: what one conversation may hold, answer included.
        threads: threads that compute; more threads than free cores slow down all of them.
    """

    weights: Path
    name: str
    slots: int
    context_tokens: int
    threads: int
    template: Path | None = None

    def command(self) -> list[str]:
        arguments = ["--name", self.name, "--slots", str(self.slots), "--threads", str(self.threads)]
        arguments += ["--context-tokens", str(self.context_tokens)]
        if self.template is not None:
            arguments += ["--template", str(self.template)]
        return [sys.executable, "-m", "gym_models.llama_cpp.llama_server", str(self.weights), *arguments]


class ServerProcess:
    """llama.cpp's server as a child. Ready when entered; ``url`` is its base URL.

    It runs in its own session, so Ctrl-C at the terminal does not reach it: this process stops it. It exits
    by itself when this process dies.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.url = ""

    async def __aenter__(self) -> Self:
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError('the embedded model needs xllamacpp: pip install "gym-runtime[embedded]"')
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __aexit__
        self._process = await anyio.open_process(
            self._launch.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            # llama.cpp busy-waits by default, which takes the core from all other processes.
            env={**os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"},
        )
        try:
            with anyio.move_on_after(START_LIMIT_S):
                self.url = await self._first_line()
            if not self.url:
                raise UsageError(
                    f"the embedded model {self._launch.weights} did not start: {self.last_words()}"
                )
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _first_line(self) -> str:
        assert self._process.stdout is not None
        received = b""
        while b"\n" not in received:
            try:
                received += await self._process.stdout.receive()
            except anyio.EndOfStream:
                return ""
        return received.partition(b"\n")[0].decode()

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                await self._process.stdin.aclose()
            with anyio.move_on_after(_END_LIMIT_S):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
            await self._process.aclose()
            self._log.close()

    def last_words(self) -> str:
        """The last error on its standard error, else the last line."""
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in said if "error" in line.lower() or "fail" in line.lower()]
        return (errors or said or ["no output"])[-1][:_SHOWN_CHARS]
