"""What an environment says about files that it needs and that are not shipped with it."""

from __future__ import annotations

import msgspec


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """Files that belong together: they have one origin, one licence, and one folder.

    Attributes:
        name: the folder's name in the cache; unique among all environments.
        description: one line.
        licence: of the files.
        urls: where each file is fetched from, by its path below the folder; https, pinned to a commit
            where there is one. Empty for files that no program can fetch: ``page`` says where a person can.
        sha256: the digests that are known, by the same paths, in hexadecimal. The digest of any other
            file is recorded when it is first fetched (trust on first use) and checked from then on.
        size_bytes: all files together are at most this large; fetching stops beyond it.
        setting: an environment variable that names a folder with the files; it goes before the cache.
        page: where a person finds the files.
    """

    name: str
    description: str
    licence: str
    urls: dict[str, str] = {}
    sha256: dict[str, str] = {}
    size_bytes: int = 0
    setting: str = ""
    page: str = ""
