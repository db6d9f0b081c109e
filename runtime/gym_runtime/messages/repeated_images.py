"""Images that come again in a conversation: what is stored or sent has each once, and then its digest.

The first time an image is as it came; later it is ``gym-image:SHA256``, and what has such names says so
(`TurnRecord.images` of the journal, `Request.images`, `RolloutRecord.images`). Only texts after
``"image_url":`` are touched, which in JSON is no text of a model: there a quotation mark has a backslash
before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec import Raw

LEAST_BYTES = 4096
"""A shorter image stays where it is."""

_KEY = b'"image_url":"'
_NAME = b"gym-image:"
_INLINE = b"data:image/"
_DIGITS = frozenset(b"0123456789abcdef")


class RepeatedImages:
    """What a row of JSON texts has had so far, in their order."""

    def __init__(self) -> None:
        self._had: set[bytes] = set()
        self._read: dict[bytes, bytes] = {}

    def packed(self, text: bytes) -> bytes:
        """A text with names for the images that earlier texts or it itself have had already.

        A text in which an engine or an environment has such a name already stays as it is. Call `keep` when
        it is stored.
        """
        if len(text) < LEAST_BYTES:
            return text
        pieces, at = list[bytes](), 0
        # By the image itself: only one that comes again needs a digest, which takes 2 ms of a megabyte.
        here: dict[bytes, bytes] = {}
        for start, url in _urls(text):
            if _is_name(url):
                return text
            digest = here.get(url)
            if digest is None:
                here[url] = digest = _digest(url) if self._had else b""
                if digest not in self._had:
                    continue
            here[url] = digest = digest or _digest(url)
            pieces += [text[at:start], _NAME, digest]
            at = start + len(url)
        return b"".join([*pieces, text[at:]]) if pieces else text

    def keep(self, text: bytes) -> None:
        """A text, as `packed` has given it, is stored."""
        self._had.update(_digest(url) for _, url in _urls(text) if not _is_name(url))

    def read(self, text: bytes, *, named: bool) -> bytes:
        """A part of a stored text with its images.

        Args:
            named: the text has names in place of images.

        Raises:
            KeyError: nothing before has the image.
        """
        for _, url in _urls(text):
            if not _is_name(url):
                digest = _digest(url)
                self._had.add(digest)
                self._read[digest] = url
        return _with_images(text, self._read) if named else text

    def forget_what_was_read(self) -> None:
        """All texts are read: the images themselves are not needed any more, and take memory."""
        self._read.clear()


def read_alone(packed: Raw) -> Raw:
    """A text with its images that was packed alone.

    Raises:
        msgspec.DecodeError: it does not have an image that it names.
    """
    text = bytes(packed)
    found = [url for _, url in _urls(text)]
    missing = {url.removeprefix(_NAME) for url in found if _is_name(url)}
    images: dict[bytes, bytes] = {}
    for url in found:
        if missing and not _is_name(url):
            digest = _digest(url)
            images[digest] = url
            missing.discard(digest)
    try:
        return Raw(_with_images(text, images))
    except KeyError as error:
        raise msgspec.DecodeError(f"it has no image {error}") from error


def _with_images(text: bytes, images: Mapping[bytes, bytes]) -> bytes:
    pieces, at = list[bytes](), 0
    for start, url in _urls(text):
        if _is_name(url):
            pieces += [text[at:start], images[url.removeprefix(_NAME)]]
            at = start + len(url)
    return b"".join([*pieces, text[at:]])


def _urls(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The large images and the names of a text, and where they begin."""
    at = 0
    while (found := text.find(_KEY, at)) >= 0:
        start = found + len(_KEY)
        at = text.find(b'"', start)
        if at < 0:
            return
        large = at - start >= LEAST_BYTES and text.startswith(_INLINE, start)
        if (large and text.find(b"\\", start, at) < 0) or _is_name(text[start : min(at, start + 99)]):
            yield start, text[start:at]


def _is_name(url: bytes) -> bool:
    return url.startswith(_NAME) and len(url) == len(_NAME) + 64 and _DIGITS.issuperset(url[len(_NAME) :])


def _digest(url: bytes) -> bytes:
    return sha256(url).hexdigest().encode()
