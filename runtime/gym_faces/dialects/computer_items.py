"""OpenAI's ``computer_call`` items and calls of the function ``computer``, in both directions, as JSON.

    ======================================  ========================================================
    ``computer_call``, n actions            n calls, ``ID``, ``ID/2`` …; the first keeps it as ``native``
    ``computer_call_output``                their outputs: the screenshot is the last one's
    ======================================  ========================================================

An engine gets its own call back byte by byte. A call's safety checks count as acknowledged: what it does
happens in a sandbox. A harness gets an item for each call of the model; a call that is no action stays a
call of the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from msgspec import Raw
from msgspec.structs import replace

from gym_faces.dialects import computer
from gym_faces.dialects.dialect import MAX_ITEMS, item
from gym_faces.dialects.pieces import decode_fields, encode, is_null

Tool = Literal["computer", "computer_use_preview"]
"""OpenAI's tool, and the one before it, which has one action in each call."""
TOOLS = ("computer", "computer_use_preview")
MAX_ACTIONS = 1000
"""Of one call; engines make batches of a few."""
FIRST = computer.Size(1280, 800)
"""What is said of the screen before the first screenshot."""
# A pixel: what a call shows whose session has shown no screenshot yet.
_BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lE"
    "QVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)


class Entry(msgspec.Struct):
    """Any item of a conversation."""

    type: str = "message"
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    native: Raw = Raw()
    output: Raw = Raw()


_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode


class _Native(msgspec.Struct):
    type: str = ""
    call_id: str = ""
    action: dict[str, Any] | None = None
    actions: list[dict[str, Any]] | None = None
    pending_safety_checks: list[Any] | None = None

    @property
    def all(self) -> list[dict[str, Any]]:
        found = self.actions if self.actions is not None else [self.action] if self.action else []
        return found or [{"type": "screenshot"}]


_decode_native = msgspec.json.Decoder(_Native).decode


# -- an engine is asked ---------------------------------------------------------------------------------


def natively(call: ModelCall, tool: Tool) -> ModelCall:
    """A call with OpenAI's tool in place of the function, if it offers that, and the conversation with it."""
    params = decode_fields(call.params)
    tools = [] if is_null(params.get("tools", Raw())) else _decode_items(params["tools"])
    places = [place for place, one in enumerate(tools) if _decode_entry(one).name == computer.NAME]
    if not places:
        return call
    conversation = _Conversation(tool)
    for raw in call.input:
        conversation.add(raw)
    offered: dict[str, Any] = {"type": tool}
    if tool == "computer_use_preview":
        size = conversation.size or FIRST
        offered |= {"display_width": size.width, "display_height": size.height, "environment": "browser"}
        params["truncation"] = Raw(b'"auto"')  # it is refused without
    tools[places[0]] = Raw(encode(offered))
    params["tools"] = Raw(encode(tools))
    choice = params.get("tool_choice", Raw())
    if bytes(choice).startswith(b"{") and _decode_entry(choice).name == computer.NAME:
        params["tool_choice"] = Raw(encode({"type": tool}))
    return replace(call, params=Raw(encode(params)), input=conversation.items)


class _Conversation:
    """The items for an engine.

    Attributes:
        items: so far.
        size: of the latest screenshot.
    """

    def __init__(self, tool: Tool) -> None:
        self.items: list[Raw] = []
        self.size: computer.Size | None = None
        self._tool = tool
        self._shown = _BLANK
        self._checks: dict[str, list[Any] | None] = {}
        self._last: dict[str, str] = {}  # which output a call waits for
        self._texts: dict[str, list[str]] = {}

    def add(self, raw: Raw) -> None:
        entry = _decode_entry(raw)
        if entry.type == "function_call" and entry.name == computer.NAME:
            self._call(entry, raw)
        elif entry.type == "function_call_output" and entry.call_id.partition("/")[0] in self._last:
            self._output(entry)
        else:
            self.items.append(raw)

    def _call(self, entry: Entry, raw: Raw) -> None:
        identity, _, number = entry.call_id.partition("/")
        if number and identity in self._last:
            return
        if entry.native and (native := _decode_native(entry.native)).type == "computer_call":
            count = len(native.all)
            self._begin(identity, count, native.pending_safety_checks)
            self.items.append(entry.native)
            return
        try:
            actions = computer.to_openai(computer.decoded(entry.arguments) or {})
        except ValueError:
            actions = [{"type": "screenshot"}]
        said = {"action": actions[0]} if self._tool == "computer_use_preview" else {"actions": actions}
        self._begin(entry.call_id, 1, None)
        self.items.append(_native_call(entry.call_id, said))

    def _begin(self, identity: str, count: int, checks: list[Any] | None) -> None:
        self._last[identity] = _part(identity, count)
        self._checks[identity], self._texts[identity] = checks, []

    def _output(self, entry: Entry) -> None:
        identity = entry.call_id.partition("/")[0]
        output = computer.output_of(entry.output)
        if url := computer.image_of(output):
            self._shown, self.size = url, computer.size_of(url) or self.size
        else:
            self._texts[identity].append(computer.text_of(output))
        if entry.call_id != self._last[identity]:
            return
        answer: dict[str, Any] = {
            "type": "computer_call_output",
            "call_id": identity,
            "output": {"type": "computer_screenshot", "image_url": self._shown},
        }
        if checks := self._checks[identity]:
            answer["acknowledged_safety_checks"] = checks
        self.items.append(Raw(encode(answer)))
        if texts := self._texts[identity]:  # such as that a key is unknown; the output has no place for it
            self.items.append(Raw(encode({"role": "user", "content": "\n".join(texts)})))


def functions(raw: Raw) -> Raw:
    """An engine's response with calls of the function in place of ``computer_call`` items.

    Raises:
        msgspec.ValidationError: an item is no ``computer_call``, or they have too many actions.
    """
    if b'"computer_call"' not in bytes(raw):
        return raw
    fields = decode_fields(raw)
    output: list[Raw] = []
    for one in _decode_items(fields["output"]):
        output += _calls(one) if _decode_entry(one).type == "computer_call" else [one]
        _check_count(output)
    return Raw(encode({**fields, "output": output}))


def _calls(raw: Raw) -> list[Raw]:
    """
    Raises:
        msgspec.ValidationError: it is no ``computer_call``, or has more than `MAX_ACTIONS` actions.
    """
    native = _decode_native(raw)
    if len(native.all) > MAX_ACTIONS:
        raise msgspec.ValidationError(f"a computer_call has more than {MAX_ACTIONS} actions")
    calls: list[Raw] = []
    for number, theirs in enumerate(native.all, 1):
        try:
            arguments = computer.from_openai(theirs) or theirs
        except ValueError:
            arguments = theirs  # the tool says what is wrong
        call: dict[str, Any] = {
            "type": "function_call",
            "id": f"fc_{_part(native.call_id, number)}",
            "call_id": _part(native.call_id, number),
            "name": computer.NAME,
            "arguments": encode(arguments).decode(),
            "status": "completed",
        }
        calls.append(Raw(encode({**call, "native": raw} if number == 1 else call)))
    return calls


def _check_count(items: Sequence[Raw]) -> None:
    # A few bytes are an item each, or several: what is small on the wire would be large here.
    if len(items) > MAX_ITEMS:
        raise msgspec.ValidationError(f"the actions of computer_call items are more than {MAX_ITEMS} items")


def _part(identity: str, number: int) -> str:
    return identity if number == 1 else f"{identity}/{number}"


# -- a harness asks -------------------------------------------------------------------------------------


def offered(tools: Sequence[Raw]) -> tuple[list[Raw], str]:
    """A client's tools with the function in place of OpenAI's tool, and which that is; empty without one."""
    kinds = [_decode_entry(one).type for one in tools]
    kind = next((kind for kind in kinds if kind in TOOLS), "")
    named = Raw(encode(computer.function()))
    return [named if found in TOOLS else one for one, found in zip(tools, kinds, strict=True)], kind


def chosen(choice: Raw) -> Raw:
    """A client's ``tool_choice`` of OpenAI's tool as that of the function."""
    named = {"type": "function", "name": computer.NAME}
    return Raw(encode(named)) if _decode_entry(choice).type in TOOLS else choice


def read_items(items: Sequence[Raw]) -> list[Raw]:
    """A client's items with calls of the function in place of OpenAI's.

    Raises:
        TaskError: one of them is malformed, or a screenshot is a file's name.
    """
    counts: dict[str, int] = {}
    found: list[Raw] = []
    for place, raw in enumerate(items):
        if b'"computer_call' not in bytes(raw):
            found.append(raw)
            continue
        try:
            entry = _decode_entry(raw)
            match entry.type:
                case "computer_call":
                    calls = _calls(raw)
                    counts[entry.call_id] = len(calls)
                    found += [_without_native(one) for one in calls]
                case "computer_call_output":
                    found += _outputs(entry, counts.pop(entry.call_id, 1))
                case _:
                    found.append(raw)
            _check_count(found)
        except UNREADABLE as error:
            raise TaskError(f"input[{place}]: {error}") from error
    return found


def _outputs(entry: Entry, count: int) -> list[Raw]:
    said = decode_fields(entry.output)
    url = said.get("image_url", Raw())
    if is_null(url):
        raise TaskError("a computer_call_output has its screenshot as 'image_url': no files are stored here")
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    outputs: list[str | list[dict[str, Any]]] = ["Done."] * (count - 1)
    return [
        item(type="function_call_output", call_id=_part(entry.call_id, number), output=output)
        for number, output in enumerate([*outputs, [image]], 1)
    ]


def _without_native(raw: Raw) -> Raw:
    fields = decode_fields(raw)
    fields.pop("native", None)
    return Raw(encode(fields))


def write_items(items: Sequence[Raw], tool: str) -> list[Raw]:
    """The model's items with OpenAI's calls in place of the function's, for a client with that tool."""
    return [_shown(one, tool) for one in items]


def _shown(raw: Raw, tool: str) -> Raw:
    entry = _decode_entry(raw)
    if entry.type != "function_call" or entry.name != computer.NAME:
        return raw
    try:
        actions = computer.to_openai(computer.decoded(entry.arguments) or {})
    except ValueError:
        return raw
    return _native_call(
        entry.call_id,
        {"actions": actions} if tool == "computer" else {"action": actions[0]},
    )


def _native_call(call_id: str, said: Mapping[str, Any]) -> Raw:
    fixed = {"type": "computer_call", "id": f"cu_{call_id}", "call_id": call_id, "status": "completed"}
    return Raw(encode({**fixed, "pending_safety_checks": [], **said}))
