"""Texts of token ids out of a ``tokenizer.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_view.vocabulary import Vocabulary


def write_tokenizer(path: Path, vocab: object, decoder: str = "ByteLevel") -> Path:
    """A file with what is read of a tokenizer's."""
    added = [{"id": 99, "content": "<|im_end|>", "special": True}]
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocab},
        "decoder": {"type": decoder},
        "added_tokens": added,
    }
    path.write_text(json.dumps(tokenizer))
    return path


def test_bytes_of_a_character_come_with_its_last_token(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json", {"Hi": 0, "Ġ": 1, "ð": 2, "ŁĺĢ": 3, "Ċ": 4})
    texts = Vocabulary(tmp_path).texts([0, 1, 2, 3, 4, 99, 1000, None])
    assert texts == ["Hi", " ", "", "😀", "\n", "<|im_end|>", "⟨1000⟩", "⟨?⟩"]
    assert Vocabulary(path).texts([2, 0]) == ["", "�Hi"]


@pytest.mark.parametrize("vocab", [{"▁Hi": 0, "<0x0A>": 1}, [["▁Hi", -1.0], ["<0x0A>", -2.0]]])
def test_a_vocabulary_of_sentencepiece(vocab: object, tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json", vocab, "Metaspace")
    assert Vocabulary(path).texts([0, 1]) == [" Hi", "\n"]


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot read"), ("{", "is no tokenizer.json"), ({"model": {}}, "vocab")]
)
def test_another_file_is_refused(content: Any, why: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match=why):
        Vocabulary(path)
