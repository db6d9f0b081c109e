"""A model of 676 numbers that writes one letter for each letter of a word, and the engine that serves it.

A token is a letter. The model has a score for each pair of a letter and the letter that it writes for it.
In the beginning it knows 12 letters, is right of 8 others a quarter of the time, and never of the last 6. So
most words are too easy or too hard for it.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import numpy as np
from gym_runtime import make_response
from gym_runtime.adapters import (
    CallContext,
    Control,
    ControlAnswer,
    ModelAnswer,
    ModelCall,
    ModelSettings,
    Tokens,
)
from gym_runtime.messages import pack_ids, pack_logprobs
from msgspec import Raw

LETTERS = "abcdefghijklmnopqrstuvwxyz"
EASY, NEW, NEVER = "etaoinshrdlc", "umwfgypb", "vkjxqz"
SCORES = {EASY: 11.0, NEW: 2.0, NEVER: -6.0}
"""Of the right letter in the beginning; of all others 0."""
SHARES = {EASY: 0.4, NEW: 0.25, NEVER: 0.35}
"""Of the words: of easy letters only; with a new letter; with one of which it is never right."""
RIGHT = (np.arange(26) + 13) % 26


def ids(word: str) -> list[int]:
    """A word's tokens."""
    return [LETTERS.index(letter) for letter in word]


def words(seed: int, count: int) -> list[str]:
    """Words of three to nine easy letters, of which one or two give way to a letter of the word's kind."""
    chance = np.random.default_rng(seed)
    made: list[str] = []
    for _ in range(count):
        kind = list(SHARES)[chance.choice(3, p=list(SHARES.values()))]
        word = chance.choice(list(EASY), chance.integers(3, 10))
        word[chance.permutation(len(word))[: chance.integers(1, 3)]] = chance.choice(list(kind))
        made.append("".join(word))
    return made


def beginning() -> np.ndarray:
    """The scores before training, ``(26, 26)``: by the letter that is read and the one that is written."""
    scores = np.zeros((26, 26))
    for letters, score in SCORES.items():
        scores[ids(letters), RIGHT[ids(letters)]] = score
    return scores


def log_probs(scores: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities, ``(26, 26)``."""
    low = scores - scores.max(1, keepdims=True)
    return low - np.log(np.exp(low).sum(1, keepdims=True))


def gradient(scores: np.ndarray, read: np.ndarray, written: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Of the mean over tokens of factor times log-probability; all three arrays are ``(tokens,)``."""
    slope, counts = np.zeros_like(scores), np.zeros(26)
    np.add.at(slope, (read, written), factors)
    np.add.at(counts, read, factors)
    return (slope - counts[:, None] * np.exp(log_probs(scores))) / len(read)


def pass_rate(scores: np.ndarray, tasks: list[str]) -> float:
    """The mean probability that a word is right: exact, so nothing need be sampled for it."""
    known = log_probs(scores)[np.arange(26), RIGHT]
    return float(np.mean([np.exp(known[ids(word)].sum()) for word in tasks]))


class Adapter:
    """The engine: ``--model speller/SCORES.npy``. It samples at temperature 1, and gives exact tokens."""

    def __init__(self, settings: ModelSettings) -> None:
        self._path, self._version = settings.name, ""
        self._chance = np.random.default_rng()

    async def __aenter__(self) -> Self:
        self._load(self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _load(self, path: str) -> None:
        self._log_probs = log_probs(np.load(path, allow_pickle=False))

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        content = json.loads(bytes(call.input[-1]))["content"]
        read = ids(content if isinstance(content, str) else content[0]["text"])
        likely = self._log_probs[read]
        # The largest of the sums with Gumbel noise is a sample.
        written = (likely + self._chance.gumbel(size=likely.shape)).argmax(1)
        said = likely[np.arange(len(read)), written]
        response: dict[str, Any] = json.loads(make_response("".join(LETTERS[token] for token in written)))
        size = len(read)
        response["usage"] = {"input_tokens": size, "output_tokens": size, "total_tokens": 2 * size}
        return ModelAnswer(
            response=Raw(json.dumps(response).encode()),
            tokens=Tokens(
                prompt_ids=pack_ids(read),
                generation_ids=pack_ids(written.tolist()),
                log_probs=pack_logprobs(said.tolist()),
            ),
            weight_version=self._version or None,
        )

    async def control(self, command: Control) -> ControlAnswer:
        if command.op == "update":
            self._load(command.path)
            self._version = command.version
        return ControlAnswer(version=self._version)
