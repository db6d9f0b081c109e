"""Records in collections, and what a tool answers that reads or changes them.

A tool is known by its name: the first word says what it does (`VERBS`; any other word adds a record), the
others which collection it works on, unless ``tool_sets.toml`` says it. So one machinery serves the tools of
every domain. All is a pure function of the calls so far.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

Record = dict[str, Any]
Arguments = Mapping[str, Any]
VERBS = {
    **dict.fromkeys(("search", "find", "query"), "search"),
    **dict.fromkeys(("get", "list", "read", "view", "check", "lookup", "track", "fetch", "show"), "read"),
    **dict.fromkeys(("update", "change", "edit", "set", "mark", "assign", "reschedule", "reroute"), "change"),
    **dict.fromkeys(("cancel", "close", "archive", "revoke", "delete", "remove", "withdraw"), "end"),
}
ENDED = {"cancel": "cancelled", "close": "closed", "archive": "archived", "revoke": "revoked"}
SHOWN = 20
"""How many known values an answer names that found nothing."""
MOST_WORDS = 50
"""How many words of a query count."""
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


class World:
    """The records of one rollout."""

    def __init__(self, environment: Arguments, domain: str) -> None:
        self.records: Record = copy.deepcopy(dict(environment))
        self._domain = domain
        self._added = 0

    def answer(self, tool: str, arguments: Arguments) -> object:
        """What a tool answers to arguments that are an object; values that are null count as missing."""
        verb, *nouns = words(tool)
        given = {name: value for name, value in arguments.items() if value is not None}
        name = self._collection(tool, verb, nouns)
        match VERBS.get(verb):
            case "search":
                return self._search(name, given)
            case "read":
                return self._read(name, given)
            case "change":
                return self._change(name, given)
            case "end":
                return self._end(name, given, verb)
            case _:
                return self._add(name, given, nouns or [verb])

    def _collection(self, tool: str, verb: str, nouns: list[str]) -> str:
        """The name of the collection that a tool works on; a new one if none fits."""
        here = [name for name, held in self.records.items() if isinstance(held, dict | list)]
        sets = tool_sets()
        for name in sets.get(self._domain, {}).get(tool, sets["any"].get(tool, [])):
            if name in here:
                return name
        if verb == "send":  # what is sent does not turn up in the inbox
            return "_".join(["sent", *nouns])
        shared = {name: len(stems(nouns) & stems(words(name))) for name in here if name != "current_user"}
        best = max(shared, key=lambda name: shared[name], default="")
        return best if shared.get(best) else "_".join(nouns or [verb])

    def _entries(self, name: str) -> Iterator[tuple[str, Any]]:
        """The records of a collection with their keys; those of a list have none."""
        held: object = self.records.get(name, [])
        if isinstance(held, list):
            yield from (("", one) for one in cast("list[Any]", held))
        else:
            for key, value in cast("dict[str, Any]", held).items():
                several = cast("list[Any]", value) if isinstance(value, list) else [value]
                yield from ((key, one) for one in several)

    def _chosen(self, name: str, given: Arguments) -> list[Any]:
        """The records that agree with all arguments that are ids or fields of records."""
        entries = list(self._entries(name))
        known = {field for _, one in entries if isinstance(one, dict) for field in cast("Record", one)}
        wanted = {field: plain(value) for field, value in given.items() if is_id(field) or field in known}

        def agrees(key: str, one: object) -> bool:
            return all(value in (plain(key), plain(value_of(one, field))) for field, value in wanted.items())

        return [one for key, one in entries if agrees(key, one)]

    def _search(self, name: str, given: Arguments) -> Any:
        sought = [word for value in given.values() for word in plain(value).split()[:MOST_WORDS]]
        texts = [(plain(f"{key} {as_json(one)}"), one) for key, one in self._entries(name)]
        found = [one for text, one in texts if all(word in text for word in sought)]
        return found or [one for text, one in texts if any(word in text for word in sought)]

    def _read(self, name: str, given: Arguments) -> Any:
        found = self._chosen(name, given)
        if not found:
            return self._nothing(name, given)
        return found[0] if len(found) == 1 and any(map(is_id, given)) else found

    def _change(self, name: str, given: Arguments) -> Any:
        found = self._chosen(name, {field: value for field, value in given.items() if is_id(field)})
        if len(found) != 1 or not isinstance(found[0], dict):
            return self._nothing(name, given)
        record = cast("Record", found[0])
        fields = list(record)
        for field, value in given.items():
            if not is_id(field):
                longer = [one for one in fields if one.endswith(f"_{field}")]
                record[field if field in record or len(longer) != 1 else longer[0]] = value
        return {"status": "updated", "record": record}

    def _end(self, name: str, given: Arguments, verb: str) -> Any:
        found = self._chosen(name, {field: value for field, value in given.items() if is_id(field)})
        if len(found) != 1 or not isinstance(found[0], dict):
            return self._nothing(name, given)
        record = cast("Record", found[0])
        record["status"] = ENDED.get(verb, "removed")
        return {"status": record["status"], "record": record}

    def _add(self, name: str, given: Arguments, nouns: list[str]) -> Any:
        self._added += 1
        number = f"{nouns[-1][:3].upper()}-{9000 + self._added}"
        record = {f"{nouns[-1]}_id": number, **given}
        held = self.records.setdefault(name, {})
        if isinstance(held, list):
            cast("list[Any]", held).append(record)
        else:
            held[number] = record
        return {"status": "done", **record}

    def _nothing(self, name: str, given: Arguments) -> dict[str, Any]:
        """An answer that says which values there are."""
        entries, known = list(self._entries(name)), dict[str, list[str]]()
        for field in given:
            values = [value_of(one, field) or (key if is_id(field) else "") for key, one in entries]
            if texts := [value for value in values if value and isinstance(value, str)]:
                known[field] = list(dict.fromkeys(texts))[:SHOWN]
        return {"error": f"no such record in {name}", "known": known}


def words(name: str) -> list[str]:
    """The words of a tool's or a collection's name.

    >>> words("get_patient_record"), words("getOpenPositions")
    (['get', 'patient', 'record'], ['get', 'open', 'positions'])
    """
    return [word.lower() for word in _WORD.findall(name)] or [name]


def stems(names: list[str]) -> set[str]:
    """Words without the ending of a plural."""
    return {f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s") for name in names}


def is_id(field: str) -> bool:
    return field == "id" or field.endswith(("_id", "Id"))


def value_of(record: object, field: str) -> Any:
    return cast("Record", record).get(field) if isinstance(record, dict) else None


def plain(value: object) -> str:
    """A value as text, in lower case and with single spaces; the parts of a list one after the other."""
    parts = cast("list[object]", value) if isinstance(value, list) else [value]
    text = " ".join(one if isinstance(one, str) else as_json(one) for one in parts)
    return " ".join(text.split()).casefold()


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@cache
def tool_sets() -> dict[str, dict[str, list[str]]]:
    """Collections by domain and tool."""
    return tomllib.loads(Path(__file__).with_name("tool_sets.toml").read_text())
