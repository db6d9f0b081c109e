"""A policy small enough for any CPU: for each board of Nim (or another prompt), a number for each move.

It samples as an engine does, ids in and ids out with their log-probabilities, and `gym_trainers.TokenEngine`
serves it to the system. A token is a word of the conversation, and a move is one token.
"""

import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from gym_trainers.token_engine import Sampled

HEAPS, MOST = 3, 4
MOVES = [f"<take>{heap} {count}</take>" for heap in range(1, HEAPS + 1) for count in range(1, MOST + 1)]
BOARD, ZERO = len(MOVES), len(MOVES) + 1  # ids: the moves, the mark of a board, the numbers from 0
_TOKEN = re.compile(r"<take>\d \d</take>|heap \d: \d")


class Tokenizer:
    """Ids of what matters in a conversation: the boards and the moves."""

    def apply_chat_template(self, messages: list[dict[str, Any]], **_: Any) -> list[int]:
        ids: list[int] = []
        for message in messages:
            for word in _TOKEN.findall(message["content"]):
                if word in MOVES:
                    ids.append(MOVES.index(word))
                else:
                    ids += [BOARD] * (word[5] == "1") + [ZERO + int(word[-1])]
        return ids

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(MOVES[one] for one in ids)


def board_of(ids: list[int]) -> tuple[int, ...]:
    """The heaps that were shown last."""
    last = len(ids) - ids[::-1].index(BOARD)
    return tuple(one - ZERO for one in ids[last : last + HEAPS] if one >= ZERO)


class Policy:
    """A softmax over the moves for each board; at first all moves are equal, legal or not.

    Args:
        seed: the same calls of the same step are answered alike, in whatever order they come.
        moves: how many there are; their ids are the first ones.
        board: what of a prompt decides.
    """

    def __init__(
        self,
        seed: int,
        moves: int = len(MOVES),
        board: Callable[[list[int]], tuple[int, ...]] = board_of,
    ) -> None:
        self.seed, self.step, self.moves, self.board = seed, 0, moves, board
        self.logits: dict[tuple[int, ...], np.ndarray] = {}

    def log_probs(self, board: tuple[int, ...]) -> np.ndarray:
        """Shape (moves,)."""
        logits = self.logits.get(board, np.zeros(self.moves))
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def drawn(self, prompt: list[int], rollout: str) -> np.random.Generator:
        """Random numbers for one call: of the seed, the step, the rollout's place and what it was told."""
        place = rollout.split(".")[-2:]  # without the run's name, which is another one each time
        return np.random.default_rng([self.seed, self.step, zlib.crc32(f"{place} {prompt}".encode())])

    async def generate(self, prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        """One move, as a trainer's engine samples it."""
        chances = self.log_probs(self.board(prompt))
        move = int(self.drawn(prompt, rollout).choice(self.moves, p=np.exp(chances)))
        return Sampled([move], [float(chances[move])], version=f"step-{self.step}")

    def train(self, samples: list[tuple[Any, float]], rate: float) -> float:
        """A step of policy gradient on sequences with their advantages.

        Returns:
            The largest difference between a log-probability here and the one that came with its token.
        """
        gradients: dict[tuple[int, ...], np.ndarray] = {}
        difference = 0.0
        for sequence, advantage in samples:
            ids = [*sequence.prompt_ids.tolist(), *sequence.completion_ids.tolist()]
            for place in np.flatnonzero(sequence.mask):
                board, move = (
                    self.board(ids[: len(sequence.prompt_ids) + place]),
                    sequence.completion_ids[place],
                )
                chances = self.log_probs(board)
                difference = max(difference, abs(chances[move] - sequence.log_probs[place]))
                gradient = gradients.setdefault(board, np.zeros(self.moves))
                gradient -= advantage * np.exp(chances)
                gradient[move] += advantage
        for board, gradient in gradients.items():
            self.logits[board] = self.logits.get(board, np.zeros(self.moves)) + rate * gradient
        self.step += 1
        return float(difference)


class RandomPlayer(Policy):
    """The fixed opponent: one of the legal moves, each as likely as the others."""

    def log_probs(self, board: tuple[int, ...]) -> np.ndarray:
        legal = [
            count <= (*board, *[0] * HEAPS)[heap] for heap in range(HEAPS) for count in range(1, MOST + 1)
        ]
        with np.errstate(divide="ignore"):
            return np.log(np.array(legal) / sum(legal))
