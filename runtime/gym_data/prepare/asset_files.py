"""Fetches an asset's files into the cache.

A file is moved to its final path only after its size and its digest were checked, so the cache never has a
partial file, and two processes may fetch at once. Only https is used, also after a redirect.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec
from gym_runtime.assets import LOCK, Asset, Fetched, cached, digest_of, read_lock
from gym_runtime.errors import UsageError
from gym_runtime.own_files import replacing

FETCH_SILENCE_S = 60.0
"""How long a server may send nothing while a file is fetched."""


_BLOCK_BYTES = 1 << 20
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

Report = Callable[[int, int], None]


def fetch(asset: Asset, report: Report | None = None, *, loopback: bool = False) -> list[str]:
    """Fetch the files of an asset that are not in the cache; return the paths of the fetched ones.

    Idempotent. If no digest is declared for a file, the digest of the first fetch is recorded, and later
    fetches must match it as long as the URL is the same.

    Args:
        report: called with the bytes fetched so far and the largest possible total.
        loopback: for tests: allow plain http, to this machine only.

    Raises:
        UsageError: a file cannot be fetched, is larger than declared, or has another digest.
    """
    place = cached(asset)
    lock, fetched = read_lock(place), list[str]()
    left_bytes = asset.size_bytes
    for file, url in asset.urls.items():
        if not _is_below(place, file):
            raise UsageError(f"asset {asset.name}: '{file}' is not a path below its folder")
        known = lock.get(file)
        recorded = known.sha256 if known and known.url == url else ""
        wanted = asset.sha256.get(file) or recorded
        target = place / file
        if recorded == wanted and recorded and target.is_file() and digest_of(target) == wanted:
            left_bytes -= target.stat().st_size
            continue

        def progress(done_bytes: int, before: int = asset.size_bytes - left_bytes) -> None:
            if report is not None:
                report(before + done_bytes, asset.size_bytes)

        got = _fetch_file(asset, file, url, wanted, left_bytes, progress, loopback=loopback)
        left_bytes -= got.size_bytes
        lock[file] = got
        _write_lock(place, lock)
        fetched.append(file)
    return fetched


def _fetch_file(
    asset: Asset,
    file: str,
    url: str,
    wanted: str,
    most_bytes: int,
    progress: Callable[[int], None],
    *,
    loopback: bool,
) -> Fetched:
    target = cached(asset) / file
    _make_folder(target.parent)
    digest, size_bytes = hashlib.sha256(), 0
    with replacing(target) as written:
        try:
            with _open(url, loopback=loopback) as answer:
                while block := answer.read(_BLOCK_BYTES):
                    size_bytes += len(block)
                    if size_bytes > most_bytes:
                        raise UsageError(
                            f"{url} was not used: asset {asset.name} would be larger than its declared "
                            f"{asset.size_bytes} bytes"
                        )
                    digest.update(block)
                    written.write(block)
                    progress(size_bytes)
                promised = answer.headers.get("Content-Length")
            # http.client raises no error when a body that is read in blocks was cut off.
            if promised is not None and promised != str(size_bytes):
                raise ConnectionError(f"it was cut off after {size_bytes} of {promised} bytes")
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise UsageError(f"{url} cannot be fetched: {reason}; run the command again") from error
        got = digest.hexdigest()
        if wanted and got != wanted:
            raise UsageError(f"{url} was not used: its SHA-256 is {got}, not {wanted}")
    return Fetched(url=url, sha256=got, size_bytes=size_bytes)


def _open(url: str, *, loopback: bool) -> HTTPResponse:
    _check(url, loopback=loopback)

    class Redirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(
            self,
            req: urllib.request.Request,
            fp: IO[bytes],
            code: int,
            msg: str,
            headers: HTTPMessage,
            newurl: str,
        ) -> urllib.request.Request | None:
            _check(newurl, loopback=loopback)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    request = urllib.request.Request(url, headers={"User-Agent": "gym-runtime"})
    return urllib.request.build_opener(Redirects).open(request, timeout=FETCH_SILENCE_S)


def _check(url: str, *, loopback: bool) -> None:
    parts = urlsplit(url)
    allowed = parts.scheme == "https" or (loopback and parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not allowed:
        raise UsageError(f"{url} was not fetched: an asset's URL must begin with https://")


def _is_below(place: Path, file: str) -> bool:
    return Path(os.path.abspath(place / file)).is_relative_to(os.path.abspath(place)) and file != LOCK


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be created ({error.strerror}); set GYM_CACHE to another folder"
        ) from error


def _write_lock(place: Path, lock: Mapping[str, Fetched]) -> None:
    with replacing(place / LOCK) as file:
        file.write(msgspec.json.format(msgspec.json.encode(lock)))


INSTALLED = "install"


def install(asset: Asset) -> bool:
    """Run an asset's script in its folder; whether it was run. What it prints goes to the error output.

    Raises:
        UsageError: it failed; it can be run again.
    """
    if not asset.install:
        return False
    place = cached(asset)
    place.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(asset.install.encode()).hexdigest()
    lock = read_lock(place)
    if INSTALLED in lock and lock[INSTALLED].sha256 == digest:
        return False
    done = subprocess.run(
        ["/bin/sh", "-c", asset.install], cwd=place, stdin=subprocess.DEVNULL, stdout=2, check=False
    )
    if done.returncode != 0:
        raise UsageError(
            f"installing {asset.description} in {place} failed with exit code {done.returncode}, as shown "
            "above; run the command again"
        )
    _write_lock(place, {**read_lock(place), INSTALLED: Fetched(url="", sha256=digest, size_bytes=0)})
    return True
