"""The turns that a forked rollout shares with the one that it forks.

Their answers stand before those of the journal (`Journal.shared_turns`). The environment's calls are made
again, in a session of the fork's own, and each answer is compared with the recorded one. Where one differs,
the environment is not in the recorded state: the rollout fails (`ReplayDiffers`), or goes on with the new
answer if its fork says so. In the latter case the tokens of the later shared turns are dropped, because their
prompts have the recorded answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, ReplayDiffers, TaskError
from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import Ids, ids_after, lengthened
from gym_runtime.messages.fork import Fork, ForkTurn
from gym_runtime.messages.images import Content
from gym_runtime.messages.responses import FunctionCall, FunctionCallOutput, decode_items

SHOWN_CHARS = 200
"""So much of two answers that differ is in the error."""


class SharedTurns:
    """The shared turns of one attempt; none for a rollout that is no fork.

    Attributes:
        answers: the model's answers; a difference changes those that come later.
        items: how many items of the transcript they fill, up to the last shared answer.
        differed: the turns, from 1, after which the environment answered differently.
        restored: up to this turn the environment's calls are not made again: its state was restored.
    """

    def __init__(self, fork: Fork | None) -> None:
        self._is_fork, self._fork = fork is not None, fork or Fork()
        self.answers: list[Raw] = []
        self.items = 0
        self.differed: list[int] = []
        self.restored = 0
        before: Ids = ()
        for turn in self._fork.turns:
            tokens = turn.tokens and lengthened(turn.tokens, before)
            before = ids_after(tokens, before) if tokens else before
            self.answers.append(_answer(turn, tokens))

    def recorded(self, turn: int, called: Sequence[FunctionCall]) -> list[Content] | None:
        """What tools answered after a turn, from 1; None if they are to be called.

        Raises:
            TaskError: the row does not say it.
        """
        if not 0 < turn <= self.restored:
            return None
        known = _outputs(self._after(turn))
        try:
            return [known[call.call_id].pop(0) for call in called]
        except IndexError:
            raise TaskError(f"the fork's row has a call of turn {turn} without an output") from None

    def observation(self, turn: int) -> calls.StepAnswer | None:
        """What a step-by-step environment answered after a turn, from 1; None if it is to be asked."""
        return calls.StepAnswer(items=self._after(turn)) if 0 < turn <= self.restored else None

    def outputs(self, turn: int, called: Sequence[FunctionCall], outputs: Sequence[Content]) -> list[Content]:
        """What the model is told that its tools answered after a turn.

        Args:
            turn: from 1; of turns that are not shared, tools' outputs stay as they are.
            outputs: what the tools answered now.

        Raises:
            ReplayDiffers: a tool answers differently than it did, and the fork does not go on then.
        """
        if not 1 <= turn <= len(self.answers):
            return list(outputs)
        recorded = _outputs(self._after(turn))
        told: list[Content] = []
        for call, output in zip(called, outputs, strict=True):
            # A call that failed with its rollout has no recorded output.
            known = recorded[call.call_id].pop(0) if recorded[call.call_id] else output
            if _text_of(known) != _text_of(output):
                self._differs(
                    turn, f"the tool '{call.name[:SHOWN_CHARS]}'", _text_of(output), _text_of(known)
                )
            elif turn == len(self.answers):
                output = self._fork.outputs.get(call.call_id, output)
            told.append(output)
        return told

    def observed(self, turn: int, items: Sequence[Raw]) -> None:
        """Compare the observation after a turn, from 1, with the recorded one.

        Raises:
            ReplayDiffers: as `outputs`.
        """
        if 1 <= turn <= len(self.answers) and (known := self._after(turn)) and not same(items, known):
            self._differs(turn, "the environment", _text(items), _text(known))

    def began(self, items: Sequence[Raw], observation: Sequence[Raw]) -> bool:
        """Whether a row's input ends with its first observation, as that of a recorded episode does.

        Raises:
            ReplayDiffers: a fork's does not.
        """
        if not self._is_fork:
            return False
        known = items[max(0, len(items) - len(observation)) :]
        if not same(observation, known):
            raise ReplayDiffers(
                f"the episode begins with {_text(observation)}, and the recorded one with {_text(known)}",
                stage="tool",
            )
        return True

    def require_taken(self, turns: int, agent: str) -> None:
        """
        Raises:
            TaskError: an agent has ended, or asks by itself, after fewer turns than those that are shared.
        """
        if turns < len(self.answers):
            raise TaskError(
                f"agent '{agent}' took {turns} of the {len(self.answers)} turns of the fork: fork at an "
                "earlier turn, or with a higher max_turns; an agent with a harness cannot be forked",
                stage="agent",
            )

    def _after(self, turn: int) -> list[Raw]:
        return self._fork.turns[turn - 1].after

    def _differs(self, turn: int, who: str, now: str, known: str) -> None:
        if self._fork.on_difference == "fail":
            raise ReplayDiffers(
                f"after turn {turn} {who} answers {now[:SHOWN_CHARS]!r}, and the recorded rollout has "
                f"{known[:SHOWN_CHARS]!r}; --go-on (on_difference='go_on') takes the new answer",
                stage="tool",
            )
        if turn not in self.differed:
            self.differed.append(turn)
        self.answers[turn:] = [_answer(one, None) for one in self._fork.turns[turn:]]


def _answer(turn: ForkTurn, tokens: calls.Tokens | None) -> Raw:
    answer = calls.ModelAnswer(response=turn.response, tokens=tokens, weight_version=turn.weight_version)
    return calls.pack(answer)


def _outputs(items: Iterable[Raw]) -> defaultdict[str, list[Content]]:
    """Tools' outputs by ``call_id``, in order: an engine may give several calls the same one."""
    found: defaultdict[str, list[Content]] = defaultdict(list)
    try:
        for item in decode_items(items):
            if isinstance(item, FunctionCallOutput):
                found[item.call_id].append(msgspec.to_builtins(item.output))
    except UNREADABLE as error:
        raise TaskError(f"the fork's row has an item that cannot be read: {error}") from error
    return found


def _text_of(content: Content) -> str:
    """A text; of several parts those that are texts, and the addresses of the others, which may be data."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or part.get("image_url") or part) for part in content)


def same(some: Iterable[Raw], others: Iterable[Raw]) -> bool:
    """Whether items are the same JSON, however it is written."""
    return list(_plain(some)) == list(_plain(others))


def _plain(items: Iterable[Raw]) -> Iterator[object]:
    return (msgspec.json.decode(item) for item in items)


def _text(items: Iterable[Raw]) -> str:
    return b", ".join(bytes(item)[:SHOWN_CHARS] for item in items)[:SHOWN_CHARS].decode(errors="replace")
