"""The record of one model call: the request, the answer, its tokens and its time.

It is the line of a gateway's capture and of the ``record`` adapter's file, which the ``replay`` adapter
reads. The names of the token fields, ``output_items`` and ``token_item_index`` are those of NeMo Gym's
token capture. It never has headers or keys.

A file has one entry a line, and several processes may append to it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.adapters import ModelAnswer, ModelCall, Tokens, WeightSpan
from gym_runtime.errors import Fault, UsageError
from gym_runtime.files import Appender, repair_tail
from gym_runtime.messages import IncompleteDetails, Usage, decode_response, unpack_ids, unpack_logprobs
from gym_runtime.own_files import open_own
from msgspec import Raw

SCHEMA_VERSION = 1


class CallEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    Attributes:
        rollout_id: the rollout that the call belongs to; empty if the client named none.
        model_call_id: unique.
        model: the name in the answer.
        api: the dialect of a gateway's request: ``responses``, ``chat``, ``messages`` or ``gemini``.
        responses_create_params: as in a dataset row, with the conversation so far as ``input``.
        output_items: the model's items.
        token_item_index: the index of the item that the tokens belong to, the last one; None without tokens.
        prompt_token_ids: shape (prompt tokens,).
        generation_token_ids, generation_log_probs: shape (generated tokens,).
        created_at: the time of the call, in seconds since the epoch.
        error: why there is no answer, or None.
    """

    schema_version: int = SCHEMA_VERSION
    rollout_id: str = ""
    attempt: int = 1
    model_call_id: str
    model: str = ""
    api: str = ""
    responses_create_params: Raw
    output_items: list[Raw] = []
    token_item_index: int | None = None
    prompt_token_ids: list[int] = []
    generation_token_ids: list[int] = []
    generation_log_probs: list[float] = []
    weight_versions: list[WeightSpan] = []
    response_id: str = ""
    status: str | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: Usage | None = None
    created_at: float = 0.0
    duration_s: float = 0.0
    error: Fault | None = None


encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(CallEntry).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def make_entry(
    call: ModelCall, outcome: ModelAnswer | Fault, *, model_call_id: str, created_at: float, **more: Any
) -> CallEntry:
    """The record of a call and its outcome.

    Raises:
        msgspec.DecodeError: the answer has no response.
    """
    params = Raw(encode_entry({**_fields(call.params), "input": call.input}))
    about: dict[str, Any] = {"model_call_id": model_call_id, "created_at": created_at, **more}
    if isinstance(outcome, Fault):
        return CallEntry(responses_create_params=params, error=outcome, **about)
    response = decode_response(outcome.response)
    tokens = outcome.tokens or Tokens()
    return CallEntry(
        responses_create_params=params,
        model=response.model,
        output_items=response.output,
        token_item_index=len(response.output) - 1 if outcome.tokens and response.output else None,
        prompt_token_ids=unpack_ids(tokens.prompt_ids),
        generation_token_ids=unpack_ids(tokens.generation_ids),
        generation_log_probs=unpack_logprobs(tokens.log_probs),
        weight_versions=tokens.weights,
        response_id=response.id,
        status=response.status,
        incomplete_details=response.incomplete_details,
        usage=response.usage,
        **about,
    )


class CallsFile:
    """A file whose lines are handed to the operating system by `append`, so a crash leaves whole lines.

    After a crash of the machine the last line may be partial; the first process that opens the file removes
    it.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        with ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot create {path.parent}: {error.strerror}") from None
            self._appender = Appender(path)
            stack.callback(self._appender.close)
            if not path.is_file():
                self._stack = stack.pop_all()
                return  # a pipe or a device has no last line, and no other writer to agree with
            lock = open_own(path, os.O_RDONLY)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # another process has it open, and has repaired it
            else:
                repair_tail(path)
            fcntl.flock(lock, fcntl.LOCK_SH)
            self._stack = stack.pop_all()

    def append(self, entry: CallEntry) -> bytes:
        """Write a call; return it as JSON.

        Raises:
            UsageError: the disk is full or broken.
        """
        line = encode_entry(entry)
        self._appender.append(line)
        self._appender.flush()
        return line

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        self._stack.close()
