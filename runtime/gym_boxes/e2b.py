"""Boxes of E2B, and of services that speak its API.

Settings: ``E2B_API_KEY``; ``E2B_DOMAIN`` (``e2b.app``), or ``E2B_API_URL`` and ``E2B_SANDBOX_URL`` for
servers of one's own. A box's label is in its metadata. Commands and files go to envd, the agent in each
box: commands by the Connect protocol (JSON in frames of five bytes and a body), files by plain HTTP.

Source: the published API, e2b.dev/docs/api-reference and github.com/e2b-dev/E2B, ``spec/`` (Apache-2.0).
"""

from __future__ import annotations

import base64
import os
import shlex
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import ResourceError, UsageError
from gym_runtime.errors import UNREADABLE
from gym_runtime.escapes import shown

from gym_boxes.answers import body_of, told
from gym_boxes.provider import BOX_ID, GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran, seconds_after

CALL_S = 30.0
CREATE_S = 60.0
GRACE_S = 10.0
"""Beyond a command's own limit, which `timeout` enforces in the box."""
KEPT_BYTES = 1 << 20
FRAME_BYTES = 2 << 20
ENVD_PORT = 49983
USER = "user"
PAGE = 100
_END_OF_STREAM, _COMPRESSED = 2, 1
KILLED = 137
ACCOUNT = "gym-account"
LABEL = "gym-label"


T = TypeVar("T")
BoxId = Annotated[str, msgspec.Meta(pattern=rf"^{BOX_ID}\Z")]


class _Box(msgspec.Struct, frozen=True, kw_only=True):
    sandbox_id: BoxId = msgspec.field(name="sandboxID")
    domain: str | None = None
    token: str = msgspec.field(name="envdAccessToken", default="")


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    sandbox_id: str = msgspec.field(name="sandboxID")
    metadata: dict[str, str] | None = None


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_id: str = msgspec.field(name="snapshotID")


class _Data(msgspec.Struct, frozen=True):
    stdout: str = ""
    stderr: str = ""


class _End(msgspec.Struct, frozen=True):
    code: int = msgspec.field(name="exitCode", default=0)
    status: str = ""
    exited: bool = True


class _Event(msgspec.Struct, frozen=True):
    data: _Data | None = None
    end: _End | None = None


class _Frame(msgspec.Struct, frozen=True):
    event: _Event = _Event()


class _Trailer(msgspec.Struct, frozen=True):
    error: dict[str, Any] | None = None


class E2B:
    """The provider `gym_boxes.Provider` of one API key.

    Args:
        api_url: of the API; by default that of the domain.
        sandbox_url: where the boxes' agents are reached; by default each box has an address in the domain.
    """

    def __init__(
        self, api_key: str, *, domain: str = "e2b.app", api_url: str = "", sandbox_url: str = ""
    ) -> None:
        from aiohttp import ClientSession, ClientTimeout

        self._domain, self._sandbox_url = domain, sandbox_url.rstrip("/")
        self._api = (api_url or f"https://api.{domain}").rstrip("/")
        self._key, self._headers = api_key, {"X-API-Key": api_key}
        self._known: dict[str, _Box] = {}
        # Not compressed: a few bytes of a box would become any number here.
        plain = {"Accept-Encoding": "identity"}
        self._make = lambda: ClientSession(
            timeout=ClientTimeout(total=None), headers=plain, auto_decompress=False
        )
        self._opened: ClientSession | None = None

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`."""
        asked = {
            "templateID": template,
            "timeout": max(1, round(life_s)),
            "autoPause": False,
            "allow_internet_access": internet,
            "metadata": {ACCOUNT: label.partition(".")[0], LABEL: label},
        }
        body = await self._ask("POST", "/sandboxes", asked, limit_s=CREATE_S)
        return self._remember(body).sandbox_id

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        if stdin:
            name = f"/tmp/.gym-{os.urandom(6).hex()}"
            await self.put(box, name, stdin)
            script = f"exec <{name}; rm -f {name}\n{script}"
        limited = ["-s", "KILL", f"{max(1, round(timeout_s))}", "/bin/bash", "-l", "-c", script]
        asked = {"process": {"cmd": "timeout", "args": limited}}
        output = {"stdout": bytearray(), "stderr": bytearray()}
        ended = await self._started(box, asked, output, timeout_s + GRACE_S)
        killed = ended.code in (KILLED, -9, 124) or not ended.exited
        return Ran(
            exit_code=None if killed else ended.code,
            stdout=bytes(output["stdout"]),
            stderr=bytes(output["stderr"]),
        )

    async def _started(
        self, box: str, asked: object, output: Mapping[str, bytearray], limit_s: float
    ) -> _End:
        """Start a process, keep its output, and return how it ended."""
        body = msgspec.json.encode(asked)
        how: dict[str, Any] = {
            "data": struct.pack(">BI", 0, len(body)) + body,
            "headers": {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"},
        }
        ended: _End | None = None
        async with self._envd("POST", box, "/process.Process/Start", limit_s=limit_s, **how) as answer:
            while True:
                await checkpoint()  # also while the next frame is there already
                flags, size = struct.unpack(">BI", await answer.content.readexactly(5))
                if size > FRAME_BYTES or flags & _COMPRESSED:
                    raise BoxUnknown(f"box {box} sends a frame that is not readable", stage="box")
                said = await answer.content.readexactly(size)
                if flags & _END_OF_STREAM:
                    break
                event = _read(said, _Frame).event
                ended = event.end or ended
                if event.data is not None:
                    for stream, kept in output.items():
                        kept += base64.b64decode(getattr(event.data, stream))[: KEPT_BYTES - len(kept)]
        if (error := _read(said, _Trailer).error) is not None:
            raise BoxUnknown(f"box {box}: {shown(str(error))[:200]}", stage="box")
        if ended is None:
            raise BoxUnknown(f"box {box} does not say how the command ended", stage="box")
        return ended

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        from aiohttp import FormData

        form = FormData()
        name = path.rpartition("/")[2]
        form.add_field("file", data, filename=name, content_type="application/octet-stream")
        async with self._envd("POST", box, f"/files?{_at(path)}", data=form) as answer:
            await body_of(answer)

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        async with self._envd("GET", box, f"/files?{_at(path)}", file=path) as answer:
            return await body_of(answer, most_bytes, file=path)

    async def snapshot(self, box: str) -> str:
        """See `gym_boxes.Provider.snapshot`. The processes go on, and are not in it."""
        path = f"{_of(box)}/snapshots"
        body = await self._ask("POST", path, {"memory": False}, limit_s=CREATE_S)
        return _read(body, _Snapshot).snapshot_id

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`."""
        await self._ask("DELETE", f"/templates/{quote(template, safe='')}", None, gone_is_done=True)

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`."""
        await self._ask("POST", f"{_of(box)}/timeout", {"timeout": max(1, round(life_s))})

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        await self._ask("DELETE", _of(box), None, gone_is_done=True)
        self._known.pop(box, None)

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`."""
        account, whole = prefix.partition(".")[0], prefix.count(".") >= 2
        wanted = {LABEL: prefix} if whole else {ACCOUNT: account}
        query = [("metadata", urlencode({quote(key): quote(value) for key, value in wanted.items()}))]
        query += [("state", "running"), ("state", "paused"), ("limit", str(PAGE))]
        found: dict[str, Found] = {}
        page = ""
        while True:
            asked = urlencode([*query, *([("nextToken", page)] if page else [])])
            async with self._call(
                "GET", f"{self._api}/v2/sandboxes?{asked}", headers=self._headers
            ) as answer:
                for one in _read(await body_of(answer), list[_Listed]):
                    label = (one.metadata or {}).get(LABEL, "")
                    if label.startswith(prefix):
                        found[one.sandbox_id] = Found(one.sandbox_id, label)
                before, page = page, answer.headers.get("x-next-token", "")
            if not page or page == before:
                return list(found.values())

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def _remember(self, body: bytes) -> _Box:
        box = _read(body, _Box)
        self._known[box.sandbox_id] = box
        return box

    async def _box(self, box: str) -> _Box:
        """What is needed to reach its agent; of a box that another worker has made it is asked for."""
        if box not in self._known:
            # Connecting only ever lengthens its life, and so takes none from its owner.
            return self._remember(await self._ask("POST", f"{_of(box)}/connect", {"timeout": 1}))
        return self._known[box]

    @asynccontextmanager
    async def _envd(
        self, method: str, box: str, path: str, *, file: str = "", limit_s: float = CALL_S, **body: Any
    ) -> AsyncGenerator[Any]:
        known = await self._box(box)
        root = self._sandbox_url or f"https://{ENVD_PORT}-{box}.{known.domain or self._domain}"
        headers = {"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": str(ENVD_PORT), **body.pop("headers", {})}
        if known.token:
            headers["X-Access-Token"] = known.token
        login = base64.b64encode(f"{USER}:".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
        call = self._call(method, f"{root}{path}", headers=headers, file=file, limit_s=limit_s, **body)
        async with call as answer:
            yield answer

    async def _ask(
        self,
        method: str,
        path: str,
        asked: Mapping[str, object] | None,
        *,
        limit_s: float = CALL_S,
        gone_is_done: bool = False,
    ) -> bytes:
        try:
            body: dict[str, Any] = {} if asked is None else {"json": asked}
            call = self._call(method, self._api + path, headers=self._headers, limit_s=limit_s, **body)
            async with call as answer:
                return await body_of(answer)
        except BoxGone:
            if gone_is_done:
                return b""
            raise

    @asynccontextmanager
    async def _call(
        self, method: str, url: str, *, limit_s: float = CALL_S, file: str = "", **how: Any
    ) -> AsyncGenerator[Any]:
        """One request. A limit of our own, because a client's does not always end a half-open connection."""
        from aiohttp import ClientError

        self._opened = self._opened or self._make()
        scope = anyio.move_on_after(limit_s)
        try:
            with scope:
                async with self._opened.request(method, url, allow_redirects=False, **how) as answer:
                    await _refuse(answer, file, self._key)
                    yield answer
        except (ClientError, OSError, EOFError, ValueError) as error:
            what = type(error).__name__
            raise BoxUnknown(
                f"the service of boxes: {what} {shown(str(error))[:200]}", stage="box"
            ) from error
        if scope.cancelled_caught:
            raise BoxUnknown(f"the service of boxes did not answer within {limit_s:g} s", stage="box")


async def _refuse(answer: Any, file: str, key: str) -> None:
    """
    Raises:
        BoxGone, BoxRefused, BoxUnknown, ResourceError, UsageError: the status of the answer is 300 or above,
            or it is compressed.
    """
    status: int = answer.status
    if (coding := answer.headers.get("Content-Encoding", "identity")) != "identity":
        raise BoxUnknown(f"the service of boxes compresses its answer by {shown(coding)[:20]}", stage="box")
    if status < 300:
        return
    said = f"{status} {told((await answer.content.read(2000)).decode(errors='replace'), key)}"
    if status == 404 and file:
        raise ResourceError(f"there is no file {shlex.quote(file)} in the box", stage="box")
    if status in (404, 410) or (status == 502 and "not found" in said.lower()):
        raise BoxGone(f"the box is gone: {said}", stage="box")
    if status in (401, 403):
        raise UsageError(f"the service of boxes refuses the key: {said}; set E2B_API_KEY", stage="box")
    if status in (409, 429):
        after_s = seconds_after(answer.headers)
        raise BoxRefused(f"the service of boxes refuses: {said}", after_s=after_s)
    if status == 400:
        raise UsageError(f"the service of boxes does not take this: {said}", stage="box")
    raise BoxUnknown(f"the service of boxes: {said}", stage="box")


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise BoxUnknown(f"the service of boxes answers something else than its API says: {error}") from error


def _of(box: str) -> str:
    return f"/sandboxes/{quote(box, safe='')}"


def _at(path: str) -> str:
    return urlencode({"path": path, "username": USER})


def make() -> E2B:
    """The provider, from environment variables.

    Raises:
        UsageError: there is no key.
    """
    key = os.environ.get("E2B_API_KEY", "")
    if not key:
        raise UsageError("boxes of E2B need a key: set E2B_API_KEY")
    return E2B(
        key,
        domain=os.environ.get("E2B_DOMAIN", "e2b.app"),
        api_url=os.environ.get("E2B_API_URL", ""),
        sandbox_url=os.environ.get("E2B_SANDBOX_URL", ""),
    )
