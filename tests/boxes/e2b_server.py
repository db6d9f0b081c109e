"""A server with E2B's published API, for tests: boxes that are real sandboxes, and faults on request.

It keeps what a provider keeps (boxes, their metadata, when they expire) and counts what happened, so that a
test can ask whether ever too many boxes lived, and whether any was left over. Commands run in
`gym_sandbox.Container`.

Source: the API as in `gym_boxes.e2b`.
"""

from __future__ import annotations

import base64
import json
import random
import shlex
import struct
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, unquote

import anyio
import anyio.lowlevel
from aiohttp import BodyPartReader, web
from gym_sandbox import Container

FAULTS = (
    "create_answer_lost",
    "create_lost",
    "create_late",
    "create_refused_429",
    "create_refused_409",
    "create_fails_500",
    "half_open",
    "slow",
    "end_answer_lost",
    "end_refused_409",
    "box_dies",
    "garbage",
)
"""What may go wrong; clocks jump at the callers (`gym_testing.virtual_clock`)."""
PAGE = 50
# The folder of a command of `Container` has a random name, which no real box would show.
HIDDEN = """room=${0%/*}; mv "$room" /tmp/.gym-envd; trap 'mv /tmp/.gym-envd "$room"' EXIT
"""


class Box:
    """A box as the server has it."""

    def __init__(self, asked: Mapping[str, Any], seen_s: float) -> None:
        self.asked = dict(asked)
        self.template: str = asked["templateID"]
        self.metadata: dict[str, str] = asked.get("metadata") or {}
        self.expires_s, self.seen_s = time.monotonic() + asked.get("timeout", 15), seen_s
        self.container = Container(directory="/tmp/user")
        self.files: dict[str, bytes] = {}


class E2BServer:
    """The server; `run` serves it.

    Args:
        faults: how often each of `FAULTS` happens, from 0 to 1.
        late_s: within which time a late box appears in the list.
        per_s: more creates than this in a second are refused; None for no limit.

    Attributes:
        url: of the API and of the boxes' agents.
        boxes: those that live.
        counts: how often what happened: ``created``, ``ended``, ``expired``, and each fault.
        most: how many boxes lived at a time at most.
        templates: of which boxes were made.
        times: when boxes were created, by the steady clock.
    """

    def __init__(
        self,
        faults: Mapping[str, float] | None = None,
        *,
        late_s: float = 1.0,
        per_s: int | None = None,
        seed: int = 0,
    ) -> None:
        self.url = ""
        self.boxes: dict[str, Box] = {}
        self.counts: Counter[str] = Counter()
        self.most = 0
        self.templates: set[str] = set()
        self.times: list[float] = []
        self.faults = dict(faults or {})
        self._late_s, self._per_s, self._chance = late_s, per_s, random.Random(seed)
        self._snapshots: dict[str, dict[str, bytes]] = {}

    def expire(self) -> None:
        """Drop the boxes whose time is over."""
        for name in [name for name, box in self.boxes.items() if box.expires_s < time.monotonic()]:
            del self.boxes[name]
            self.counts["expired"] += 1

    @asynccontextmanager
    async def run(self, port: int = 0) -> AsyncGenerator[E2BServer]:
        """Serve on this machine until the block ends."""
        app = web.Application(middlewares=[self._faulty], client_max_size=1 << 30)
        app.add_routes(
            [
                web.post("/sandboxes", self._create),
                web.post("/v2/sandboxes", self._create),
                web.get("/v2/sandboxes", self._list),
                web.delete("/sandboxes/{box}", self._end),
                web.post("/sandboxes/{box}/timeout", self._timeout),
                web.post("/sandboxes/{box}/connect", self._connect),
                web.post("/v2/sandboxes/{box}/connect", self._connect),
                web.post("/sandboxes/{box}/snapshots", self._snapshot),
                web.delete("/templates/{template}", self._forget),
                web.post("/process.Process/Start", self._start),
                web.post("/files", self._put),
                web.get("/files", self._get),
                web.get("/stats", self._stats),
                web.get("/health", self._health),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            for box in self.boxes.values():
                await box.container.close()
            await runner.cleanup()

    def _happens(self, fault: str) -> bool:
        happens = self._chance.random() < self.faults.get(fault, 0.0)
        self.counts[fault] += happens
        return happens

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.expire()
        if request.path == "/stats":
            return await handler(request)
        if request.headers.get("X-API-Key") != "key" and "E2b-Sandbox-Id" not in request.headers:
            return _error(401, "no such key")
        if self._happens("half_open"):
            await anyio.sleep(3600)
        if self._happens("slow"):
            await anyio.sleep(self._chance.uniform(0, self._late_s))
        if self._happens("garbage"):
            return web.Response(text="<html>maintenance</html>", status=200)
        return await handler(request)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        now_s = time.monotonic()
        if self._per_s is not None and sum(one > now_s - 1 for one in self.times[-1000:]) >= self._per_s:
            self.counts["too_fast"] += 1
            return _error(429, "too many creates", {"Retry-After": "1"})
        for fault, status in (
            ("create_refused_429", 429),
            ("create_refused_409", 409),
            ("create_fails_500", 500),
        ):
            if self._happens(fault):
                return _error(status, fault, {"Retry-After": "0.2"} if status == 429 else {})
        if self._happens("create_lost"):
            return await broken(request)
        late_s = self._chance.uniform(0, self._late_s) if self._happens("create_late") else 0.0
        name = f"i{random.getrandbits(64):016x}"
        box = self.boxes[name] = Box(asked, now_s + late_s)
        self.templates.add(box.template)
        box.files.update(self._snapshots.get(asked["templateID"], {}))
        self.counts["created"] += 1
        self.times.append(now_s)
        self.most = max(self.most, len(self.boxes))
        if late_s or self._happens("create_answer_lost"):
            return await broken(request)
        return web.json_response(self._about(name), status=201)

    def _about(self, name: str) -> dict[str, Any]:
        about = {"templateID": self.boxes[name].template, "sandboxID": name, "clientID": "c"}
        return {**about, "envdVersion": "0.5.0", "envdAccessToken": f"t-{name}", "domain": None}

    async def _list(self, request: web.Request) -> web.StreamResponse:
        # Keys and values are quoted within the query that the parameter is.
        wanted = parse_qsl(request.query.get("metadata", ""))
        after = request.query.get("nextToken", "")
        rows: list[dict[str, Any]] = []
        for name, box in sorted(self.boxes.items()):
            if self._happens("box_dies"):
                del self.boxes[name]
                self.counts["died"] += 1
                continue
            fits = all(box.metadata.get(unquote(key)) == unquote(value) for key, value in wanted)
            if name > after and fits and box.seen_s <= time.monotonic():
                stamps = {"startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T00:00:00Z"}
                sizes = {"cpuCount": 2, "memoryMB": 512, "diskSizeMB": 512, "state": "running"}
                rows.append({**self._about(name), **stamps, **sizes, "metadata": box.metadata})
        page = rows[:PAGE]
        headers = {"x-next-token": page[-1]["sandboxID"]} if len(rows) > PAGE else {}
        return web.json_response(page, headers=headers)

    async def _end(self, request: web.Request) -> web.StreamResponse:
        if self._happens("end_refused_409"):
            return _error(409, "it is being paused")
        box = self.boxes.pop(request.match_info["box"], None)
        if box is None:
            return _error(404, "no such sandbox")
        self.counts["ended"] += 1
        await box.container.close()
        if self._happens("end_answer_lost"):
            return await broken(request)
        return web.Response(status=204)

    async def _timeout(self, request: web.Request) -> web.StreamResponse:
        if (box := self.boxes.get(request.match_info["box"])) is None:
            return _error(404, "no such sandbox")
        box.expires_s = time.monotonic() + (await request.json())["timeout"]
        return web.Response(status=204)

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["box"]
        if name not in self.boxes:
            return _error(404, "no such sandbox")
        return web.json_response(self._about(name))

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        if (box := self.boxes.get(request.match_info["box"])) is None:
            return _error(404, "no such sandbox")
        packed = await box.container.run("cd /tmp/user && tar cz .", timeout_s=60)
        template = f"s{random.getrandbits(64):016x}"
        self._snapshots[template] = {**box.files, "": packed.stdout}
        return web.json_response({"snapshotID": template, "names": [template]}, status=201)

    async def _forget(self, request: web.Request) -> web.StreamResponse:
        known = self._snapshots.pop(request.match_info["template"], None)
        return _error(404, "no such template") if known is None else web.Response(status=204)

    def _of_agent(self, request: web.Request) -> Box | None:
        name = request.headers.get("E2b-Sandbox-Id", "")
        allowed = request.headers.get("X-Access-Token") == f"t-{name}"
        return self.boxes.get(name) if allowed else None

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=502 if self._of_agent(request) is None else 204)

    async def _start(self, request: web.Request) -> web.StreamResponse:
        if (box := self._of_agent(request)) is None:
            return _error(502, "The sandbox was not found")
        body = await request.read()
        asked = json.loads(body[5 : 5 + struct.unpack(">BI", body[:5])[1]])["process"]
        if (packed := box.files.pop("", None)) is not None:
            await box.container.run("cd /tmp/user && tar xz", stdin=packed, timeout_s=60)
        answer = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await answer.prepare(request)
        await answer.write(_frame({"event": {"start": {"pid": 7}}}))
        done = await box.container.run(HIDDEN + shlex.join([asked["cmd"], *asked["args"]]), timeout_s=600)
        for stream in ("stdout", "stderr"):
            if data := getattr(done, stream):
                said = {stream: base64.b64encode(data).decode()}
                await answer.write(_frame({"event": {"data": said}}))
        code = -1 if done.exit_code is None else done.exit_code
        end = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
        await answer.write(_frame({"event": {"end": end}}))
        await answer.write(_frame({}, flags=2))
        return answer

    async def _put(self, request: web.Request) -> web.StreamResponse:
        if (box := self._of_agent(request)) is None:
            return _error(502, "The sandbox was not found")
        path = request.query.get("path", "")
        parts = await request.multipart()
        part = await parts.next()
        path = path or getattr(part, "filename", None) or ""
        data = await part.read() if isinstance(part, BodyPartReader) else b""
        name = shlex.quote(path)
        script = f'mkdir -p "$(dirname {name})" && cat >{name}'
        await box.container.run(script, stdin=bytes(data), timeout_s=60)
        return web.json_response([{"path": path, "name": path.rpartition("/")[2], "type": "file"}])

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if (box := self._of_agent(request)) is None:
            return _error(502, "The sandbox was not found")
        script = f"cat {shlex.quote(request.query['path'])}"
        done = await box.container.run(script, timeout_s=60, output_bytes=1 << 28)
        return _error(404, "no such file") if done.exit_code else web.Response(body=done.stdout)

    async def _stats(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({**self.counts, "alive": len(self.boxes), "most": self.most})


def _frame(body: object, flags: int = 0) -> bytes:
    data = json.dumps(body).encode()
    return struct.pack(">BI", flags, len(data)) + data


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"code": status, "message": message}, status=status, headers=headers)


async def broken(request: web.Request) -> web.StreamResponse:
    """The connection ends without an answer."""
    if request.transport is not None:
        with suppress(OSError):
            request.transport.abort()
    await anyio.lowlevel.checkpoint()
    return web.Response()
