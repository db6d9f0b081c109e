"""Result rows as documents of ATIF, the Agent Trajectory Interchange Format, and back.

    instructions, system, developer           a step of ``system``
    user                                      a step of ``user``
    a model call                              a step of ``agent``: message, reasoning, calls, tokens
    function_call_output                      a result in the observation of the step of its call
    what the row had the model say before     steps of ``agent`` that are ``is_copied_context``

What ATIF has no field for stays in ``extra.gym``: the reward, and the row itself without tokens. A document
that comes back as it was written becomes this row again, with the tokens of its steps; one whose steps or
tools were changed, or that another program wrote, is read by its steps. A foreign document is kept in the
row's ``_atif``, and is written as it was while the row is as it was read. So each way and back is exact,
with ``tokens="all"`` also in the tokens.

Documents come from other programs: unknown fields are ignored, wrong ones are errors that name the step.
Source: RFC 0001 of github.com/harbor-framework/harbor (Apache-2.0), ATIF 1.0 to 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import as_list, as_object, content_text
from gym_runtime.version import VERSION

from gym_view.atif_reading import COMPLETION, LOG_PROBS, PROMPT, BadDocument, checked, read

Tokens = Literal["none", "completion", "all"]
WRITTEN = "ATIF-v1.7"
_IMAGES = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "gif": "gif", "webp": "webp"}
_encode = msgspec.json.Encoder().encode


# -- rows to documents --------------------------------------------------------------------------------


def to_atif(row: Mapping[str, Any], tokens: Tokens = "completion") -> dict[str, Any]:
    """A row as a document.

    Args:
        tokens: ``all`` writes each call's whole prompt, so that the size grows with the square of the turns;
            ``completion`` the generated tokens with their log-probabilities; ``none`` only their numbers.
    """
    if foreign := _unchanged(row):
        return foreign if tokens == "all" else _with_fewer(foreign, tokens)
    params, response = as_object(row.get("responses_create_params")), as_object(row.get("response"))
    own, ref = as_object(row.get("_gym")), as_object(row.get("agent_ref"))
    steps = _Steps(tokens)
    if isinstance(params.get("instructions"), str) and params["instructions"]:
        steps.say("system", params["instructions"])
    given = params.get("input")
    steps.add([{"role": "user", "content": given}] if isinstance(given, str) else as_list(given), copied=True)
    steps.add(as_list(response.get("output")), copied=False)
    functions = [_tool(tool) for tool in as_list(params.get("tools"))]
    agent: dict[str, Any] = {"name": "gym-runtime", "version": VERSION}
    if isinstance(response.get("model"), str):
        agent["model_name"] = response["model"]
    if found := [one for one in functions if one]:
        agent["tool_definitions"] = found
    rollout = own.get("rollout_id")
    if not isinstance(rollout, str):
        rollout = f"{row.get('_ng_task_index', 0)}.{row.get('_ng_rollout_index', 0)}"
    about = {"reward": row.get("reward"), "environment": own.get("environment") or ref.get("name")}
    kept = {**row, "response": {**response, "output": steps.stripped}} if steps.stripped else dict(row)
    document = {
        "schema_version": WRITTEN,
        "session_id": rollout.split(".")[0],
        "trajectory_id": rollout,
        "agent": agent,
        "steps": steps.finish(),
        "final_metrics": _final(as_object(response.get("usage")), len(steps.done)),
    }
    return {**document, "extra": {"gym": {**about, "tokens": tokens, "row": kept}}}


def _unchanged(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The foreign document that a row was read from, if the row still says the same; with its verdict."""
    foreign = row.get("_atif")
    if not isinstance(foreign, dict):
        return None
    document = cast("dict[str, Any]", foreign)
    try:
        then = read(document)
    except BadDocument:
        return None
    said = ("responses_create_params", "response")
    if any(_encode(then[name]) != _encode(row.get(name)) for name in said):
        return None
    verdict = {"reward": row.get("reward"), "environment": as_object(row.get("agent_ref")).get("name")}
    if verdict == {"reward": then.get("reward"), "environment": as_object(then.get("agent_ref")).get("name")}:
        return document
    extra = as_object(document.get("extra"))
    return {**document, "extra": {**extra, "gym": {**as_object(extra.get("gym")), **verdict}}}


class _Steps:
    """The steps so far, and the items of the model call that is not finished yet."""

    def __init__(self, tokens: Tokens) -> None:
        self.done: list[dict[str, Any]] = []
        self.stripped: list[Any] = []
        """The output items without what the steps hold of them."""
        self._tokens = tokens
        self._open: list[Mapping[str, Any]] = []
        self._copied = False
        self._calls: dict[str, list[tuple[int, str]]] = {}

    def add(self, items: list[Any], *, copied: bool) -> None:
        for number, each in enumerate(items):
            self._copied = copied
            item = as_object(each)
            kind = item.get("type") or "message"
            said = {} if copied else _sampled(item)
            if not copied:
                self.stripped.append(_without(item, *said) if said else each)
            if kind == "function_call_output":
                self._flush()
                self._observe(item)
            elif kind == "message" and (role := item.get("role") or "assistant") != "assistant":
                self._flush()
                self.say("user" if role == "user" else "system", _content(item.get("content")))
            else:
                self._open.append(item)
                if said:
                    self._flush({**said, "item": number})
        self._flush()

    def say(self, source: str, message: Any) -> None:
        self.done.append({"step_id": len(self.done) + 1, "source": source, "message": message})

    def finish(self) -> list[dict[str, Any]]:
        if not self.done:
            self.say("user", "")
        return self.done

    def _flush(self, said: Mapping[str, Any] | None = None) -> None:
        if not self._open:
            return
        kinds = [(item.get("type") or "message", item) for item in self._open]
        self.say("agent", "".join(_text(item.get("content")) for kind, item in kinds if kind == "message"))
        step = self.done[-1]
        thoughts = [
            _text(item.get(part))
            for kind, item in kinds
            if kind == "reasoning"
            for part in ("content", "summary")
        ]
        if any(thoughts):
            step["reasoning_content"] = "\n".join(filter(None, thoughts))
        calls = [self._call(item) for kind, item in kinds if kind == "function_call"]
        names: dict[str, int] = {}
        for call in calls:  # equal names of calls would make their results ambiguous
            raw = call["tool_call_id"]
            names[raw] = names.get(raw, 0) + 1
            if names[raw] > 1:
                call["tool_call_id"] = f"{raw}#{names[raw]}"
            self._calls.setdefault(raw, []).append((len(self.done) - 1, call["tool_call_id"]))
        if calls:
            step["tool_calls"] = calls
        if self._copied:
            step["is_copied_context"] = True
        elif said:
            step["llm_call_count"] = 1
            step["metrics"] = self._metrics(said)
        self._open = []

    def _call(self, item: Mapping[str, Any]) -> dict[str, Any]:
        raw = item.get("arguments")
        call: dict[str, Any] = {
            "tool_call_id": str(item.get("call_id") or ""),
            "function_name": str(item.get("name") or ""),
        }
        try:
            arguments = msgspec.json.decode(raw) if isinstance(raw, str) else raw
        except UNREADABLE:
            arguments = None
        if isinstance(arguments, dict):
            return {**call, "arguments": arguments}
        return {**call, "arguments": {}, "extra": {"raw_arguments": raw}}

    def _observe(self, item: Mapping[str, Any]) -> None:
        """A tool's answer: to the first call of its name that has none, else to the last one."""
        result: dict[str, Any] = {"content": _content(item.get("output"))}
        waiting = self._calls.get(str(item.get("call_id") or ""), [])
        if waiting:
            place, name = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            result = {"source_call_id": name, **result}
        else:
            place = len(self.finish()) - 1
        self.done[place].setdefault("observation", {"results": []})["results"].append(result)

    def _metrics(self, said: Mapping[str, Any]) -> dict[str, Any]:
        completion, prompt, logs = said[COMPLETION], said.get(PROMPT), said.get(LOG_PROBS)
        found: dict[str, Any] = {"completion_tokens": len(completion), "extra": {"item": said["item"]}}
        if prompt is not None:
            found["prompt_tokens"] = len(prompt)
        if self._tokens == "all" and prompt is not None:
            found["prompt_token_ids"] = prompt
        if self._tokens != "none":
            found["completion_token_ids"] = completion
            if logs is not None:
                found["logprobs"] = logs
        return found


def _sampled(item: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of an item that ends a model call; empty for others, and for what is no list of numbers."""
    completion, prompt, logs = (item.get(name) for name in (COMPLETION, PROMPT, LOG_PROBS))
    if not _numbers(completion, int) or not (prompt is None or _numbers(prompt, int)):
        return {}
    if not (logs is None or _numbers(logs, float)):
        return {}
    names = (COMPLETION, PROMPT, LOG_PROBS)
    return {name: item[name] for name in names if item.get(name) is not None}


def _numbers(value: Any, kind: type) -> bool:
    try:
        msgspec.convert(value, list[kind])  # in C: a row may hold a million of them
    except msgspec.ValidationError:
        return False
    return True


def _tool(tool: Any) -> dict[str, Any]:
    """A function tool in OpenAI's form for completions; empty for others."""
    fields = as_object(tool)
    if fields.get("type") != "function":
        return {}
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: fields[name] for name in names if name in fields}}


def _text(content: Any) -> str:
    return content_text(content) if content is None or isinstance(content, str | list) else ""


def _content(content: Any) -> str | list[dict[str, Any]]:
    """A text, or parts where there is an image."""
    parts = [as_object(part) for part in as_list(content)]
    if not any(part.get("type") == "input_image" for part in parts):
        return _text(content)
    found: list[dict[str, Any]] = []
    for part in parts:
        address = part.get("image_url")
        if part.get("type") == "input_image" and isinstance(address, str) and (kind := _image(address)):
            found.append({"type": "image", "source": {"media_type": f"image/{kind}", "path": address}})
        else:
            found.append({"type": "text", "text": _text([part])})
    return found


def _image(address: str) -> str:
    """``png`` and such, of a ``data:`` URL or by the end of a path; empty if ATIF has no such kind."""
    if address.startswith("data:image/"):
        name = address[11:20].partition(";")[0]
    else:
        name = address.partition("?")[0].rpartition(".")[2]
    return _IMAGES.get(name.lower(), "")


def _final(usage: Mapping[str, Any], steps: int) -> dict[str, Any]:
    counts = {
        "total_prompt_tokens": usage.get("input_tokens"),
        "total_completion_tokens": usage.get("output_tokens"),
        "total_cached_tokens": as_object(usage.get("input_tokens_details")).get("cached_tokens"),
    }
    return {**{name: n for name, n in counts.items() if type(n) is int}, "total_steps": steps}


def _with_fewer(document: dict[str, Any], tokens: Tokens) -> dict[str, Any]:
    """A document with fewer tokens in its steps."""
    hidden = {"prompt_token_ids"} | ({"completion_token_ids", "logprobs"} if tokens == "none" else set[str]())

    def fewer(step: Mapping[str, Any]) -> dict[str, Any]:
        metrics = step.get("metrics")
        if not isinstance(metrics, dict):
            return dict(step)
        return {**step, "metrics": _without(cast("dict[str, Any]", metrics), *hidden)}

    return {**document, "steps": [fewer(as_object(step)) for step in as_list(document.get("steps"))]}


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


# -- documents to rows --------------------------------------------------------------------------------


def from_atif(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as a row: the one that it was written from, or one that keeps it in ``_atif``.

    Raises:
        BadDocument: it is not of the format; with the number of the step.
    """
    gym = as_object(as_object(document.get("extra")).get("gym"))
    row, tokens = gym.get("row"), gym.get("tokens")
    if isinstance(row, dict) and tokens in ("none", "completion", "all"):
        checked(document)
        back = _with_tokens(cast("dict[str, Any]", row), document)
        if _conversation(to_atif(back, tokens)) == _conversation(document):
            return back
    return {**read(document), "_atif": dict(document)}


def _conversation(document: Mapping[str, Any]) -> bytes:
    """What decides whether a document still says what its row says."""
    steps = [_without(as_object(step), "metrics") for step in as_list(document.get("steps"))]
    return _encode([steps, as_object(document.get("agent")).get("tool_definitions")])


def _with_tokens(row: dict[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the tokens of a document's steps, each in its item."""
    response = as_object(row.get("response"))
    output = list(as_list(response.get("output")))
    for step in as_list(document.get("steps")):
        metrics = as_object(as_object(step).get("metrics"))
        place = as_object(metrics.get("extra")).get("item")
        if type(place) is int and 0 <= place < len(output) and isinstance(output[place], dict):
            names = zip((PROMPT, COMPLETION, LOG_PROBS), _METRICS, strict=True)
            found = {ours: metrics[theirs] for ours, theirs in names if theirs in metrics}
            output[place] = {**output[place], **found}
    return {**row, "response": {**response, "output": output}} if output else row


_METRICS = ("prompt_token_ids", "completion_token_ids", "logprobs")
