"""Names of images that data may choose: those of registries, and of images that the engine has.

An engine also takes archives and folders of this machine for images, such as ``docker-archive:/home/x.tar``.
Rows and Dockerfiles must not open these.

Source: github.com/distribution/reference (the grammar), containers-transports(5).
"""

from __future__ import annotations

import re

MAX_CHARS = 512
_DOMAIN = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,254}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,45}\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"[A-Za-z][A-Za-z0-9+._-]{0,30}:[0-9A-Fa-f]{32,128}"
_REFERENCE = re.compile(rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?")
_TRANSPORT = re.compile(
    "(?:containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):"
)


def is_reference(name: str) -> bool:
    """Whether it names an image of a registry, or one that the engine has.

    >>> is_reference("docker.io/library/python:3.12-slim"), is_reference("docker-archive:/home/x.tar")
    (True, False)
    """
    return len(name) <= MAX_CHARS and bool(_REFERENCE.fullmatch(name)) and not _TRANSPORT.match(name)
