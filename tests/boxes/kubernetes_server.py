"""A server with Kubernetes' published API of pods and commands, for tests: pods are real sandboxes.

It knows as much as `gym_boxes.kubernetes` needs: pods are created, read, listed by labels in pages and
deleted; commands run over web sockets by the subprotocol v5.channel.k8s.io. Commands run in
`gym_sandbox.Container`.

Source: as of `gym_boxes.kubernetes`.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web
from boxes.e2b_server import HIDDEN, broken
from gym_sandbox import Container

PODS = "/api/v1/namespaces/{namespace}/pods"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
PAGE = 2


class KubernetesServer:
    """The server; `run` serves it.

    Attributes:
        url: of the API.
        pods: those that are there, as they were asked for, with their status.
        policies: the names of network policies.
        counts: how often what happened.
        lose: so many answers to creates are lost.
        busy: so many network policies are refused with 429.
    """

    def __init__(self) -> None:
        self.url = ""
        self.pods: dict[str, dict[str, Any]] = {}
        self.policies: list[str] = []
        self.counts: Counter[str] = Counter()
        self.lose = self.busy = 0
        self._containers: dict[str, Container] = {}

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[KubernetesServer]:
        """Serve on this machine until the block ends."""
        app = web.Application(middlewares=[self._known])
        app.add_routes(
            [
                web.post(PODS, self._create),
                web.get(PODS, self._list),
                web.get(PODS + "/{pod}", self._get),
                web.delete(PODS + "/{pod}", self._delete),
                web.get(PODS + "/{pod}/exec", self._exec),
                web.post(POLICIES, self._policy),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            for container in self._containers.values():
                await container.close()
            await runner.cleanup()

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer token":
            return _status(401, "Unauthorized")
        return await handler(request)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        pod: dict[str, Any] = await request.json()
        name: str = pod["metadata"]["name"]
        if name in self.pods:
            return _status(409, f'pods "{name}" already exists')
        self.counts["created"] += 1
        container = self._containers[name] = Container(directory="/tmp/user")
        pod["status"] = {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "Pulling"}}}],
        }
        self.pods[name] = pod
        await container.start()
        if self.lose:
            self.lose -= 1
            return await broken(request)
        return web.json_response(pod, status=201)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if (pod := self.pods.get(request.match_info["pod"])) is None:
            return _status(404, "not found")
        answer = web.json_response(pod)
        if pod["status"]["phase"] == "Pending":  # the next look finds it running
            pod["status"] = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
        return answer

    async def _list(self, request: web.Request) -> web.StreamResponse:
        key, _, value = request.query["labelSelector"].partition("=")
        after = request.query.get("continue", "")
        fits = sorted(name for name, pod in self.pods.items() if pod["metadata"]["labels"].get(key) == value)
        left = [name for name in fits if name > after]
        page = left[:PAGE]
        meta = {"continue": page[-1]} if len(left) > PAGE else {}
        return web.json_response(
            {"kind": "PodList", "metadata": meta, "items": [self.pods[one] for one in page]}
        )

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["pod"]
        if self.pods.pop(name, None) is None:
            return _status(404, "not found")
        self.counts["deleted"] += 1
        await self._containers.pop(name).close()
        return _status(200, "")

    async def _policy(self, request: web.Request) -> web.StreamResponse:
        if self.busy:
            self.busy -= 1
            return _status(429, "too many requests")
        name = (await request.json())["metadata"]["name"]
        if name in self.policies:
            return _status(409, "already exists")
        self.policies.append(name)
        return _status(201, "")

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["pod"]
        if name not in self.pods:
            return _status(404, "not found")
        if self.pods[name]["status"]["phase"] != "Running":
            return _status(400, "container is not running")
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), max_msg_size=0)
        await socket.prepare(request)
        given = bytearray()
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                if message.data[:2] == b"\xff\x00":
                    break
                given += message.data[1:]
        script = HIDDEN + shlex.join(request.query.getall("command"))
        done = await self._containers[name].run(
            script, stdin=bytes(given), timeout_s=600, output_bytes=64 << 20
        )
        for channel, data in ((b"\1", done.stdout), (b"\2", done.stderr)):
            for start in range(0, len(data), 1 << 16):
                await socket.send_bytes(channel + data[start : start + (1 << 16)])
        if done.exit_code == 0:
            status: dict[str, Any] = {"status": "Success"}
        else:
            cause = {"reason": "ExitCode", "message": str(done.exit_code)}
            status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        await socket.send_bytes(b"\3" + json.dumps(status).encode())
        await socket.close()
        return socket


def _status(code: int, message: str) -> web.Response:
    kind = "Success" if code < 300 else "Failure"
    about = {"kind": "Status", "apiVersion": "v1", "status": kind, "message": message, "code": code}
    return web.json_response(about, status=code)
