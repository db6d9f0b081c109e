"""Images in a journal, each stored once: a screenshot that comes again is its digest.

The first record with an image has it as it came; later ones of the same journal have ``gym-image:SHA256`` in
its place, and say so (`TurnRecord.images`). Only texts after ``"image_url":`` are touched, which in JSON is
no text of a model: there a quotation mark has a backslash before it. An older version takes such a record
for another call's, and the rollout starts again.
"""

from __future__ import annotations

import re
from hashlib import sha256

_KEY = rb'("image_url":")'
_INLINE = re.compile(_KEY + rb'(data:image/[a-z+.-]{1,20};base64,[A-Za-z0-9+/=]{4096,})"')
_NAME = b"gym-image:"
_NAME_HERE = b'"image_url":"' + _NAME
_NAMED = re.compile(_KEY + _NAME + rb'([0-9a-f]{64})"')


class JournalImages:
    """What the records of one journal have had so far, in their order."""

    def __init__(self) -> None:
        self._stored: set[bytes] = set()
        self._read: dict[bytes, bytes] = {}

    def packed(self, record: bytes) -> bytes:
        """A record with the names of images that earlier ones have; call `keep` when it is stored.

        A record in which an engine or an environment has such a name already stays as it is.
        """
        if not self._stored or _NAME_HERE in record:
            return record

        def named(found: re.Match[bytes]) -> bytes:
            digest = _digest(found[2])
            return found[1] + _NAME + digest + b'"' if digest in self._stored else found[0]

        return _INLINE.sub(named, record)

    def keep(self, record: bytes) -> None:
        """A record, as `packed` has given it, is stored."""
        self._stored.update(_digest(found[2]) for found in _INLINE.finditer(record))

    def read(self, body: bytes, *, named: bool) -> bytes:
        """A part of a stored record with its images.

        Args:
            named: the record has names in place of images.

        Raises:
            KeyError: no earlier record has the image.
        """
        for found in _INLINE.finditer(body):
            digest = _digest(found[2])
            self._stored.add(digest)
            self._read[digest] = found[2]
        return _NAMED.sub(lambda found: found[1] + self._read[found[2]] + b'"', body) if named else body

    def forget_what_was_read(self) -> None:
        """All records are read: the images themselves are not needed any more, and take memory."""
        self._read.clear()


def _digest(url: bytes) -> bytes:
    return sha256(url).hexdigest().encode()
