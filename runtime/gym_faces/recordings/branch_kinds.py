"""Decides what each call of a harness's rollout is to it: `gym_runtime.messages.Kind`.

A harness does not say so; its calls do. A call that is not of the main conversation is

1. ``parallel``, if one with the same conversation was asked before its answer came, or it before theirs;
2. ``subagent``, if its conversation begins with a text of another call's arguments, and no other conversation
   begins with an answer of it unless a tool's output quotes it, too;
3. ``compaction``, if a later conversation quotes its answer in a user's message, or repeats its
   items in another history; and so are the later call, and those that it continued itself. Where history was
   told to a conversation apart, which wrote the summary, the calls whose arguments it was told are, too;
   ``subagent``, if a tool's output quotes an answer of its conversation;
4. ``retry``, if one with the same conversation was asked after its answer, or is of the main conversation;
   ``attempt``, if the answer of one with the same conversation replaced history;
5. what the call is that it continues, unless that is of the main conversation;
6. ``side``.

Texts shorter than `SHORTEST` quote nothing. Pure: no I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import Kind, as_text, content_text

SHORTEST = 16
QUOTED_CHARS = 200
"""So much of a text's beginning is looked for."""
SEARCHED_CHARS = 30_000
"""So much of a call's new user messages, outputs and arguments is read. A search holds the event loop, and a
model's text may make it slow: with these limits it takes 40 ms at most, and less than 1 ms otherwise."""
SEARCHED_CALLS = 24
"""Texts of so many calls before it are looked for."""
SPAWNED = 8
"""So many texts of a call's arguments may be a sub-agent's task."""


class CallFacts(msgspec.Struct):
    """What is known of a call.

    Attributes:
        before: the number of the call that it continues; -1 if it continues no call.
        conversation: equal for calls with the same conversation.
        asked: how many answers had come when it was asked.
        said: what its answer says; its arguments' texts are ``spawned``.
        quotes: the calls whose answers are in its new messages, and those whose items it repeats.
        reports: the calls whose answers are in its new tools' outputs.
        started_by: the calls whose arguments' texts stand at the beginning of its conversation.
    """

    before: int
    conversation: bytes
    asked: int
    said: str = ""
    spawned: list[str] = []
    quotes: set[int] = msgspec.field(default_factory=set[int])
    reports: set[int] = msgspec.field(default_factory=set[int])
    started_by: set[int] = msgspec.field(default_factory=set[int])


def look(
    facts: CallFacts,
    calls: Sequence[CallFacts],
    added: Iterable[Mapping[str, Any]],
    answer: Sequence[Mapping[str, Any]],
) -> None:
    """Fill in the facts of a call from its texts.

    Args:
        calls: those before it.
        added: its conversation's items that the call before it has not.
        answer: its own items.
    """
    facts.spawned = [*islice(_texts_of(answer), SPAWNED)]
    facts.said = _needle("".join(content_text(one.get("content")) for one in answer if _is_message(one)))
    told, outputs = "", ""
    for item in added:
        if item.get("role") == "user" and len(told) < SEARCHED_CHARS:
            told += content_text(item.get("content"))[: SEARCHED_CHARS - len(told)]
        elif item.get("type") == "function_call_output" and len(outputs) < SEARCHED_CHARS:
            outputs += content_text(item.get("output"))[: SEARCHED_CHARS - len(outputs)]
    earlier = range(max(0, len(calls) - SEARCHED_CALLS), len(calls))
    others = [number for number in earlier if calls[number].said and number != facts.before]
    facts.quotes |= {number for number in others if calls[number].said in told}
    facts.reports |= {number for number in others if calls[number].said in outputs}
    if facts.before < 0:
        spawned = ((number, text) for number in reversed(earlier) for text in calls[number].spawned)
        facts.started_by = {number for number, text in islice(spawned, SEARCHED_CALLS) if text in told}


def _is_message(item: Mapping[str, Any]) -> bool:
    return item.get("type", "message") == "message"


def _needle(text: str) -> str:
    text = text.strip()[:QUOTED_CHARS]
    return text if len(text) >= SHORTEST else ""


def _texts_of(answer: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The long texts in the arguments of an answer's calls, at any depth."""
    rest, room = list[Any](), SEARCHED_CHARS
    for item in answer:
        if item.get("type") != "function_call":
            continue
        arguments = as_text(item.get("arguments"))
        room -= len(arguments)
        if room < 0:
            break
        with suppress(*UNREADABLE):
            rest.append(msgspec.json.decode(arguments))
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            if text := _needle(one):
                yield text
        elif isinstance(one, dict):
            rest += cast("Mapping[str, Any]", one).values()
        elif isinstance(one, list):
            rest += cast("list[Any]", one)


def kinds(calls: Sequence[CallFacts], main: set[int]) -> list[Kind]:
    """The kind of each call, in the order of their answers.

    Args:
        main: the numbers of the main conversation's calls.
    """
    numbers: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        numbers[call.conversation].append(number)
    twins = {conversation: _Twins(calls, same) for conversation, same in numbers.items()}
    replaced = {number for call in calls for number in call.quotes}
    reported = _with_ancestors(calls, {number for call in calls for number in call.reports}, main)
    parts = _parts(calls, reported)
    told = {one for number in replaced - parts for one in calls[number].started_by}
    shortened = _with_ancestors(calls, replaced | told, main)
    gone_on = {conversation for conversation, same in numbers.items() if not main.isdisjoint(same)}
    retold = {conversation for conversation, same in numbers.items() if not replaced.isdisjoint(same)}
    found: list[Kind] = []
    for number, call in enumerate(calls):
        same = twins[call.conversation]
        if number in main:
            kind: Kind = "main"
        elif same.at_once(number, call.asked):
            kind = "parallel"
        elif number in parts:
            kind = "subagent"
        elif call.quotes or number in shortened:
            kind = "compaction"
        elif number in reported:
            kind = "subagent"
        elif call.conversation in gone_on or number < same.last:
            kind = "attempt" if call.conversation in retold else "retry"
        elif call.before >= 0 and call.before not in main:
            kind = found[call.before]
        else:
            kind = "side"
        found.append(kind)
    return found


class _Twins:
    """The calls with one conversation, by their numbers in order."""

    def __init__(self, calls: Sequence[CallFacts], numbers: list[int]) -> None:
        self.last = numbers[-1]
        self._numbers = numbers
        # From each on, how few answers had come when one was asked.
        asked = [calls[number].asked for number in reversed(numbers)]
        self._least_asked = [*accumulate(asked, min)][::-1]

    def at_once(self, number: int, asked: int) -> bool:
        """Whether another one was open, asked and not answered, while this one was."""
        place = bisect_left(self._numbers, number)
        after_it = self._least_asked[place + 1 : place + 2]
        return bisect_left(self._numbers, asked) < place or (bool(after_it) and after_it[0] <= number)


def _with_ancestors(calls: Sequence[CallFacts], numbers: set[int], main: set[int]) -> set[int]:
    """Calls, and all before them in their conversations, up to the main one."""
    found: set[int] = set()
    for number in numbers:
        while number >= 0 and number not in main and number not in found:
            found.add(number)
            number = calls[number].before
    return found


def _parts(calls: Sequence[CallFacts], reported: set[int]) -> set[int]:
    """The calls of conversations that were started for a part of the task."""
    first: list[int] = []
    for number, call in enumerate(calls):
        first.append(first[call.before] if call.before >= 0 else number)
    # A conversation that begins with a summary, too, quotes the one that wrote it.
    begun_from = {first[one] for call in calls if call.before < 0 for one in call.quotes}
    begun_from -= {first[number] for number in reported}
    return {number for number, one in enumerate(first) if calls[one].started_by and one not in begun_from}
