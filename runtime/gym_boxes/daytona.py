"""Boxes of Daytona, by its package ``daytona``. A template is a snapshot of the account.

Settings: ``DAYTONA_API_KEY``; ``DAYTONA_API_URL`` and ``DAYTONA_TARGET`` as the package reads them. A box is
an ephemeral sandbox with a time to live, in whole minutes; its label is among its labels. The service keeps
one stream of text for a command's output, so the box packs both streams.

Source: the package, github.com/daytonaio/daytona ``libs/sdk-python`` (Apache-2.0).
"""

from __future__ import annotations

import math
import os
import shlex
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import anyio
from gym_runtime import GymError, ResourceError, UsageError
from gym_runtime.escapes import shown

from gym_boxes.answers import told, too_large
from gym_boxes.provider import GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran, load_sdk, seconds_after

CALL_S = 30.0
CREATE_S = 60.0
START_S = 900.0
"""How long a box may take until it runs: its snapshot may have to be pulled."""
GRACE_S = 10.0
"""Beyond a command's own limit, which `timeout` enforces in the box."""
KEPT_BYTES = 1 << 20
PAGE = 100
KILLED = 137
ACCOUNT, LABEL = "gym-account", "gym-label"
_ENDED = ("destroyed", "destroying", "stopped", "stopping", "archived", "archiving", "error", "build_failed")
_DELETED = _ENDED[:2]
_LOADER = """f=$1
timeout -s KILL "$2" /bin/sh "$f.sh" <"$f.in" >"$f.out" 2>"$f.err"
code=$?
for stream in out err; do head -c "$3" "$f.$stream" | base64 | tr -d '\\n'; echo; done
echo $code
rm -f "$f.sh" "$f.in" "$f.out" "$f.err"
"""

T = TypeVar("T")


class Daytona:
    """The provider `gym_boxes.Provider` of one API key.

    Args:
        api_url: of the API; empty for what the package takes.
    """

    def __init__(self, api_key: str, *, api_url: str = "") -> None:
        self._sdk = load_sdk("daytona")
        self._config = self._sdk.DaytonaConfig(api_key=api_key, **({"api_url": api_url} if api_url else {}))
        self._opened: Any = None
        self._known: dict[str, Any] = {}

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`."""
        asked = self._sdk.CreateSandboxFromSnapshotParams(
            snapshot=template,
            labels={ACCOUNT: label.partition(".")[0], LABEL: label},
            ephemeral=True,
            auto_stop_interval=0,
            ttl_minutes=_minutes(life_s),
            network_block_all=not internet,
        )

        async def created() -> str:
            try:
                sandbox = await self._client().create(asked, timeout=CREATE_S)
            except self._sdk.DaytonaTimeoutError as error:
                if error.sandbox_id:
                    # It is there and does not run yet; the first command waits for it.
                    return error.sandbox_id
                raise
            self._known[sandbox.id] = sandbox
            return sandbox.id

        return await self._call(created, CREATE_S + GRACE_S)

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        name = f"/tmp/.gym-{os.urandom(6).hex()}"
        sent = {f"{name}.sh": script.encode("utf-8", "surrogatepass"), f"{name}.in": stdin}
        await self._put(box, sent)
        limit_s = max(1, round(timeout_s))
        command = shlex.join(["/bin/sh", "-c", _LOADER, "sh", name, str(limit_s), str(KEPT_BYTES)])
        grace_s = limit_s + round(GRACE_S)
        done = await self._on(box, lambda one: one.process.exec(command, timeout=grace_s), grace_s + CALL_S)
        try:
            stdout, stderr, code = str(done.result).splitlines()[-3:]
            output, errors, exit_code = b64decode(stdout), b64decode(stderr), int(code)
        except (ValueError, NotBase64) as error:
            said = shown(str(done.result))[:200]
            raise BoxUnknown(f"box {box} does not say how the command ended: {said}", stage="box") from error
        return Ran(exit_code=None if exit_code == KILLED else exit_code, stdout=output, stderr=errors)

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        await self._put(box, {path: data})

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        from aiohttp import ClientError, ClientResponseError

        async def read(one: Any) -> bytes:
            pieces, size_bytes = list[bytes](), 0
            try:
                stream = await one.fs.download_file_stream(path, round(CALL_S))
                async with aclosing(stream):
                    async for piece in stream:
                        size_bytes += len(piece)
                        if size_bytes > most_bytes:
                            raise too_large(path, most_bytes)
                        pieces.append(piece)
            # The package leaves those of a stream as they are.
            except ClientResponseError as error:
                raise self._sdk.DaytonaError(str(error), status_code=error.status) from error
            except ClientError as error:
                raise self._sdk.DaytonaError(str(error)) from error
            return b"".join(pieces)

        return await self._on(box, read, CALL_S, file=path)

    async def snapshot(self, box: str) -> str:
        """See `gym_boxes.Provider.snapshot`."""
        name = f"gym-{os.urandom(8).hex()}"
        await self._on(box, lambda one: one.create_snapshot(name, timeout=CREATE_S), CREATE_S + GRACE_S)
        return name

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`."""
        try:
            await self._call(lambda: self._client().snapshot.delete(template), CALL_S)
        except BoxGone:
            return

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`."""
        await self._on(box, lambda one: one.set_ttl(_minutes(life_s), request_timeout=CALL_S), CALL_S)

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        try:
            one = self._known.get(box) or await self._found(box)
            await self._call(lambda: one.delete(timeout=CALL_S), CALL_S)
        except BoxGone:
            pass
        self._known.pop(box, None)

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`. Boxes that are being deleted are not among them."""
        account, whole = prefix.partition(".")[0], prefix.count(".") >= 2
        wanted = {LABEL: prefix} if whole else {ACCOUNT: account}
        query = self._sdk.ListSandboxesQuery(labels=wanted, limit=PAGE)

        async def listed() -> list[Found]:
            found: dict[str, Found] = {}
            async for one in self._client().list(query, request_timeout=CALL_S):
                label = one.labels.get(LABEL, "")
                if label.startswith(prefix) and _state(one) not in _DELETED:
                    found[one.id] = Found(one.id, label)
            return list(found.values())

        return await self._call(listed, CREATE_S)

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
            self._known.clear()

    def _client(self) -> Any:
        """Made in the loop that uses it."""
        self._opened = self._opened or self._sdk.AsyncDaytona(self._config)
        return self._opened

    async def _put(self, box: str, files: dict[str, bytes]) -> None:
        sent = [self._sdk.FileUpload(source=data, destination=path) for path, data in files.items()]
        limit_s, names = CALL_S, " ".join(files)
        await self._on(
            box, lambda one: one.fs.upload_files(sent, timeout=round(limit_s)), limit_s, file=names
        )

    async def _found(self, box: str) -> Any:
        one = await self._call(lambda: self._client().get(box, request_timeout=CALL_S), CALL_S)
        # The service takes names, too, and other workers tell what is asked for.
        if one.id != box or LABEL not in (one.labels or {}):
            raise BoxGone(f"there is no box {box!r}", stage="box")
        return one

    async def _box(self, box: str) -> Any:
        """The box, as soon as it runs."""
        if box not in self._known:
            one = await self._found(box)
            _require_alive(box, one)
            await self._call(lambda: one.wait_for_sandbox_start(timeout=START_S), START_S + GRACE_S)
            self._known[box] = one
        return self._known[box]

    async def _on(
        self, box: str, does: Callable[[Any], Awaitable[T]], limit_s: float, *, file: str = ""
    ) -> T:
        """A call on a box. If it fails, the box is looked at: one that has stopped answers anything."""
        one = await self._box(box)
        try:
            return await self._call(lambda: does(one), limit_s, file=file)
        except GymError:
            try:
                await self._call(lambda: one.refresh_data(request_timeout=CALL_S), CALL_S)
                _require_alive(box, one)
            except BoxGone:
                self._known.pop(box, None)
                raise
            except GymError:
                pass
            raise

    async def _call(self, does: Callable[[], Awaitable[T]], limit_s: float, *, file: str = "") -> T:
        """A call of the package, with a limit of our own."""
        try:
            with anyio.fail_after(limit_s):
                return await does()
        except TimeoutError as error:
            raise BoxUnknown(f"Daytona did not answer within {limit_s:g} s", stage="box") from error
        except self._sdk.DaytonaError as error:
            raise _told(error, file, self._config.api_key) from error


def _told(error: Any, file: str, key: str) -> GymError:
    """What the package's error means."""
    status: int | None = error.status_code
    said = f"{status or type(error).__name__} {told(str(error), key)}"
    if file and (status == 404 or "no such file" in said.lower()):
        return ResourceError(f"there is no file {shlex.quote(file)} in the box", stage="box")
    if file and status in (400, 403):
        return ResourceError(f"{file} cannot be read or written: {said}", stage="box")
    # Limits of the account are told as 403.
    if status in (409, 429) or (status == 403 and ("limit" in said.lower() or "quota" in said.lower())):
        given: Mapping[str, Any] = error.headers or {}
        headers = {name.title(): str(value) for name, value in given.items()}
        return BoxRefused(f"Daytona refuses: {said}", after_s=seconds_after(headers))
    if status in (404, 410):
        return BoxGone(f"the box is gone: {said}", stage="box")
    if status in (401, 403):
        return UsageError(f"Daytona refuses the key: {said}; set DAYTONA_API_KEY", stage="box")
    if status in (400, 422):
        return UsageError(f"Daytona does not take this: {said}", stage="box")
    return BoxUnknown(f"Daytona: {said}", stage="box")


def _state(sandbox: Any) -> str:
    return str(getattr(sandbox.state, "value", sandbox.state))


def _require_alive(box: str, sandbox: Any) -> None:
    if _state(sandbox) in _ENDED:
        raise BoxGone(f"box {box} is {_state(sandbox)}", stage="box")


def _minutes(life_s: float) -> int:
    return max(1, math.ceil(life_s / 60))


def make() -> Daytona:
    """The provider, from environment variables.

    Raises:
        UsageError: there is no key, or the package is not installed.
    """
    key = os.environ.get("DAYTONA_API_KEY", "")
    if not key:
        raise UsageError("boxes of Daytona need a key: set DAYTONA_API_KEY")
    return Daytona(key, api_url=os.environ.get("DAYTONA_API_URL", ""))
