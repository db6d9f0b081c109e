"""The declaration of files that an environment needs and that are not shipped with it."""

from __future__ import annotations

import msgspec


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
            fetched: for what has too many files to be listed. It may use the network, and can run twice.
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
