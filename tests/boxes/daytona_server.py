"""A server with as much of Daytona's published API as its package asks for: boxes are real sandboxes.

Source: the requests of the package, github.com/daytonaio/daytona ``libs/api-client-python-async`` and
``libs/toolbox-api-client-python-async``.
"""

from __future__ import annotations

import json
import random
import shlex
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import anyio
from aiohttp import BodyPartReader, MultipartWriter, web
from boxes.e2b_server import HIDDEN, broken
from gym_sandbox import Container

PAGE = 2
FIXED: Mapping[str, Any] = {
    "organizationId": "o",
    "user": "daytona",
    "env": {},
    "public": False,
    "kvm": False,
    "target": "us",
    "cpu": 1,
    "gpu": 0,
    "memory": 1,
    "disk": 3,
}


class DaytonaServer:
    """The server; `run` serves it.

    Attributes:
        url: of the API.
        boxes: those that live, as they are told.
        asked: the bodies of creates.
        faults: what goes wrong next, by the method and the end of the path, as statuses; 0 for an answer
            that is lost, -1 for a connection that stays half-open.
        states: the states in which a box is told to be before it runs.
        words: with which it refuses.
    """

    def __init__(self) -> None:
        self.url = ""
        self.boxes: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.faults: dict[tuple[str, str], list[int]] = {}
        self.states: list[str] = []
        self.words = "no"
        self._containers: dict[str, Container] = {}
        self._snapshots: dict[str, tuple[str, bytes]] = {}

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[DaytonaServer]:
        """Serve on this machine until the block ends."""
        app = web.Application(middlewares=[self._faulty], client_max_size=1 << 30)
        app.add_routes(
            [
                web.post("/api/sandbox", self._create),
                web.get("/api/sandbox", self._list),
                web.get("/api/sandbox/{box}", self._get),
                web.delete("/api/sandbox/{box}", self._end),
                web.post("/api/sandbox/{box}/ttl/{minutes}", self._ttl),
                web.post("/api/sandbox/{box}/snapshot", self._snapshot),
                web.get("/api/snapshots/{name}", self._get_snapshot),
                web.delete("/api/snapshots/{name}", self._forget),
                web.post("/toolbox/{box}/process/execute", self._execute),
                web.post("/toolbox/{box}/files/bulk-upload", self._upload),
                web.post("/toolbox/{box}/files/bulk-download", self._download),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/api"
        try:
            yield self
        finally:
            for container in self._containers.values():
                await container.close()
            await runner.cleanup()

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer key":
            return _error(401, "Unauthorized")
        end = request.path.rpartition("/")[2]
        fault = next(iter(self.faults.get((request.method, end), [])), None)
        if fault is None:
            return await handler(request)
        self.faults[request.method, end].pop(0)
        if fault == -1:
            await anyio.sleep(3600)
        if fault == 0:
            await handler(request)
            return await broken(request)
        return _error(fault, "Total CPU limit exceeded" if fault == 403 else self.words, {"Retry-After": "2"})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.asked.append(asked)
        _, packed = self._snapshots.get(asked["snapshot"], ("", b""))
        name = str(uuid.uuid4())
        told = {**FIXED, "id": name, "name": name, "labels": asked["labels"], "snapshot": asked["snapshot"]}
        told |= {"networkBlockAll": asked["networkBlockAll"], "state": "started"}
        self.boxes[name] = told | {"toolboxProxyUrl": self.url.replace("/api", "/toolbox")}
        container = self._containers[name] = Container(directory="/tmp/user")
        if packed:
            await container.run("cd /tmp/user && tar xz", stdin=packed, timeout_s=60)
        return web.json_response(self._told(name))

    def _told(self, name: str) -> dict[str, Any]:
        box = self.boxes[name]
        return {**box, "state": self.states.pop(0)} if self.states else box

    async def _list(self, request: web.Request) -> web.StreamResponse:
        wanted = json.loads(request.query.get("labels", "{}"))
        after = request.query.get("cursor", "")
        names = [name for name in sorted(self.boxes) if name > after]
        names = [name for name in names if wanted.items() <= self.boxes[name]["labels"].items()]
        more = {"nextCursor": names[PAGE - 1]} if len(names) > PAGE else {"nextCursor": None}
        return web.json_response({"items": [self.boxes[name] for name in names[:PAGE]], **more})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["box"]
        return web.json_response(self._told(name)) if name in self.boxes else _gone()

    async def _end(self, request: web.Request) -> web.StreamResponse:
        box = self.boxes.pop(request.match_info["box"], None)
        if box is None:
            return _gone()
        await self._containers.pop(box["id"]).close()
        return web.json_response({**box, "state": "destroying"})

    async def _ttl(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["box"]
        return web.json_response(self.boxes[name]) if name in self.boxes else _gone()

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["box"]
        packed = await self._containers[name].run("cd /tmp/user && tar cz .", timeout_s=60)
        self._snapshots[(await request.json())["name"]] = (str(uuid.uuid4()), packed.stdout)
        self.states.append("snapshotting")
        return web.json_response(self._told(name))

    async def _get_snapshot(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._snapshots:
            return _gone()
        stamp = "2026-01-01T00:00:00Z"
        told = {"id": self._snapshots[name][0], "name": name, "general": False, "state": "active"}
        told |= {"size": 1, "entrypoint": None, "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "errorReason": None}
        told |= {"createdAt": stamp, "updatedAt": stamp, "lastUsedAt": None, "sourceSandboxId": None}
        return web.json_response(told)

    async def _forget(self, request: web.Request) -> web.StreamResponse:
        named = request.match_info["name"]
        for name, (number, _) in list(self._snapshots.items()):
            if number == named:
                del self._snapshots[name]
                return web.Response()
        return _gone()

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        container = self._containers.get(request.match_info["box"])
        if container is None or self.boxes[request.match_info["box"]]["state"] != "started":
            return _error(400, "bad request: is the Sandbox started?")
        asked = await request.json()
        script = HIDDEN + asked["command"]
        done = await container.run(script, timeout_s=asked["timeout"], output_bytes=1 << 28)
        return web.json_response({"exitCode": done.exit_code, "result": done.stdout.decode()})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        container = self._containers.get(request.match_info["box"])
        if container is None:
            return _error(400, "bad request: is the Sandbox started?")
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and (part.name or "").endswith(".file"):
                name = shlex.quote(unquote(part.filename or ""))
                script = f'mkdir -p "$(dirname {name})" && cat >{name}'
                await container.run(script, stdin=bytes(await part.read()), timeout_s=60)
        return web.Response()

    async def _download(self, request: web.Request) -> web.StreamResponse:
        (path,) = (await request.json())["paths"]
        container = self._containers[request.match_info["box"]]
        done = await container.run(f"cat {shlex.quote(path)}", timeout_s=60, output_bytes=1 << 28)
        answer = MultipartWriter("form-data", boundary=f"b{random.getrandbits(64):x}")
        if done.exit_code:
            error = {"message": "file not found", "statusCode": 404, "code": "FILE_NOT_FOUND"}
            part = answer.append(json.dumps(error), {"Content-Type": "application/json"})  # type: ignore[arg-type]
            part.set_content_disposition("form-data", name="error", filename=path, quote_fields=False)
        else:
            part = answer.append(done.stdout)
            part.set_content_disposition("form-data", name="file", filename=path, quote_fields=False)
        return web.Response(body=answer)


def _gone() -> web.Response:
    return _error(404, "Sandbox or snapshot not found")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    told = {"statusCode": status, "message": message, "error": message}
    return web.json_response(told, status=status, headers=headers)
