"""Where sessions keep what they have saved (`gym_runtime.environment.shapes.Store`): each part once.

By default it is the broker: under the journal of the rollout, so that it is deleted with the journal. With
`FOLDER` it is a folder that all resource workers share, or a bucket of an object store, which may be larger;
a rollout's parts are deleted there when it is over. What refers to a part travels in an answer, which the
journal stores with its turn: an attempt that was overtaken can store parts, but no reference to them.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
from msgspec import Raw

from gym_runtime.bus.interface import Bus
from gym_runtime.bus.streams import LIFE_S
from gym_runtime.environment.shapes import Store
from gym_runtime.errors import BrokerError, ResourceError, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.rollout.journal import journal_subject

if TYPE_CHECKING:
    from obstore.store import ObjectStore

FOLDER = "GYM_SAVED_FOLDER"
"""The environment variable that names the folder, or a bucket by its URL: ``s3://bucket/prefix``."""
KEPT = "GYM_SAVED_KEPT_S"
"""The environment variable with the seconds for which the folder or the bucket keeps what sessions have saved
after their rollouts are over, so that forks begin with it."""
BROKER_BYTES = 64 << 20
FOLDER_BYTES = 2 << 30
"""How much one rollout may keep."""
PUT_S = 10.0
"""How long storing a part at the broker may take: an answer waits for it."""
DIGEST_BYTES = 16
SMALL_BYTES = 1 << 16
"""So much is hashed at once, within 0.1 ms; what is larger in a thread."""
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
"""Variables with the address of an S3-compatible store."""


def store_of(bus: Bus, request: calls.Request[Any], origins: Sequence[str] = ()) -> Store | None:
    """Where the sessions of a request's rollout keep parts; None for one without a journal.

    Args:
        origins: rollouts whose parts are read, too, where it is a folder or a bucket.
    """
    if not request.durable or not request.rollout:
        return None
    folder = os.environ.get(FOLDER, "")
    if "://" in folder:
        return BucketParts(folder, request.rollout, origins)
    if folder:
        return FolderParts(Path(folder), request.rollout, origins)
    return BrokerParts(bus, request.rollout)


def kept_s() -> float:
    """How many seconds what was saved is kept after its rollout is over.

    Raises:
        UsageError: the variable has no such number.
    """
    said = os.environ.get(KEPT, "0")
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise UsageError(f"{KEPT}={said}: it must be a number of seconds, 0 or more")
    return seconds


async def keep_state(store: Store, saved: Raw) -> Raw:
    """What a session has saved, as it travels: where it outlives its rollout, only the name of its part.

    Raises:
        GymError: the store does not keep it.
    """
    if isinstance(store, BrokerParts) or bytes(saved) == b"null" or not kept_s():
        return saved
    return calls.pack(calls.KeptState(await store.put(bytes(saved))))


async def kept_state(store: Store, saved: Raw) -> Raw:
    """What a session had saved.

    Raises:
        ResourceError: it is gone, or damaged.
    """
    name = calls.kept_name(saved)
    return Raw(await store.get(name)) if name else saved


_ROOM = re.compile(r"\.\d+\.\d+$")
"""How the name of a rollout ends, and so that of its folder: nothing else is looked at, or deleted."""
_PART = re.compile(rf"/[0-9a-f]{{{2 * DIGEST_BYTES}}}$")
"""How the path of a part ends in a bucket, where others may keep a folder that is named like a rollout's."""


def _room(rollout: str) -> str:
    return quote(rollout_token(rollout), safe="")  # a run's name may hold slashes


def _name(part: bytes) -> str:
    return blake2b(part, digest_size=DIGEST_BYTES).hexdigest()


def _checked(name: str, part: bytes | None) -> bytes:
    if part is None:
        raise ResourceError(f"part {name} of what a session has saved is gone", stage="restore")
    if _name(part) != name:
        raise ResourceError(f"part {name} of what a session has saved is damaged", stage="restore")
    return part


class BrokerParts:
    """The parts of one rollout, at the broker."""

    limit_bytes = BROKER_BYTES

    def __init__(self, bus: Bus, rollout: str) -> None:
        run, task_index, rollout_index = rollout.rsplit(".", 2)
        # Beside the answers of models in roles, where a secured broker lets resource workers write.
        self._root = f"{journal_subject(run, int(task_index), int(rollout_index))}.role"
        self._bus = bus

    async def put(self, part: bytes) -> str:
        """Keep a part; its name.

        Raises:
            BrokerError: the broker does not store it within `PUT_S`.
        """
        small = len(part) <= SMALL_BYTES
        name = _name(part) if small else await anyio.to_thread.run_sync(_name, part)
        with anyio.move_on_after(PUT_S):
            # A part that is there already is not stored again.
            await self._bus.append(f"{self._root}.{name}", part, once=True)
            return name
        raise BrokerError(f"the broker did not store {len(part)} bytes within {PUT_S:g} s")

    async def get(self, name: str) -> bytes:
        """A part.

        Raises:
            ResourceError: it is gone, or damaged.
        """
        found = await self._bus.latest(f"{self._root}.{token(name, 'part')}", nearest=True)
        part = found[0].payload if found else b""
        if len(part) <= SMALL_BYTES:
            return _checked(name, part if found else None)
        return await anyio.to_thread.run_sync(_checked, name, part)


class FolderParts:
    """The parts of one rollout, in a folder that workers share."""

    limit_bytes = FOLDER_BYTES

    def __init__(self, folder: Path, rollout: str, origins: Sequence[str] = ()) -> None:
        self._folder = folder / _room(rollout)
        self._read = [self._folder, *(folder / _room(one) for one in origins)]

    async def put(self, part: bytes) -> str:
        """Keep a part; its name.

        Raises:
            ResourceError: it cannot be written.
        """
        try:
            return await anyio.to_thread.run_sync(self._put, part)
        except OSError as error:
            raise ResourceError(f"{FOLDER}: {error}", stage="save") from error

    def _put(self, part: bytes) -> str:
        name = _name(part)
        target, made = self._folder / name, self._folder / f".{secrets.token_hex(8)}"
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with made.open("xb") as file:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
            made.replace(target)
        return name

    async def get(self, name: str) -> bytes:
        """A part.

        Raises:
            ResourceError: it is gone, or damaged.
        """
        return await anyio.to_thread.run_sync(self._get, name)

    def _get(self, name: str) -> bytes:
        place = quote(name, safe="")
        found = next((one for folder in self._read if (one := folder / place).exists()), self._folder / place)
        try:
            return _checked(name, found.read_bytes())
        except OSError as error:
            raise ResourceError(f"part {name} of what a session has saved is gone: {error}") from error


class BucketParts:
    """The parts of one rollout, in a bucket that workers share."""

    limit_bytes = FOLDER_BYTES

    def __init__(self, url: str, rollout: str, origins: Sequence[str] = ()) -> None:
        self._bucket, self._room = _bucket(url), _room(rollout)
        self._read = [self._room, *map(_room, origins)]

    async def put(self, part: bytes) -> str:
        """Keep a part; its name.

        Raises:
            ResourceError: the object store does not store it within `PUT_S`.
        """
        import obstore

        name = await anyio.to_thread.run_sync(_name, part)
        with anyio.move_on_after(PUT_S):
            try:
                await obstore.put_async(self._bucket, f"{self._room}/{name}", part)
            except Exception as error:
                raise ResourceError(f"{FOLDER}: {error}", stage="save") from error
            return name
        raise ResourceError(f"{FOLDER} did not store {len(part)} bytes within {PUT_S:g} s", stage="save")

    async def get(self, name: str) -> bytes:
        """A part.

        Raises:
            ResourceError: it is gone, or damaged.
        """
        import obstore

        part: bytes | None = None
        try:
            for room in self._read:
                with suppress(FileNotFoundError):
                    found = await obstore.get_async(self._bucket, f"{room}/{quote(name, safe='')}")
                    part = bytes(await found.bytes_async())
                    break
        except Exception as error:
            raise ResourceError(f"part {name} cannot be read: {error}", stage="restore") from error
        return await anyio.to_thread.run_sync(_checked, name, part)


@cache
def _bucket(url: str) -> ObjectStore:
    """
    Raises:
        UsageError: the package is not installed, or the URL names no object store.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        raise UsageError(f'{FOLDER}={url} needs a package: pip install "gym-runtime[bucket]"') from None
    try:
        # The address of a server in one's own network is often one without TLS.
        plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
        return from_url(url, client_options={"allow_http": plain, "timeout": f"{PUT_S:g}s"})
    except Exception as error:
        raise UsageError(f"{FOLDER}={url} names no object store: {error}") from error


async def idle_rollouts(idle_s: float, most: int) -> list[str]:
    """Some of the rollouts that have put nothing into the folder for ``idle_s`` seconds.

    Those that have put nothing there for as long as a journal lives are deleted.
    """
    folder = os.environ.get(FOLDER, "")
    if "://" in folder:
        return await _idle_of_bucket(_bucket(folder), idle_s, most)
    return await anyio.to_thread.run_sync(_idle, Path(folder), idle_s, most) if folder else []


async def _idle_of_bucket(bucket: ObjectStore, idle_s: float, most: int) -> list[str]:
    import obstore

    found: list[str] = []
    try:
        listed = (await obstore.list_with_delimiter_async(bucket))["common_prefixes"]
        rooms = [one.rstrip("/") for one in listed]
        for room in random.sample(rooms, min(most, len(rooms))):
            if not _ROOM.search(room):
                continue  # other programs keep their files beside ours
            listed_parts = await obstore.list(bucket, f"{room}/").collect_async()
            parts = [part for part in listed_parts if _PART.search(part["path"])]
            newest_s = max((part["last_modified"].timestamp() for part in parts), default=time.time())
            age_s = time.time() - newest_s
            if age_s > max(LIFE_S["journal"], kept_s()):
                await obstore.delete_async(bucket, [part["path"] for part in parts])
            elif age_s > idle_s:
                found.append(unquote(room))
    except Exception as error:
        raise ResourceError(f"{FOLDER}: {error}", stage="save") from error
    return found


def _idle(folder: Path, idle_s: float, most: int) -> list[str]:
    found: list[str] = []
    now_s = time.time()
    with suppress(OSError):  # the folder is not there yet, or another worker deletes at the same time
        for one in os.scandir(folder):
            if not _ROOM.search(one.name) or not one.is_dir(follow_symlinks=False):
                continue
            age_s = now_s - one.stat().st_mtime
            if age_s > max(LIFE_S["journal"], kept_s()):
                shutil.rmtree(one.path, ignore_errors=True)
            elif age_s > idle_s:
                found.append(unquote(one.name))
    # Not the oldest: the runs of another broker may share the folder, and would be looked up again and again.
    return random.sample(found, min(most, len(found)))


async def forget_rollout(rollout: str) -> None:
    """Delete what a rollout has in the folder, or in the bucket.

    Raises:
        ResourceError: the object store refuses.
    """
    folder, room = os.environ[FOLDER], _room(rollout)
    if "://" not in folder:
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(Path(folder, room), ignore_errors=True))
        return
    import obstore

    try:
        bucket = _bucket(folder)
        parts = await obstore.list(bucket, f"{room}/").collect_async()
        await obstore.delete_async(bucket, [part["path"] for part in parts])
    except Exception as error:
        raise ResourceError(f"{FOLDER}: {error}", stage="save") from error
