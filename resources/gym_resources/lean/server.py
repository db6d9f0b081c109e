"""Lean on a server, over HTTP: the last part of its address says which protocol it speaks.

- ``/verify`` and ``/api/check``: the Kimina Lean Server (github.com/project-numina/kimina-lean-server, MIT),
  whose answers hold the messages of the REPL;
- ``/execute``: the sandbox of NeMo Skills (github.com/NVIDIA-NeMo/Skills, Apache-2.0), whose answers hold
  what ``lean FILE`` wrote.

A server that cannot be reached, has no room or fails is a failure of the rollout and never a reward.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
from gym_runtime import ResourceError
from gym_runtime.errors import UNREADABLE

from gym_resources.lean.lean_messages import Checked, Message, judged, read_text
from gym_resources.lean.program import Program

GRACE_S = 5.0
OUTPUT_CHARS = 200_000
ANSWER_BYTES = 16 << 20
KEY = "GYM_LEAN_KEY"


class _Response(msgspec.Struct):
    messages: list[Message] = []
    message: str = ""


class _Kimina(msgspec.Struct):
    error: str | None = None
    response: _Response | None = None


class _Results(msgspec.Struct):
    results: list[_Kimina]


class _Executed(msgspec.Struct):
    process_status: str
    stdout: str = ""
    stderr: str = ""


class Unavailable(ResourceError):
    """The server could not check; it may later."""

    retryable = True


async def check(address: str, program: Program, timeout_s: float, key: str = "") -> Checked:
    """What a server says of a program, whose axioms are asked for.

    Raises:
        ResourceError: the server cannot be reached, does not answer, or answers something else.
    """
    text = f"{program.text}\n#print axioms {program.name}\n"
    protocol = address.rstrip("/").rpartition("/")[2]
    limit_s = max(1, round(timeout_s))
    try:
        if protocol == "execute":
            request: dict[str, Any] = {
                "generated_code": text,
                "language": "lean4",
                "timeout": limit_s,
                "max_output_characters": OUTPUT_CHARS,
            }
            return _executed(
                msgspec.json.decode(await _post(address, request, timeout_s, key), type=_Executed)
            )
        name = uuid4().hex
        if protocol == "verify":
            request = {"codes": [{"custom_id": name, "proof": text}], "timeout": limit_s}
            answer = await _post(address, request, timeout_s, key)
            result = msgspec.json.decode(answer, type=_Results).results[0]
        else:
            request = {"snippet": {"id": name, "code": text}, "timeout": limit_s}
            result = msgspec.json.decode(await _post(address, request, timeout_s, key), type=_Kimina)
    except (IndexError, *UNREADABLE) as error:
        raise Unavailable(
            f"the Lean server at {address} answered something else: {error}", stage="verify"
        ) from error
    return _of_kimina(address, result)


def _of_kimina(address: str, result: _Kimina) -> Checked:
    if result.error:
        # A header is the row's and the server's matter; that it takes long, no proof has caused.
        if "timed out" in result.error and "header" not in result.error:
            return Checked(status="timeout", output=result.error)
        raise Unavailable(f"the Lean server at {address} failed: {result.error[:500]}", stage="verify")
    if result.response is None:
        raise Unavailable(
            f"the Lean server at {address} gave neither an error nor a response", stage="verify"
        )
    return of_repl(result.response.messages, result.response.message)


def of_repl(messages: list[Message], problem: str) -> Checked:
    """The result of a command of the REPL; ``problem`` is what it says of a command that it cannot run."""
    output = "\n".join(f"{m.pos.line}:{m.pos.column}: {m.severity}: {m.data}" for m in messages) + problem
    if problem:
        return Checked(status="failed", messages=tuple(messages), output=output)
    return judged(messages, output)


def _executed(answer: _Executed) -> Checked:
    # Lean writes errors to the standard output; what is on the other stream comes from lake or the system.
    output = answer.stdout
    if answer.process_status in ("timeout", "completed", "failed"):
        messages = tuple(read_text(output))
        if answer.process_status == "timeout":
            return Checked(status="timeout", messages=messages, output=output)
        found = judged(messages, output)
        if answer.process_status == "failed" and not found.errors:
            return Checked(status="failed", messages=messages, output=output + answer.stderr)
        return found
    raise Unavailable(f"the Lean server could not run the proof: {answer.stderr[:500]}", stage="verify")


async def _post(address: str, request: dict[str, Any], timeout_s: float, key: str) -> bytes:
    import aiohttp

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limit = aiohttp.ClientTimeout(total=timeout_s + GRACE_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, headers=headers) as session,
            session.post(address, json=request, allow_redirects=False) as answer,
        ):
            body = (
                await answer.content.read(ANSWER_BYTES + 1) if answer.status != 200 else await _whole(answer)
            )
            if answer.status != 200:
                said = body[:300].decode(errors="replace")
                raise Unavailable(
                    f"the Lean server at {address} answered {answer.status}: {said}", stage="verify"
                )
            return body
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise Unavailable(
            f"the Lean server at {address} cannot be reached: {reason}", stage="verify"
        ) from error


async def _whole(answer: Any) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > ANSWER_BYTES:
            raise Unavailable(f"the Lean server answered more than {ANSWER_BYTES} bytes", stage="verify")
    return bytes(body)
