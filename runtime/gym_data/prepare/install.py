"""Runs the script that installs an asset whose files were fetched.

The lock file records the script's digest when it has succeeded, so that it runs again only if it has changed.
"""

from __future__ import annotations

import hashlib
import subprocess

import msgspec
from gym_runtime.assets import LOCK, Asset, Fetched, cached, read_lock
from gym_runtime.errors import UsageError
from gym_runtime.own_files import replacing

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
    lock = {**read_lock(place), INSTALLED: Fetched(url="", sha256=digest, size_bytes=0)}
    with replacing(place / LOCK) as file:
        file.write(msgspec.json.format(msgspec.json.encode(lock)))
    return True
