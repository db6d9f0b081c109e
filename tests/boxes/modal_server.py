"""A server with as much of Modal's gRPC services as its package asks for: boxes are real sandboxes.

The services are the package's own generated ones: the control plane, and the router of the boxes' commands.
"""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from boxes.e2b_server import HIDDEN
from gym_sandbox import Container

PAGE = 2
TOKEN = "a.eyJleHAiOiA0MTAyNDQ0ODAwfQ.c"
"""It expires in the year 2100."""


class Box:
    """A box as the server has it."""

    def __init__(self, request: Any, number: int) -> None:
        self.definition, self.tags = request.definition, request.tags
        self.created_s = time.time() + number * 1e-3
        self.alive = True
        self.container = Container(directory="/tmp/user")


class Command:
    """A command that has been started; it runs when its input is whole."""

    def __init__(self, box: Box, args: list[str]) -> None:
        self.box, self.args = box, args
        self.stdin = bytearray()
        self.done = anyio.Event()
        self.output: dict[int, bytes] = {}
        self.code = 0


class ModalServer:
    """The server; `run` serves it.

    Attributes:
        url: of the control plane.
        boxes: all that were made.
        asked: the requests of creates.
        faults: what goes wrong next, by the method, as names of gRPC's statuses; ``LOST`` is an answer
            that is lost, ``HANGS`` one that never comes.
    """

    def __init__(self) -> None:
        self.url = ""
        self.boxes: dict[str, Box] = {}
        self.asked: list[Any] = []
        self.faults: dict[str, list[str]] = {}
        self._ending = anyio.Event()
        self._images: dict[str, bytes] = {}
        self._commands: dict[str, Command] = {}

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[ModalServer]:
        """Serve on this machine until the block ends."""
        from grpclib.server import Server
        from modal_proto.api_grpc import ModalClientBase
        from modal_proto.task_command_router_grpc import TaskCommandRouterBase

        server = Server([self._service(ModalClientBase), self._service(TaskCommandRouterBase)])
        await server.start("127.0.0.1", 0)
        host, port = server._server.sockets[0].getsockname()[:2]  # type: ignore[union-attr]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            for box in self.boxes.values():
                await box.container.close()
            self._ending.set()
            server.close()
            await server.wait_closed()

    def alive(self) -> list[str]:
        """The ids of the boxes that live."""
        return [name for name, box in self.boxes.items() if box.alive]

    def _service(self, base: Any) -> Any:
        """The generated service with our methods; the others are not there."""
        methods = {name: self._handler(name) for name in base.__abstractmethods__}
        return type(base.__name__, (base,), methods)()

    def _handler(self, name: str) -> Callable[[Any, Any], Any]:
        from grpclib import GRPCError, Status

        does = getattr(self, f"_{name}", None)

        async def handle(_: Any, stream: Any) -> None:
            if does is None:
                raise GRPCError(Status.UNIMPLEMENTED, name)
            request = await stream.recv_message()
            fault = next(iter(self.faults.get(name, [])), "")
            if fault:
                self.faults[name].pop(0)
            if fault == "HANGS":
                await self._ending.wait()
            if fault and fault != "LOST":
                raise GRPCError(Status[fault], "no")
            if stream.metadata.get("x-modal-token-secret", "secret") != "secret":
                raise GRPCError(Status.UNAUTHENTICATED, "no such token")
            answer = await does(request)
            if fault == "LOST":
                raise GRPCError(Status.UNAVAILABLE, "the answer is lost")
            for one in answer if isinstance(answer, list) else [answer]:
                await stream.send_message(one)

        return handle

    async def _AppGetOrCreate(self, request: Any) -> Any:
        return _of("AppGetOrCreateResponse", app_id=f"ap-{request.app_name}")

    async def _EnvironmentGetOrCreate(self, request: Any) -> Any:
        settings = _of("EnvironmentSettings", image_builder_version="2025.06")
        told = _of("EnvironmentMetadata", name="main", settings=settings)
        return _of("EnvironmentGetOrCreateResponse", environment_id="en-1", metadata=told)

    async def _AuthTokenGet(self, request: Any) -> Any:
        return _of("AuthTokenGetResponse", token=TOKEN)

    async def _ImageFromId(self, request: Any) -> Any:
        self._require(request.image_id in self._images)
        return _of("ImageFromIdResponse", image_id=request.image_id)

    async def _ImageGetOrCreate(self, request: Any) -> Any:
        done = _of("GenericResult", status=1)
        return _of("ImageGetOrCreateResponse", image_id="im-registry", result=done)

    async def _ImageDelete(self, request: Any) -> Any:
        from google.protobuf.empty_pb2 import Empty

        self._require(self._images.pop(request.image_id, None) is not None)
        return Empty()

    async def _SandboxCreateV2(self, request: Any) -> Any:
        self.asked.append(request)
        names = {self.boxes[name].definition.name for name in self.alive()}
        self._require(request.definition.name not in names, "ALREADY_EXISTS")
        name = f"sb-{random.getrandbits(64):x}V"
        box = self.boxes[name] = Box(request, len(self.boxes))
        if packed := self._images.get(request.definition.image_id):
            await box.container.run("cd /tmp/user && tar xz", stdin=packed, timeout_s=60)
        return _of("SandboxCreateV2Response", sandbox_id=name, task_id=f"ta-{name}")

    async def _SandboxGetFromNameV2(self, request: Any) -> Any:
        named = [one for one in self.alive() if self.boxes[one].definition.name == request.sandbox_name]
        self._require(bool(named))
        return _of("SandboxGetFromNameResponse", sandbox_id=named[0])

    async def _SandboxGetTaskIdV2(self, request: Any) -> Any:
        self._box(request.sandbox_id)
        return _of("SandboxGetTaskIdResponse", task_id=f"ta-{request.sandbox_id}")

    async def _SandboxGetCommandRouterAccess(self, request: Any) -> Any:
        self._box(request.sandbox_id)
        return _of("SandboxGetCommandRouterAccessResponse", url=self.url, jwt=TOKEN)

    async def _SandboxWaitV2(self, request: Any) -> Any:
        self._require(request.sandbox_id in self.boxes)
        if self.boxes[request.sandbox_id].alive:
            return _of("SandboxWaitResponse")
        return _of("SandboxWaitResponse", result=_of("GenericResult", status=4))

    async def _SandboxListV2(self, request: Any) -> Any:
        wanted = [(tag.tag_name, tag.tag_value) for tag in request.tags]
        rows: list[Any] = []
        for name in sorted(self.alive(), key=lambda name: -self.boxes[name].created_s):
            box = self.boxes[name]
            has = [(tag.tag_name, tag.tag_value) for tag in box.tags]
            before = request.before_timestamp
            if all(tag in has for tag in wanted) and (not before or box.created_s < before):
                rows.append(_of("SandboxInfo", id=name, created_at=box.created_s))
        return _of("SandboxListResponse", sandboxes=rows[:PAGE])

    async def _SandboxTagsGetV2(self, request: Any) -> Any:
        return _of("SandboxTagsGetResponse", tags=self._box(request.sandbox_id).tags)

    async def _SandboxTerminateV2(self, request: Any) -> Any:
        self._require(request.sandbox_id in self.boxes)
        box = self.boxes[request.sandbox_id]
        box.alive = False
        await box.container.close()
        return _of("SandboxTerminateResponse")

    async def _TaskExecStart(self, request: Any) -> Any:
        box = self._box(request.task_id.removeprefix("ta-"))
        self._commands[request.exec_id] = Command(box, list(request.command_args))
        return _of("TaskExecStartResponse")

    async def _TaskExecStdinWrite(self, request: Any) -> Any:
        command = self._commands[request.exec_id]
        command.stdin[request.offset :] = request.data
        if request.eof:
            script = HIDDEN + shlex.join(command.args)
            done = await command.box.container.run(
                script, stdin=bytes(command.stdin), timeout_s=60, output_bytes=1 << 28
            )
            command.output = {0: done.stdout, 1: done.stderr}
            command.code = 137 if done.exit_code is None else done.exit_code
            command.done.set()
        return _of("TaskExecStdinWriteResponse")

    async def _TaskExecStdioRead(self, request: Any) -> Any:
        command = self._commands[request.exec_id]
        await command.done.wait()
        data = command.output[request.file_descriptor][request.offset :]
        parts = [data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)]
        return [_of("TaskExecStdioReadResponse", data=part) for part in parts]

    async def _TaskExecWait(self, request: Any) -> Any:
        command = self._commands[request.exec_id]
        await command.done.wait()
        return _of("TaskExecWaitResponse", code=command.code)

    async def _TaskSnapshotFilesystem(self, request: Any) -> Any:
        box = self._box(request.task_id.removeprefix("ta-"))
        packed = await box.container.run("cd /tmp/user && tar cz .", timeout_s=60)
        image = f"im-{random.getrandbits(64):x}"
        self._images[image] = packed.stdout
        return _of("TaskSnapshotFilesystemResponse", image_id=image)

    def _box(self, name: str) -> Box:
        self._require(name in self.boxes and self.boxes[name].alive)
        return self.boxes[name]

    def _require(self, holds: bool, status: str = "NOT_FOUND") -> None:
        from grpclib import GRPCError, Status

        if not holds:
            raise GRPCError(Status[status], "it is not there" if status == "NOT_FOUND" else "it is there")


def _of(name: str, /, **fields: Any) -> Any:
    """A message of one of the two services."""
    from modal_proto import api_pb2, task_command_router_pb2

    kind = getattr(api_pb2, name, None) or getattr(task_command_router_pb2, name)
    return kind(**fields)
