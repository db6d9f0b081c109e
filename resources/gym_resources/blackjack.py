"""Blackjack against a dealer: one move a turn, until the player stands or is bust.

The model moves by its first ``<action>hit</action>`` or ``<action>stand</action>``, in any case; an answer
without such a tag stands, so that any text wins a hand that is good enough (4 of the 5 example rows pay for
one). With ``strict``, which NeMo Gym lacks, an answer that does not name one move, and one only, loses the
game. Winning is worth 1, a draw 0, losing -1; an unfinished game is worth 0. The dealer
draws up to 17 or more; an ace counts 11 where it can, else 1; cards come from a deck that never runs out,
each rank as often as the others.

Rows, moves and rewards are those of NeMo Gym's environment of this name, with at most ten answers. Two things
are added: a call of a tool ``hit`` or ``stand`` is a move, if a row offers such tools; and
``verifier_metadata.seed`` decides the cards, so that a task is the same game in all of its rollouts. Without
a seed they follow from the row's input; in NeMo Gym they differ between rollouts, so a stored rollout cannot
be verified again.
Source: the rules and rewards of Gymnasium's ``Blackjack-v1`` (github.com/Farama-Foundation/Gymnasium, MIT),
after Sutton and Barto, "Reinforcement Learning", example 5.1; the rows are our own.
"""

from __future__ import annotations

import random
import re

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Task

CARDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10)
BEST = 21
DEALER_STANDS = 17

_MOVE = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE)


class Deal(msgspec.Struct):
    seed: int | None = None


class BlackjackTask(Task):
    verifier_metadata: Deal | None = None
    strict: bool = False


class Blackjack(Episode[BlackjackTask]):
    async def open(self) -> None:
        deal = self.task.verifier_metadata
        seed = deal.seed if deal else None
        self.deck = random.Random(bytes(self.task.responses_create_params.input) if seed is None else seed)
        self.player = [self.draw(), self.draw()]
        self.dealer = [self.draw(), self.draw()]

    def draw(self) -> int:
        return self.deck.choice(CARDS)

    async def reset(self) -> str:
        return f"{self.hand()} The dealer shows {name(self.dealer[0])}. Hit or stand?"

    def hand(self) -> str:
        return f"You hold {', '.join(map(name, self.player))}: {total(self.player)}."

    async def step(self, reply: Reply) -> Step:
        if self.task.strict and not decided(reply):
            return self.tell(reply, "That is not one move. You lose.", reward=-1.0, over=True)
        if chosen(reply) == "hit":
            self.player.append(self.draw())
            if total(self.player) <= BEST:
                return self.tell(reply, f"{self.hand()} Hit or stand?")
            return self.tell(reply, f"{self.hand()} You are bust.", reward=-1.0, over=True)
        while total(self.dealer) < DEALER_STANDS:
            self.dealer.append(self.draw())
        player, dealer = total(self.player), total(self.dealer)
        won = dealer > BEST or player > dealer
        reward = 1.0 if won else 0.0 if player == dealer else -1.0
        shown = f"The dealer has {', '.join(map(name, self.dealer))}: {dealer}."
        return self.tell(reply, shown, reward=reward, over=True)

    def tell(self, reply: Reply, text: str, *, reward: float = 0.0, over: bool = False) -> Step:
        """A step with a text: as the output of the first tool call, else as the user's message."""
        answers = [text, *("Ignored: one move a turn." for _ in reply.function_calls[1:])]
        outputs = {call.call_id: said for call, said in zip(reply.function_calls, answers, strict=False)}
        return Step(
            observation=None if outputs else text,
            tool_outputs=outputs,
            reward=reward,
            terminated=over,
            info={"player_total": total(self.player), "dealer_total": total(self.dealer)} if over else {},
        )


def chosen(reply: Reply) -> str:
    """The first move; without any, ``stand``."""
    return next(iter(moves(reply)), "stand")


def decided(reply: Reply) -> bool:
    """Whether all calls, or all tags, are the same move."""
    found = moves(reply)
    tried = len(reply.function_calls) or reply.joined_text.casefold().count("<action>")
    return len(set(found)) == 1 and len(found) == tried


def moves(reply: Reply) -> list[str]:
    """Each ``hit`` and ``stand``: of the calls if the first one is a move; else of the tags."""
    calls = [call.name for call in reply.function_calls if call.name in ("hit", "stand")]
    if calls and reply.function_calls[0].name == calls[0]:
        return calls
    return [move.lower() for move in _MOVE.findall(reply.joined_text)]


def name(card: int) -> str:
    return "an ace" if card == 1 else str(card)


def total(hand: list[int]) -> int:
    """The hand's worth, one ace counted 11 if that does not make it bust."""
    worth = sum(hand)
    return worth + 10 if 1 in hand and worth + 10 <= BEST else worth


environment = Environment(
    resource=Blackjack,
    description="Play a game of blackjack against the dealer, move by move.",
    domain="games",
    data_license="Apache-2.0 (own rows)",
    max_turns=10,
)
