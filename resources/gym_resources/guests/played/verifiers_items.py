# verifiers is not there where types are checked, since it needs more than all other packages together.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Messages of verifiers' as items of the Responses API, and a reply as a response of verifiers'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import verifiers.v1 as vf
from gym_runtime import Reply
from gym_runtime.messages import Reasoning

_ANSWERED = {"max_output_tokens": "length"}


def text_of(content: Any) -> str:
    """A content's text; what is no text is left out."""
    if isinstance(content, str):
        return content
    parts: list[Any] = [part if isinstance(part, dict) else part.model_dump() for part in content or ()]
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def tool(offered: Any) -> dict[str, Any]:
    """A function tool."""
    return {
        "type": "function",
        "name": offered.name,
        "description": offered.description,
        "parameters": offered.parameters,
        "strict": bool(offered.strict),
    }


def of(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Messages as items, in their order."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            call = message.tool_call_id
            output = text_of(message.content)
            found.append({"type": "function_call_output", "call_id": call, "output": output})
            continue
        if message.role != "assistant" or message.content:
            found.append({"role": message.role, "content": _content(message.content)})
        for call in (message.tool_calls or ()) if message.role == "assistant" else ():
            asked = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            found.append({"type": "function_call", **asked})
    return found


def _content(content: Any) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": part.text}
        if part.type == "text"
        else {"type": "input_image", "image_url": part.image_url.url, "detail": "auto"}
        for part in content
    ]


def response(reply: Reply) -> Any:
    """An answer, as verifiers' own clients return it."""
    calls = [
        vf.ToolCall(id=call.call_id, name=call.name, arguments=call.arguments)
        for call in reply.function_calls
    ]
    thoughts = "\n".join(item.text for item in reply.items if isinstance(item, Reasoning))
    said = reply.response
    short = said.incomplete_details.reason if said.incomplete_details else None
    usage = said.usage
    return vf.Response(
        id=said.id or "resp",
        created=0,
        model=said.model or "policy",
        message=vf.AssistantMessage(
            content=reply.all_text or None, reasoning_content=thoughts or None, tool_calls=calls or None
        ),
        finish_reason=_ANSWERED.get(short or "", "stop") if short or not calls else "tool_calls",
        usage=usage and vf.Usage(prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens),
    )
