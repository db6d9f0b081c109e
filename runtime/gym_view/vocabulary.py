"""Texts of token ids, out of a model's ``tokenizer.json`` (the file of Hugging Face's tokenizers).

Rows have the ids that an engine sampled, and mostly no text for each. The file's vocabulary is enough to give
one: nothing of the model is loaded or run.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError

MAX_BYTES = 256 * 2**20
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class _Added(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    """``vocab``: ids by token, or tokens with their scores in the order of their ids."""

    vocab: dict[str, int] | list[tuple[str, float]]


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []
    pre_tokenizer: msgspec.Raw = msgspec.Raw()
    decoder: msgspec.Raw = msgspec.Raw()


class Vocabulary:
    """The bytes of each token, by its id."""

    def __init__(self, path: Path) -> None:
        """Read a ``tokenizer.json``, or that of a folder.

        Raises:
            UsageError: there is no such file, or it is another kind of file.
        """
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            if file.stat().st_size > MAX_BYTES:
                raise UsageError(f"{file} is larger than {MAX_BYTES // 2**20} MiB: it is no tokenizer.json")
            read = msgspec.json.decode(file.read_bytes(), type=_Tokenizer)
        except OSError as error:
            raise UsageError(
                f"cannot read {file}: {error.strerror}; name a model's tokenizer.json, or its folder"
            ) from None
        except UNREADABLE as error:
            raise UsageError(f"{file} is no tokenizer.json: {error}") from None
        vocab = read.model.vocab
        known = vocab if isinstance(vocab, dict) else {token: at for at, (token, _) in enumerate(vocab)}
        as_bytes = (
            _byte_level if b'"ByteLevel"' in bytes(read.decoder) + bytes(read.pre_tokenizer) else _plain
        )
        self._bytes = {number: as_bytes(token) for token, number in known.items()}
        self._bytes |= {added.id: added.content.encode() for added in read.added_tokens}

    def texts(self, ids: Iterable[object]) -> list[str]:
        """The text of each token, which joined are the text of all.

        A character that several tokens make is at the last of them. An unknown id is ``⟨ID⟩``.
        """
        return list(self._texts(ids))

    def _texts(self, ids: Iterable[object]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for number in ids:
            found = self._bytes.get(number) if isinstance(number, int) else None
            if found is None:
                found = f"⟨{number if isinstance(number, int) else '?'}⟩".encode()
            yield decoder.decode(found)


def _byte_level(token: str) -> bytes:
    """Of a vocabulary that has a printable character for each byte, as GPT-2's."""
    return b"".join(_BYTES.get(character, character.encode()) for character in token)


def _plain(token: str) -> bytes:
    """Of a vocabulary as SentencePiece makes it."""
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


def _printable() -> dict[str, bytes]:
    """Printable bytes stand for themselves, the others, in their order, for the characters from 256 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    codes = [*kept, *range(256, 256 + len(others))]
    return {chr(code): bytes([byte]) for code, byte in zip(codes, kept + others, strict=True)}


_BYTES = _printable()
