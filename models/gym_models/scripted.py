"""Answers without an engine, for tests, demos and benchmarks. The same conversation gets the same answer.

===========================  ====================================================================
``tool-then-message``        a call of the first tool, with arguments made from its schema; once its
                             output is the last item, or where there are no tools, a message
``message``                  a message that says ``options.text``
``echo``                     a message that repeats the last user's text
``judge``                    a message that says ``options.text``, by default ``[[A=B]]``
``judge-contradictory``      the same, and to every second question of a rollout ``[[A!=B]]``
``judge-failing``            as an overloaded engine for the first ``options.failures`` questions of a
                             rollout, then as ``judge``
``judge-refusing``           no answer for good, as an engine that filters content
``judge-empty``              a response without any output
``judge-cut-short``          the beginning of an answer, incomplete for ``max_output_tokens``
``PATH.jsonl``               turn *n* of a rollout answers with line *n*, from the start again after
                             the last; a line is a list of output items, of texts, or of calls:
                             ``[{"call": "pick", "shelf": "A"}]``
===========================  ====================================================================

A judge's questions are counted per rollout. ``options.latency_s`` delays every answer. Usage is counted at
four characters a token, and the tokens that ``return_tokens`` asks for are consecutive numbers, so that each
turn's prompt starts with the tokens of the turn before. Weights can be paused, named and "updated" as a real
engine's; an answer's version is the one at its end.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import msgspec
from gym_runtime import UsageError
from gym_runtime.adapters import (
    CallContext,
    Control,
    ControlAnswer,
    ModelAnswer,
    ModelCall,
    ModelSettings,
    Tokens,
    WeightSpan,
)
from gym_runtime.environment import example_call, examples, suggest
from gym_runtime.errors import NOT_JSON, UNREADABLE, ModelRefused, ModelUnavailable, TaskError, described
from gym_runtime.messages import (
    FunctionCallOutput,
    IncompleteDetails,
    Item,
    Message,
    Response,
    Usage,
    decode_item,
    pack_ids,
    pack_logprobs,
)
from msgspec import Raw

JUDGES = (
    "judge",
    "judge-contradictory",
    "judge-failing",
    "judge-refusing",
    "judge-empty",
    "judge-cut-short",
)
SCRIPTS = ("tool-then-message", "message", "echo", *JUDGES)
REMEMBERED = 65536
"""Rollouts whose questions are counted, for judges."""
_encode = msgspec.json.Encoder().encode


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only this adapter knows."""

    text: str = ""
    latency_s: float = 0.0
    failures: int = 2


class _Params(msgspec.Struct, frozen=True):
    tools: list[Raw] = []


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_line = msgspec.json.Decoder(list[str | dict[str, Any]]).decode


class Adapter:
    """Pretends to be a model. See the module for its scripts."""

    def __init__(self, settings: ModelSettings) -> None:
        try:
            self._options = msgspec.convert(settings.options, Options)
        except msgspec.ValidationError as error:
            raise UsageError(f"options of the scripted adapter: {error}") from error
        if settings.urls:
            raise UsageError("a script is served nowhere: leave --model-url out, or name another provider")
        self._name = settings.name
        self._lines: list[list[Raw]] = []
        self._version = ""
        self._paused = False
        self._resumed = anyio.Event()
        self._questions: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        if self._name.endswith(".jsonl"):
            self._lines = read_script(Path(self._name))
        elif self._name not in SCRIPTS:
            raise UsageError(
                f"there is no script '{self._name}'{suggest(self._name, list(SCRIPTS))}: "
                f"{', '.join(SCRIPTS)}, or a path that ends in .jsonl"
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; cancellable while it waits for ``latency_s``."""
        if self._options.latency_s > 0:
            await anyio.sleep(self._options.latency_s)
        while self._paused:
            await self._resumed.wait()
        identity = f"{context.rollout}_{len(call.input)}"
        cut_short = self._name == "judge-cut-short"
        output = self._judged(context, identity) if self._name in JUDGES else self._output(call, identity)
        read = (len(memoryview(call.params)) + sum(len(memoryview(item)) for item in call.input)) // 4
        written = 1 + sum(len(memoryview(item)) for item in output) // 4
        response = Response(
            id=f"resp_{identity}",
            model=self._name,
            output=output,
            status="incomplete" if cut_short else "completed",
            incomplete_details=IncompleteDetails(reason="max_output_tokens") if cut_short else None,
            usage=Usage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )
        return ModelAnswer(
            response=Raw(_encode(response)),
            tokens=_tokens(read, written, self._version) if call.return_tokens else None,
            weight_version=self._version or None,
        )

    async def control(self, command: Control) -> ControlAnswer:
        """Pause, resume, or take a new version."""
        match command.op:
            case "pause":
                self._paused, self._resumed = True, anyio.Event()
            case "resume":
                self._paused = False
                self._resumed.set()
            case "set_version" | "update":
                self._version = command.version or self._version
            case "state":
                pass
        return ControlAnswer(paused=self._paused, version=self._version)

    def _output(self, call: ModelCall, identity: str) -> list[Raw]:
        if self._lines:
            return self._scripted_turn(call)
        if self._name == "echo":
            return [message(_last_user_text(call), identity)]
        tool = _first_tool(bytes(call.params)) if self._name == "tool-then-message" else None
        last = decode_item(call.input[-1]) if tool and call.input else Item()
        if tool and not isinstance(last, FunctionCallOutput):
            return [_function_call(tool, identity)]
        return [message(self._options.text or "done", identity)]

    def _judged(self, context: CallContext, identity: str) -> list[Raw]:
        """A judge's answer to the next question of a rollout."""
        number = self._questions.pop(context.rollout, 0)
        self._questions[context.rollout] = number + 1
        if len(self._questions) > REMEMBERED:
            del self._questions[next(iter(self._questions))]
        text = self._options.text or "[[A=B]]"
        match self._name:
            case "judge-contradictory" if number % 2:
                text = "[[A!=B]]"
            case "judge-failing" if number < self._options.failures:
                raise ModelUnavailable("the script lets the judge fail", stage="model", retry_after_s=0.01)
            case "judge-refusing":
                raise ModelRefused("the script lets the judge refuse", stage="model")
            case "judge-empty":
                return []
            case "judge-cut-short":
                text = "Both answers"
            case _:
                pass
        return [message(text, identity)]

    def _scripted_turn(self, call: ModelCall) -> list[Raw]:
        """The line after those whose items the conversation holds already."""
        left = sum(_is_models(decode_item(raw)) for raw in call.input)
        turn = 0
        while 0 < len(self._lines[turn % len(self._lines)]) <= left:
            left -= len(self._lines[turn % len(self._lines)])
            turn += 1
        return self._lines[turn % len(self._lines)]


def read_script(path: Path) -> list[list[Raw]]:
    """The lines of a script, each as output items.

    Raises:
        UsageError: there is no such file, or a line of it is not a list of items or texts.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"the script {path} cannot be read: {error.strerror}") from error
    script: list[list[Raw]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items = _decode_line(line)
        except UNREADABLE as error:
            raise UsageError(f"{path}:{number}: not a list of output items or texts: {error}") from error
        script.append(
            [
                message(item, f"{number}_{place}")
                if isinstance(item, str)
                else Raw(_encode(examples.written_out(item, f"call_{number}_{place}")))
                for place, item in enumerate(items)
            ]
        )
    if not script:
        raise UsageError(f"the script {path} is empty")
    return script


def message(text: str, identity: str) -> Raw:
    """An assistant's message as an output item."""
    return Raw(
        _encode(
            {
                "id": f"msg_{identity}",
                "content": [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        )
    )


def _function_call(tool: bytes, identity: str) -> Raw:
    try:
        name, arguments = example_call(tool)
    except (*UNREADABLE, *NOT_JSON, AttributeError, LookupError) as error:
        what = f"the row's tool {tool[:200].decode(errors='replace')} is no function with a JSON schema"
        raise TaskError(f"{what}: {described(error)}", stage="model") from error
    call_id = f"call_{identity}"
    return Raw(
        _encode(
            {
                "arguments": arguments,
                "call_id": call_id,
                "name": name,
                "type": "function_call",
                "id": call_id,
                "status": "completed",
            }
        )
    )


@lru_cache(maxsize=256)
def _first_tool(params: bytes) -> bytes | None:
    tools = _decode_params(params).tools
    return bytes(tools[0]) if tools else None


def _last_user_text(call: ModelCall) -> str:
    for raw in reversed(call.input):
        item = decode_item(raw)
        if isinstance(item, Message) and item.role == "user":
            return item.text
    return ""


def _is_models(item: Item) -> bool:
    if isinstance(item, Message):
        return item.role == "assistant"
    return not isinstance(item, FunctionCallOutput)


def _tokens(read: int, written: int, version: str) -> Tokens:
    return Tokens(
        prompt_ids=pack_ids(range(read)),
        generation_ids=pack_ids(range(read, read + written)),
        log_probs=pack_logprobs([-0.25] * written),
        weights=[WeightSpan(version=version, start=0, end=written)] if version else [],
    )
