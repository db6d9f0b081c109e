# inspect_ai is not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUntypedClassDecorator=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportUntypedFunctionDecorator=false, reportUnusedClass=false
"""Plays one sample of a task of inspect_ai, in a process of its own; lists a task's samples.

The model that its solver asks is a provider of ours, which asks the worker over standard input and output.

Source: inspect_ai 0.3.285; `load_tasks` is the loader that ``inspect eval`` has for names of tasks, and
`ensure_entry_points` imports the packages that bring tasks.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
import msgspec
from gym_runtime import Reply, UsageError
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import Reasoning
from inspect_ai import eval_async
from inspect_ai._eval.loader import load_tasks
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai._util.registry import registry_info, registry_params
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolCall

from gym_resources.guests.played.kept_messages import End, Question, Said, encode

PROVIDER, POLICY = "gym", "policy"
TEXT_CHARS = 4000
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""inspect's letters; any other text that is no number is 0 there, with a warning, and a failure here."""
_LATER = (
    "inspect_ai._control.current_server",
    "inspect_ai.agent._acp.transport_live",
    "inspect_ai.hooks._startup",
    "inspect_ai.model._openai_responses",
    "inspect_ai.model._providers.anthropic",
    "rich.markdown",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""Modules that inspect imports while it plays, with thousands of others."""
_LENGTH_BYTES = 8
_SET_DUMPABLE = 4  # of prctl


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has named.

    Attributes:
        task: ``FILE.py@TASK`` or ``PACKAGE/TASK``.
        score: ``NAME`` or ``NAME.KEY``; empty for the only one.
        roles: the guest's roles that are asked apart from the policy.
        log: inspect's log becomes the field ``inspect_log``.
    """

    task: str
    arguments: dict[str, Any] = {}
    score: str = ""
    roles: list[str] = []
    log: bool = False


class _Sample(msgspec.Struct):
    id: int | str
    digest: str


class _Row(msgspec.Struct):
    inspect: _Sample


class _First(msgspec.Struct):
    start: Start
    row: _Row


# -- a task and its samples -----------------------------------------------------------------------------


def load(start: Start) -> Any:
    """The task.

    Raises:
        UsageError: there is no task of this name, it has no such argument, or it needs what it does not get
            here.
    """
    try:
        tasks = load_tasks([start.task], start.arguments)
    except Exception as error:  # whatever the user's module raises
        why = f"{type(error).__name__}: {error}"
        how = "its name is FILE.py@TASK or PACKAGE/TASK"
        raise UsageError(f"inspect:{start.task} cannot be loaded ({how}): {why}") from error
    if len(tasks) != 1:
        raise UsageError(f"inspect:{start.task} names {len(tasks)} tasks; name one: FILE.py@TASK")
    task = tasks[0]
    # inspect drops them with a line in its log.
    if unknown := sorted(start.arguments.keys() - registry_params(task)):
        has = ", ".join(registry_info(task).metadata.get("params", ())) or "none"
        raise UsageError(f"inspect:{start.task} has no argument '{unknown[0]}'; it has {has}")
    for number, sample in enumerate(task.dataset, 1):  # as inspect does before it runs them
        sample.id = number if sample.id is None else sample.id
    ids = [str(sample.id) for sample in task.dataset]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise UsageError(f"inspect:{start.task} has several samples with the id '{twice}'; ids must differ")
    needed = [task.sandbox, *(sample.sandbox for sample in task.dataset)]
    kinds = sorted({one.type for one in needed if one is not None and one.type != "local"})
    if kinds:
        raise UsageError(f"inspect:{start.task} needs the sandbox '{kinds[0]}'; only 'local' is played here")
    return task


def rows(start: Start, size: int | None) -> Iterator[dict[str, Any]]:
    """The samples as rows, in the task's order."""
    for number, sample in enumerate(load(start).dataset):
        if size is not None and number >= size:
            return
        about = {"id": sample.id, "digest": _digest(sample)}
        yield {"responses_create_params": {"input": []}, "inspect": about}


def _digest(sample: Any) -> str:
    fields = sample.model_dump_json(include={"input", "target", "choices", "metadata"})
    # Message ids are new each time.
    plain = msgspec.json.decode(fields)
    if isinstance(plain["input"], list):
        plain["input"] = [{**one, "id": None} for one in plain["input"]]
    return hashlib.sha256(encode(plain)).hexdigest()[:16]


# -- the process ----------------------------------------------------------------------------------------


class _Worker:
    """The worker, over the streams that were standard input and output."""

    def __init__(self) -> None:
        self._requests: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._answers: BinaryIO = os.fdopen(os.dup(1), "wb")
        # Moved away: a task may print.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self._turn: anyio.Lock | None = None
        self.over = False

    def read(self) -> bytes:
        head = self._requests.read(_LENGTH_BYTES)
        if len(head) < _LENGTH_BYTES:
            os._exit(0)  # the worker has gone
        return self._requests.read(int.from_bytes(head, "big"))

    def write(self, said: Said) -> None:
        frame = encode(said)
        self._answers.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
        self._answers.flush()

    async def ask(self, question: Question) -> Reply | None:
        """The answer; None if the rollout is over."""
        self._turn = self._turn or anyio.Lock()  # made in the event loop that uses it
        async with self._turn:
            if self.over and not question.role:
                return None
            await anyio.to_thread.run_sync(self.write, question)
            answer = await anyio.to_thread.run_sync(self.read)
            if answer == b"null":
                self.over = True
                return None
            return Reply(answer)


def import_all() -> None:
    """Import what most samples need, for the processes that are forked from this one."""
    for name in _LATER:
        with suppress(ImportError):
            import_module(name)
    ensure_entry_points()


def main() -> None:
    """Play one sample."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as Python does in a fork with its own generator
    # What a tool runs here, as the same user, must not reach this process's memory and streams.
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    worker = _Worker()
    first = msgspec.json.decode(worker.read(), type=_First)
    try:
        end = anyio.run(_play, worker, first)
    except Exception as error:  # noqa: BLE001 - whatever the task raises is the worker's to hear
        end = End(problem=f"{type(error).__name__}: {error}"[:TEXT_CHARS])
    worker.write(end)
    worker.read()


async def _play(worker: _Worker, first: _First) -> End:
    @modelapi(name=PROVIDER)
    class Gym(ModelAPI):
        async def generate(self, input: list[Any], tools: list[Any], tool_choice: Any, config: Any) -> Any:  # noqa: A002
            role = "" if self.model_name == POLICY else self.model_name
            question = Question(role=role, items=_items(input), tools=[_tool(one) for one in tools])
            reply = await worker.ask(question)
            if reply is None:
                # A stop without calls: solvers that loop until the model ends it end here.
                return ModelOutput.from_content(self.model_name, "", stop_reason="model_length")
            return _output(reply, self.model_name)

        def max_connections(self) -> int:
            return 1

    start, wanted = first.start, first.row.inspect
    task = load(start)
    ids = [sample.id for sample in task.dataset]
    place = ids.index(wanted.id) if wanted.id in ids else len(ids)
    task.dataset = task.dataset[place : place + 1]  # `sample_id` of `eval_async` is a pattern, not an id
    if [_digest(sample) for sample in task.dataset] != [wanted.digest]:
        return End(problem=f"sample {wanted.id} is not as it was when the row was made")
    logs = await eval_async(
        task,
        model=get_model(f"{PROVIDER}/{POLICY}"),
        model_roles={role: get_model(f"{PROVIDER}/{role}") for role in start.roles},
        epochs=1,
        log_dir=tempfile.mkdtemp(),
        log_level="error",
        max_samples=1,
        retry_on_error=0,
        fail_on_error=False,
        log_realtime=False,
        score_display=False,
    )
    log = logs[0]
    if not log.samples:
        return End(
            problem=f"the sample was not run: {log.error.message if log.error else log.status}"[:TEXT_CHARS]
        )
    end = _end(log.samples[0], start.score)
    if start.log and not end.problem:
        end = msgspec.structs.replace(end, fields={**end.fields, "inspect_log": _log(log)})
    return end


def _log(log: Any) -> dict[str, Any]:
    """The log without its events, which repeat the messages."""
    fields = msgspec.json.decode(log.model_dump_json(exclude_none=True))
    for sample in fields["samples"]:
        sample.pop("events", None)
    # ``inspect score`` would look for providers that only this process has.
    fields["eval"] |= {"model": "none/none", "model_roles": {}}
    if file := fields["eval"].get("task_file"):  # relative to a folder that only this process has
        fields["eval"]["task_file"] = os.path.abspath(file)
    return fields


def _end(sample: Any, chosen: str) -> End:
    if sample.error is not None:
        return End(problem=f"the task failed: {sample.error.message}"[:TEXT_CHARS])
    limit = sample.limit.type if sample.limit else ""
    scores: dict[str, Any] = sample.scores or {}
    values: dict[str, Any] = {}
    scored: dict[str, Any] = {}
    for name, score in scores.items():
        single = not isinstance(score.value, dict)
        parts = {name: score.value} if single else {f"{name}.{key}": one for key, one in score.value.items()}
        values |= parts
        scored |= dict.fromkeys(parts, score)
    if not values:
        return End(problem="the task's scorer gave no score")
    name = chosen or next(iter(values))
    if name not in values or (not chosen and len(values) > 1):
        known = ", ".join(sorted(values))
        return End(problem=f"the task has the scores {known}: say which is the reward, ?score=NAME")
    score = scored[name]
    reward = graded(values[name])
    if reward is None:
        why = f"unscored: {score.reason or score.explanation or values[name]!r}"
        return End(problem=why[:TEXT_CHARS])
    components = {key: number for key, value in values.items() if (number := graded(value)) is not None}
    about = {"answer": score.answer, "explanation": score.explanation}
    fields = {f"inspect_{key}": text[:TEXT_CHARS] for key, text in about.items() if text}
    return End(
        reward=reward,
        components=components,
        fields={**fields, **({"inspect_limit": limit} if limit else {})},
        limit=limit,
    )


def graded(value: Any) -> float | None:
    """A score's value as a number, by inspect's rules; None if the value is no number, or NaN."""
    if isinstance(value, str):
        value = _GRADES.get(value, _GRADES.get(value.lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


# -- messages -------------------------------------------------------------------------------------------


def _items(messages: Sequence[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            said = message.error.message if message.error else _content(message.content)
            found.append(
                {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": said}
            )
            continue
        calls = (message.tool_calls or []) if message.role == "assistant" else []
        if message.role != "assistant" or message.text or not calls:
            content = message.text if message.role == "assistant" else _content(message.content)
            found.append({"type": "message", "role": message.role, "content": content})
        for call in calls:
            arguments = encode(call.arguments).decode()
            found.append(
                {"type": "function_call", "call_id": call.id, "name": call.function, "arguments": arguments}
            )
    return found


def _content(content: Any) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [_part(one) for one in content if one.type in ("text", "image")]


def _part(one: Any) -> dict[str, Any]:
    if one.type == "text":
        return {"type": "input_text", "text": one.text}
    if not one.image.startswith(("data:", "http://", "https://")):
        raise ValueError(f"the image {one.image} is a file; give it as a data: URL")
    return {"type": "input_image", "image_url": one.image, "detail": one.detail}


def _tool(tool: Any) -> dict[str, Any]:
    parameters = tool.parameters.model_dump(exclude_none=True)
    about = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", **about, "strict": False}


def _output(reply: Reply, model: str) -> Any:
    """A reply as inspect's model output."""
    thoughts = [ContentReasoning(reasoning=item.text) for item in reply.items if isinstance(item, Reasoning)]
    calls = [_call(one.call_id, one.name, one.arguments) for one in reply.function_calls]
    text = reply.all_text
    message = ChatMessageAssistant(
        content=[*thoughts, ContentText(text=text)] if thoughts else text,
        tool_calls=calls or None,
        model=model,
        source="generate",
    )
    short = reply.response.incomplete_details
    stop = "max_tokens" if short else "tool_calls" if calls else "stop"
    usage = reply.response.usage
    return ModelOutput(
        model=model,
        choices=[ChatCompletionChoice(message=message, stop_reason=stop)],
        usage=ModelUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
        )
        if usage
        else None,
    )


def _call(call_id: str, name: str, arguments: str) -> Any:
    try:
        decoded = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except UNREADABLE as error:
        return ToolCall(id=call_id, function=name, arguments={}, parse_error=f"no JSON object: {error}")
    return ToolCall(id=call_id, function=name, arguments=decoded)
