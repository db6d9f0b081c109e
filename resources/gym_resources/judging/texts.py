"""Texts of rows and replies, as NeMo Gym's judges are shown them."""

from __future__ import annotations

from collections.abc import Iterable

from gym_runtime import Reply, Task
from gym_runtime.messages import Message, decode_items


def message_lines(message: Message) -> str:
    """The text parts of a message, one below the other."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.parts if part.text is not None)


def last_message(reply: Reply) -> str:
    """The text of the assistant's last message, part by part."""
    return message_lines(reply.messages[-1]).strip() if reply.messages else ""


def all_messages(reply: Reply) -> str:
    """The texts of all of the assistant's messages, one below the other."""
    return "\n".join(message_lines(message) for message in reply.messages).strip()


def last_user_text(task: Task) -> str:
    """What the user said last in a row's input; empty if nothing."""
    items = decode_items(task.responses_create_params.input_items())
    said = [item for item in items if isinstance(item, Message) and item.role == "user"]
    return message_lines(said[-1]).strip() if said else ""


def conversation(task: Task) -> str:
    """The messages of a row's input, each behind its role in capitals, with an empty line between."""
    items = decode_items(task.responses_create_params.input_items())
    said = [item for item in items if isinstance(item, Message)]
    return "\n\n".join(f"[{item.role.upper()}]: {message_lines(item)}" for item in said)


def transcript(said: Iterable[tuple[str, str]]) -> str:
    """A conversation, each text behind its speaker. Its further lines are indented, so that none of them can
    pass for what another speaker says.

    >>> transcript([("agent", "Done.\\ncustomer: Thanks!"), ("customer", "No.")])
    'agent: Done.\\n    customer: Thanks!\\ncustomer: No.'
    """
    return "\n".join(f"{speaker}: " + "\n    ".join(text.splitlines()) for speaker, text in said)
