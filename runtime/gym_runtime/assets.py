"""Where the files of an asset are: in the folder that its setting names, or in the user's cache.

The cache is ``GYM_CACHE``, or the platform's folder for caches; an asset's files are below ``assets/<name>``
there. Beside them, ``lock.json`` records each file's URL and digest. A file whose digest differs from the
declared one, or in the cache from the recorded one, is never used.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path

import msgspec

from gym_runtime.errors import UNREADABLE, AssetMissing, UsageError

LOCK = "lock.json"


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """Files that belong together: they have one origin, one licence, and one folder.

    Attributes:
        name: the folder's name in the cache; unique among all environments.
        description: one line.
        licence: of the files.
        urls: the URL of each file, by its path below the folder; https, pinned to a commit if possible. Empty
            for files that can only be downloaded by hand, from ``page``.
        sha256: the known digests, by the same paths, in hexadecimal. The digest of any other file is recorded
            when it is first fetched (trust on first use) and checked from then on.
        size_bytes: the largest total size of all files; fetching stops above it.
        setting: an environment variable that names a folder with the files; it has priority over the cache.
        install: a shell script that is run in the asset's folder of the cache when its files have been
            fetched: for an asset with too many files to list. It may use the network, and can run twice.
        page: the web page from which the user downloads the files.
    """

    name: str
    description: str
    licence: str
    urls: dict[str, str] = {}
    sha256: dict[str, str] = {}
    size_bytes: int = 0
    setting: str = ""
    install: str = ""
    page: str = ""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the lock file: a file's URL, digest and size when it was fetched."""

    url: str
    sha256: str
    size_bytes: int


_decode_lock = msgspec.json.Decoder(dict[str, Fetched]).decode


def cache_folder() -> Path:
    """``GYM_CACHE``, or the platform's folder for caches."""
    if given := os.environ.get("GYM_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gym-runtime"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym-runtime"


def folder(asset: Asset) -> Path:
    """Where `find` looks: the folder that the asset's setting names, else the one in the cache.

    Raises:
        UsageError: the setting names something that is not a folder.
    """
    named = os.environ.get(asset.setting) if asset.setting else None
    if not named:
        return cached(asset)
    place = Path(named).expanduser()
    if not place.is_dir():
        raise UsageError(f"{asset.setting}={named} is not a folder; name one that has {asset.description}")
    return place


def cached(asset: Asset) -> Path:
    """The asset's folder in the cache; it need not exist."""
    return cache_folder() / "assets" / asset.name


def find(asset: Asset, environment: str, *files: str) -> list[Path]:
    """The paths of an asset's files, each checked against its digest if one is known.

    In a folder that the setting names, a file may also be at the top level under its bare name. The function
    reads each version of a file once per process to compute its digest, so it blocks.

    Args:
        environment: the environment's name, for the command that fetches the files.
        files: paths below the asset's folder.

    Raises:
        AssetMissing: a file is missing, or its digest differs; with the remedy.
    """
    place = folder(asset)
    in_cache = place == cached(asset)
    lock = read_lock(place) if in_cache else {}
    return [_checked(asset, environment, place, file, lock, in_cache=in_cache) for file in files]


def read_lock(place: Path) -> dict[str, Fetched]:
    """The lock file's entries by path; empty if nothing was fetched or the file cannot be read."""
    try:
        return _decode_lock((place / LOCK).read_bytes())
    except (OSError, *UNREADABLE):
        return {}


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; computed once for each version of the file."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


def remedy(asset: Asset, environment: str) -> str:
    """How to get a missing file, in one clause."""
    fetch = f"gym-runtime prepare --assets {environment}" if asset.urls else ""
    by_hand = f"download it from {asset.page}" if asset.page and not fetch else ""
    name = f"set {asset.setting} to a folder that has it" if asset.setting else ""
    joined = " and " if by_hand else ", or "
    return joined.join(part for part in (fetch or by_hand, name) if part)


def missing(asset: Asset, environment: str, file: str) -> AssetMissing:
    """The error that a file or folder of an asset is not there, with the remedy."""
    return AssetMissing(
        f"{file} ({asset.description}) is not in {folder(asset)}: {remedy(asset, environment)}", stage="open"
    )


def _checked(
    asset: Asset, environment: str, place: Path, file: str, lock: dict[str, Fetched], *, in_cache: bool
) -> Path:
    candidates = [place / file] if in_cache else [place / file, place / Path(file).name]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None or (in_cache and file not in lock):
        raise missing(asset, environment, file)
    wanted = asset.sha256.get(file) or (lock[file].sha256 if in_cache else "")
    if wanted and digest_of(path) != wanted:
        raise AssetMissing(
            f"{path} has the SHA-256 {digest_of(path)}, not {wanted}: {remedy(asset, environment)}",
            stage="open",
        )
    return path


@lru_cache(256)
def _digest(path: Path, size_bytes: int, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
