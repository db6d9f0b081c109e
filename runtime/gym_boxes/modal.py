"""Boxes of Modal, by its package ``modal``. A template is an image: of a registry, or an id (``im-…``).

Settings: ``MODAL_TOKEN_ID`` and ``MODAL_TOKEN_SECRET``; ``GYM_MODAL_APP``, the app that the boxes belong to
(``gym-boxes``). A box is a sandbox whose name is its label, so a create that is repeated finds the one that
it has made. Modal's time limit of a sandbox is set once, so a box has the longest one, and an idle limit of
the life that it was made with: to renew it a command runs in it.

Source: the package, github.com/modal-labs/modal-client (Apache-2.0).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
from gym_runtime import GymError, UsageError
from gym_runtime.errors import leaf

from gym_boxes.answers import told
from gym_boxes.provider import GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran, load_sdk
from gym_boxes.scripts import loaded, ran, read, reading, require_done, writing

CALL_S = 30.0
CREATE_S = 60.0
GRACE_S = 10.0
"""Beyond a command's own limit, which `timeout` enforces in the box."""
LONGEST_S = 24 * 3600
LEAST_IDLE_S = 60
KEPT_BYTES = 1 << 20
SENT_BYTES = 1 << 20
APP = "gym-boxes"
ACCOUNT, LABEL = "gym-account", "gym-label"
_ALIVE = ["/bin/sh", "-c", f"exec sleep {LONGEST_S}"]
_REFUSED = ("ResourceExhaustedError",)
_GONE = ("NotFoundError", "SandboxTerminatedError", "SandboxTimeoutError")
_KEY = ("AuthError", "PermissionDeniedError")
_WRONG = ("InvalidError", "ImageBuildError", "RemoteError")

T = TypeVar("T")


class Modal:
    """The provider `gym_boxes.Provider` of one token.

    Args:
        app: which boxes belong to; made if it is not there.
    """

    def __init__(self, token_id: str, token_secret: str, *, app: str = APP) -> None:
        self._sdk = load_sdk("modal")
        self._token, self._name = (token_id, token_secret), app
        self._opened: tuple[Any, Any] | None = None
        self._known: dict[str, Any] = {}
        self._labels: dict[str, str] = {}

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`. Its name is the label, so it may be repeated."""
        client, app = await self._client()
        images = self._sdk.Image
        image = images.from_id(template) if template.startswith("im-") else images.from_registry(template)
        asked = {
            "name": label,
            "tags": {ACCOUNT: label.partition(".")[0], LABEL: label},
            "timeout": LONGEST_S,
            "idle_timeout": max(LEAST_IDLE_S, round(life_s)),
            "block_network": not internet,
        }
        sandbox_of = self._sdk.Sandbox

        async def created() -> Any:
            try:
                return await sandbox_of.create.aio(*_ALIVE, app=app, image=image, client=client, **asked)
            except self._sdk.exception.AlreadyExistsError:
                return await sandbox_of.from_name.aio(self._name, label, client=client)

        sandbox = await self._call(created, CREATE_S)
        self._known[sandbox.object_id] = sandbox
        return sandbox.object_id

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        return await self._exec(box, script, timeout_s, stdin, KEPT_BYTES)

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        require_done(await self._exec(box, writing(path), CALL_S, data, 0), f"{path} cannot be written")

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        script = reading(path, most_bytes)
        return read(await self._exec(box, script, CALL_S, b"", most_bytes + 1), path, most_bytes)

    async def snapshot(self, box: str) -> str:
        """See `gym_boxes.Provider.snapshot`. Modal keeps it for 30 days."""
        image = await self._on(box, lambda one: one.snapshot_filesystem.aio(round(CREATE_S)), CREATE_S)
        return image.object_id

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`."""
        if not template.startswith("im-"):
            return
        client, _ = await self._client()
        load_sdk("modal.experimental")
        try:
            await self._call(lambda: self._sdk.experimental.image_delete.aio(template, client=client), CALL_S)
        except BoxGone:
            return

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`. A command runs, which begins the box's idle limit again."""
        await self._exec(box, ":", GRACE_S, b"", 0)

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        try:
            one = self._known.get(box) or await self._found(box)
            await self._call(lambda: one.terminate.aio(), CALL_S)
            await self._call(lambda: one.detach.aio(), CALL_S)
        except BoxGone:
            pass
        self._known.pop(box, None)

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`. The labels of boxes of other workers are asked once for each."""
        client, app = await self._client()
        account, whole = prefix.partition(".")[0], prefix.count(".") >= 2
        wanted = {LABEL: prefix} if whole else {ACCOUNT: account}

        async def listed() -> list[Any]:
            found = self._sdk.Sandbox.list.aio(app_id=app.app_id, tags=wanted, client=client)
            return [one async for one in found]

        boxes = {one.object_id: one for one in await self._call(listed, CREATE_S)}
        if whole:
            return [Found(box, prefix) for box in boxes]
        known = {box: label for box, label in self._labels.items() if box in boxes}
        for box in boxes.keys() - known.keys():
            try:
                tags = await self._call(boxes[box].get_tags.aio, CALL_S)
            except BoxGone:
                continue
            known[box] = tags.get(LABEL, "")
        self._labels |= known
        for box in [box for box, label in self._labels.items() if label.startswith(f"{account}.")]:
            if box not in boxes:
                del self._labels[box]
        return [Found(box, label) for box, label in known.items() if label.startswith(prefix)]

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`."""
        if self._opened is not None:
            client, self._opened = self._opened[0], None
            for one in self._known.values():
                await one.detach.aio()
            await client.close.aio()
            self._known.clear()

    async def _client(self) -> tuple[Any, Any]:
        """The connection, and the app of the boxes."""
        if self._opened is None:
            client = await self._call(lambda: self._sdk.Client.from_credentials.aio(*self._token), CALL_S)
            look_up = self._sdk.App.lookup.aio
            try:
                app = await self._call(
                    lambda: look_up(self._name, client=client, create_if_missing=True), CALL_S
                )
            except GymError:
                await client.close.aio()
                raise
            self._opened = (client, app)
        return self._opened

    async def _found(self, box: str) -> Any:
        client, _ = await self._client()
        return await self._call(lambda: self._sdk.Sandbox.from_id.aio(box, client=client), CALL_S)

    async def _on(self, box: str, does: Callable[[Any], Awaitable[T]], limit_s: float) -> T:
        """A call on a box. If it fails, the box is looked at."""
        if box not in self._known:
            one = await self._found(box)
            await self._require_alive(box, one)
            self._known[box] = one
        one = self._known[box]
        try:
            return await self._call(lambda: does(one), limit_s)
        except GymError:
            await self._require_alive(box, one)
            raise

    async def _require_alive(self, box: str, one: Any) -> None:
        """
        Raises:
            BoxGone: the box has ended.
        """
        if await self._call(one.poll.aio, CALL_S) is not None:
            self._known.pop(box, None)
            raise BoxGone(f"box {box} has ended", stage="box")

    async def _exec(self, box: str, script: str, timeout_s: float, stdin: bytes, kept_bytes: int) -> Ran:
        command, sent = loaded(script, stdin, timeout_s)
        limit_s = max(1, round(timeout_s)) + GRACE_S

        async def done(one: Any) -> Ran:
            process = await one.exec.aio(*command, timeout=round(limit_s + CALL_S), text=False)
            output = [bytearray(), bytearray()]

            async def keep(stream: Any, kept: bytearray) -> None:
                async for part in stream:
                    kept += part[: max(0, kept_bytes - len(kept))]

            async def send() -> None:
                for start in range(0, len(sent), SENT_BYTES):
                    process.stdin.write(sent[start : start + SENT_BYTES])
                    await process.stdin.drain.aio()
                process.stdin.write_eof()
                await process.stdin.drain.aio()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                tasks.start_soon(keep, process.stdout, output[0])
                tasks.start_soon(keep, process.stderr, output[1])
            return ran(await process.wait.aio(), *output)

        return await self._on(box, done, limit_s + CALL_S)

    async def _call(self, does: Callable[[], Awaitable[T]], limit_s: float) -> T:
        """A call of the package, with a limit of our own."""
        try:
            with anyio.fail_after(limit_s):
                return await does()
        except TimeoutError as error:
            raise BoxUnknown(f"Modal did not answer within {limit_s:g} s", stage="box") from error
        except (self._sdk.exception.Error, OSError, ValueError, BaseExceptionGroup) as error:
            cause = leaf(error)
            if not isinstance(cause, (self._sdk.exception.Error, OSError, ValueError)):
                raise
            raise _told(cause, self._token) from error


def _told(error: BaseException, keys: tuple[str, str]) -> GymError:
    """What the package's error means."""
    name = type(error).__name__
    said = f"{name} {told(str(error), *keys)}"
    if name in _REFUSED:
        return BoxRefused(f"Modal refuses: {said}")
    if name in _GONE:
        return BoxGone(f"the box is gone: {said}", stage="box")
    if name in _KEY:
        return UsageError(
            f"Modal refuses the token: {said}; set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET", stage="box"
        )
    if name in _WRONG:
        return UsageError(f"Modal does not take this: {said}", stage="box")
    return BoxUnknown(f"Modal: {said}", stage="box")


def make() -> Modal:
    """The provider, from environment variables.

    Raises:
        UsageError: there is no token, or the package is not installed.
    """
    token = os.environ.get("MODAL_TOKEN_ID", ""), os.environ.get("MODAL_TOKEN_SECRET", "")
    if not all(token):
        raise UsageError("boxes of Modal need a token: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET")
    return Modal(*token, app=os.environ.get("GYM_MODAL_APP") or APP)
