"""Makes one transcript from the calls of a harness's rollout.

A harness sends the whole conversation with each call. A call continues an earlier one if its conversation
begins with that one's, including its answer. So the calls of a rollout form trees: one for the main
conversation, others for side questions (a title, a summary) and for sub-agents, with branches where a call
was repeated. The transcript is the longest path; of several with the same length, one whose last call offers
tools, which a question for a title does not; of these the one that ends at the latest call. The calls of the
other paths are kept for training: `Transcript.branches`. Pure: no I/O, no waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar

import anyio.to_thread
import msgspec
from gym_runtime.adapters import Prefix, Tokens
from gym_runtime.messages import (
    BranchCall,
    Branches,
    CallTree,
    FunctionCall,
    Message,
    Reasoning,
    decode_item,
    prefix_after,
    shortened,
)
from msgspec import Raw

from gym_faces.recordings.branch_kinds import CallFacts, kinds, look
from gym_faces.recordings.canonical import digests, element, fold, fold_with_places

LONG_ITEMS = 1000
"""Reading so many items takes about 10 ms. A reply of a megabyte may have ten thousand, and so has each
conversation that continues it."""
LONG_BYTES = 2**19
"""Reading items of so many bytes, such as an image, takes about 10 ms."""
_R = TypeVar("_R")
_encode = msgspec.json.Encoder().encode


async def off_loop(items: Sequence[Raw], function: Callable[[], _R]) -> _R:
    """Call a method of `Transcript` that reads these items; in a thread if they are many or long."""
    if len(items) < LONG_ITEMS and sum(map(len, items)) < LONG_BYTES:
        return function()
    return await anyio.to_thread.run_sync(function)


class _Call(msgspec.Struct, frozen=True, eq=False):
    """One call: its number and name, the call that it continues, the items that it added, its answer, its
    tokens with the whole prompt and with a short one, and its depth with whether it offers tools."""

    number: int
    name: str
    before: _Call | None
    added: list[Raw]
    answer: list[Raw]
    tokens: Tokens | None
    short: Tokens | None
    depth: tuple[int, bool]


class Transcript:
    """The calls of one rollout; their answers may come in any order. Its methods may run in threads.

    Attributes:
        input: the conversation of the first call of the longest path.
        output: the items after it: answers, and items that were added between them.
        tokens: of each call that reported them, by the index of its last item in ``output``.
        answered: how many calls were added.
    """

    def __init__(self) -> None:
        self.input: list[Raw] = []
        self.output: list[Raw] = []
        self.tokens: dict[int, Tokens] = {}
        self._calls: dict[bytes, _Call] = {}
        self._facts: list[CallFacts] = []
        self._all: list[_Call] = []
        self._items: dict[int, int] = {}
        self._makers: dict[bytes, int] = {}
        self._originals: defaultdict[bytes, list[Raw]] = defaultdict(list)
        self._identified: dict[tuple[bytes, str], Raw] = {}  # by their ids, too
        self._named: dict[bytes, _Call] = {}
        self._rewritten = False
        self._deepest = (0, False)
        self._laying = Lock()

    def restore(self, items: Sequence[Raw]) -> list[Raw]:
        """A conversation in which the model's items have the bytes that the model produced.

        A harness encodes them again, without ids, without the signatures of thoughts and with other spaces in
        arguments, so that the engine would get another history than the one it has produced.
        """
        seen, restored = Counter[bytes](), list[Raw]()
        for raw in items:
            fields = _fields(raw)
            one = element(fields)
            own = self._originals.get(one, [])
            # What the model has said twice has two ids, and OpenAI refuses an id that comes twice, and one
            # beside the thought of another. So an id tells which it is; without one, the order does.
            named = self._identified.get((one, str(fields.get("id"))))
            restored += [named] if named else own[seen[one] : seen[one] + 1] or [raw]
            seen[one] += 1
        return restored

    def recorded(self, items: Sequence[Raw]) -> list[Raw]:
        """A (restored) conversation with the past of the call that it continues, where a program that runs
        again got other outputs of its tools than those that were recorded.
        """
        if not self._rewritten:
            return list(items)
        before, known = self._named_before(items)
        return [*_conversation(before), *items[known:]] if before is not None else list(items)

    def continued(self, items: Sequence[Raw]) -> tuple[str, int]:
        """The name of the call that a conversation continues, or empty; how many items are of that call."""
        before, known = self._named_before(items)
        return (before.name, known) if before is not None else ("", 0)

    def _named_before(self, items: Sequence[Raw]) -> tuple[_Call | None, int]:
        """As `_before`, of the calls with names, whatever the system says between turns: some programs put a
        reminder into one call and leave it out of the next.
        """
        spoken = [place for place, raw in enumerate(items) if not _from_system(raw)]
        places = fold_with_places(items[place] for place in spoken)
        keys = digests(one for one, _ in places)
        for length in range(len(places), 0, -1):
            if (before := self._named.get(keys[length])) is not None:
                count = places[length][1] if length < len(places) else len(spoken)
                return before, spoken[count - 1] + 1
        return None, 0

    def prefix(self, items: Sequence[Raw]) -> Prefix | None:
        """The tokens of the call that a (restored) conversation continues, if they are known."""
        before, known = self._before(items)
        return prefix_after(before.tokens, known) if before is not None else None

    @property
    def answered(self) -> int:
        return len(self._all)

    def add(
        self,
        items: Sequence[Raw],
        answer: Sequence[Raw],
        tokens: Tokens | None = None,
        asked: int | None = None,
        *,
        name: str = "",
        written: Sequence[Raw] | None = None,
        tools: bool = False,
    ) -> bool:
        """Add a call with its (restored) conversation and answer; True if the transcript now ends with it.

        Args:
            tokens: with the whole prompt.
            asked: `answered` when it was asked; by default all earlier calls had been answered.
            name: of this call, for `continued`.
            written: the conversation as the program has it, if that is another than the recorded one.
            tools: it offers some.
        """
        before, known = self._before(items)
        depth = (before.depth[0] + 1 if before else 1, tools)
        keys = digests(fold([*items, *answer]))
        spoken = [
            digests(fold([*(raw for raw in one if not _from_system(raw)), *answer]))[-1]
            for one in (items, written)
            if name and one is not None
        ]
        facts = CallFacts(before.number if before else -1, digests(fold(items))[-1], 0)
        added = list(items[known:])
        fields = [_fields(raw) for raw in added]
        look(facts, self._facts, fields, [_fields(raw) for raw in answer])
        facts.quotes |= {self._makers.get(element(one), -1) for one in fields} - {-1, facts.before}
        old = before.tokens if before else None
        # A call that sampled nothing is not stored, so nothing can be short on it.
        ids = old.prompt_ids + old.generation_ids if old is not None and old.generation_ids else b""
        short = shortened(tokens, ids) if tokens is not None else None
        # Not held while items are read: the event loop may wait for it.
        with self._laying:
            facts.asked = len(self._all) if asked is None else asked
            call = _Call(len(self._all), name, before, added, list(answer), tokens, short, depth)
            self._all.append(call)
            self._facts.append(facts)
            self._calls[keys[-1]] = call
            for key in spoken:
                self._named[key] = call
            self._rewritten = self._rewritten or written is not None
            for raw in answer:
                self._remember(raw, call.number)
            if call.depth < self._deepest:
                return False
            self._deepest = call.depth
            self._lay_out(call)
        return True

    def end_with(self, name: str) -> None:
        """Make a call the last one of the transcript, by its name, though another conversation may be longer;
        until one is as long as it.
        """
        with self._laying:
            call = next(one for one in reversed(self._all) if one.name == name)
            self._deepest = call.depth
            self._lay_out(call)

    def _before(self, items: Sequence[Raw]) -> tuple[_Call | None, int]:
        """The latest call that a conversation continues, and how many of the items were in that call."""
        places = fold_with_places(items)
        keys = digests(one for one, _ in places)
        for length in range(len(places), 0, -1):
            before = self._calls.get(keys[length])
            if before is not None:
                return before, places[length][1] if length < len(places) else len(items)
        return None, 0

    def branches(self) -> Branches:
        """All calls, in the order of their answers, if they are more than one line; see `BranchCall`."""
        with self._laying:
            tree, numbers = CallTree(), list[int]()
            for call, kind in zip(self._all, kinds(self._facts, set(self._items)), strict=True):
                parent = numbers[call.before.number] if call.before else -1
                numbers.append(parent)
                if (tokens := call.short) is None:
                    continue
                item = self._items.get(call.number, -1)
                named = None if item >= 0 else tokens
                numbers[-1] = tree.add(tokens, BranchCall(kind=kind, parent=parent, item=item, tokens=named))
            return tree.branches()

    def _remember(self, raw: Raw, number: int) -> None:
        match decode_item(raw):
            case FunctionCall(arguments=arguments):
                # The Messages API allows only objects as arguments, so others come back within an object.
                wrapped = {**_fields(raw), "arguments": _encode({"arguments": arguments}).decode()}
                for one in (element(wrapped), element(_fields(raw))):
                    self._originals[one].append(raw)
                    self._makers[one] = number
            case Reasoning(text=""):
                pass  # what is encrypted alone does not tell one thought from another
            case Message() | Reasoning():
                fields = _fields(raw)
                one = element(fields)
                self._originals[one].append(raw)
                if "id" in fields:
                    self._identified[one, str(fields["id"])] = raw
                self._makers[one] = number
            case _:
                pass

    def _lay_out(self, last: _Call) -> None:
        path = _path(last)
        self.input, self.output, self.tokens, self._items = path[0].added, [], {}, {}
        for place, one in enumerate(path):
            self.output += [*(one.added if place else ()), *one.answer]
            self._items[one.number] = len(self.output) - 1 if one.answer else -1
            if one.tokens is not None and one.answer:
                self.tokens[len(self.output) - 1] = one.tokens


def _from_system(raw: Raw) -> bool:
    return _fields(raw).get("role") in ("system", "developer")


def _path(last: _Call) -> list[_Call]:
    path: list[_Call] = []
    call: _Call | None = last
    while call is not None:
        path.append(call)
        call = call.before
    return path[::-1]


def _conversation(last: _Call) -> list[Raw]:
    return [item for call in _path(last) for item in (*call.added, *call.answer)]


def _fields(raw: Raw) -> dict[str, object]:
    return msgspec.json.decode(raw, type=dict[str, object])
