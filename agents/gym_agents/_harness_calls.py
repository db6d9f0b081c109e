"""The calls of a program that is the agent, as turns of its rollout.

They are journaled, answered from the journal after a loss, and laid out as the transcript.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import anyio
import anyio.to_thread
import msgspec
from gym_faces.dialects import responses_api
from gym_faces.recordings import Found, PastCall, PastCalls, Transcript, off_loop, tools_digest
from gym_runtime import GymError, ResourceError, TaskError
from gym_runtime.adapters import ModelAnswer, Rollout, Turn
from gym_runtime.errors import UNREADABLE, JournalMismatch, ModelRefused, leaf
from gym_runtime.messages import (
    NULL,
    CreateParams,
    FunctionCall,
    FunctionCallOutput,
    decode_items,
    lay_over,
)
from msgspec import Raw

if TYPE_CHECKING:
    from gym_faces.gateway import Called, Question

SETTLE_S = 5.0
"""How long a call that has no recorded answer waits for those that a program makes at the same time."""
LONG_BYTES = 1 << 16
"""Comparing so many bytes with a recorded call takes a few milliseconds."""
_SAMPLING = ("temperature", "top_p", "max_output_tokens")
_SIDE_CHANNEL = ("extra_body", "chat_template_kwargs")

_encode = msgspec.json.Encoder().encode
_decode_params = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@lru_cache(64)
def _digest_of(tools: bytes) -> str:
    # A program offers the same tools with each call, and they may be 64 KB.
    return tools_digest(Raw(tools))


class HarnessOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an agent that is a program.

    Attributes:
        resume: whether a program may do its work again, to continue after a loss. If not, its calls are not
            journaled, and a lost rollout starts again from the beginning.
        on_divergence: what becomes of a rollout whose program, run again, does not ask what it had asked. It
            starts again without the journal, as an attempt that failed; or it fails.
    """

    resume: bool = True
    on_divergence: Literal["restart", "fail"] = "restart"


class _Known(NamedTuple):
    """A call: its items, its name, what is stored with it, or the place of the recorded one."""

    items: list[Raw]
    name: str
    note: Raw | None = None
    past: int | None = None


class _Answered(NamedTuple):
    """A call that was answered: its name, the turn, its instructions."""

    name: str
    turn: Turn
    instructions: str | None

    @property
    def text(self) -> str:
        return "".join(message.text for message in self.turn.messages).strip()


class HarnessCalls:
    """The harness's calls, as turns of the rollout.

    Attributes:
        scope: ends when the rollout is over before the harness is.
        failure: what ended it, if that was an error.
        incomplete: why the last answer stops short, or None.
        overflowed: the last conversation was longer than the model's context. It is not in the transcript,
            because the program may ask again with a shorter one.
        tool_turn: held while a tool of the environment is called, because a session's calls do not overlap.
        refused: why the last request since `begin_part` was not one that a model can answer, or None.
    """

    def __init__(self, rollout: Rollout, options: HarnessOptions) -> None:
        self.scope = anyio.CancelScope()
        self.failure: GymError | None = None
        self.incomplete: str | None = None
        self.overflowed = self._shortens = False
        self.refused: TaskError | None = None
        self._part: list[_Answered] | None = None
        self._between = False
        self._rollout = rollout
        self._transcript = Transcript()
        rollout.branches = self._transcript.branches
        self._asked = 0
        self._options = options
        resume = options.resume and rollout.task.durability == "turn"
        self._past = PastCalls(rollout.past_calls()) if resume else None
        self._name = secrets.token_hex(4)
        self._found = anyio.Event()
        self.tool_turn = anyio.Lock()
        self._shown: _Answered | None = None
        self._sampling = _sampling(rollout.params)
        metadata = rollout.params.metadata or {}
        self._metadata = {name: text for name, text in metadata.items() if name not in _SIDE_CHANNEL}

    async def ask(self, question: Question) -> ModelAnswer:
        """One turn."""
        rollout = self._rollout
        if self.scope.cancel_called:
            raise ModelRefused("the rollout is over")
        if rollout.max_turns is not None and self._asked >= rollout.max_turns:
            rollout.truncate("max_turns")
            self.scope.cancel()
            raise ModelRefused(f"the rollout is over after its {rollout.max_turns} turns")
        self._asked += 1
        asked, transcript, before = question.call.input, self._transcript, self._transcript.answered
        written = await off_loop(asked, lambda: transcript.restore(asked))
        try:
            params = self._params(question.call.params)
            known = await self._recognised(f"{self._name}.{self._asked}", written, params)
            items = known.items
            prefix = await off_loop(items, lambda: transcript.prefix(items))
            turn = await rollout.respond_to(
                items, Raw(_encode(params)), prefix, note=known.note, past=known.past
            )
        except TaskError as error:
            self.refused = error
            raise  # the harness sent a request that no model can answer; its next one may be valid
        except GymError as error:
            self.fail(error)
            raise
        self.refused = None
        answer, response = turn.response.output, Raw(_encode(turn.response))
        self.overflowed = responses_api.is_overflow(response)
        if self.overflowed:
            self._shortens = True
            return ModelAnswer(response=response)  # for which the gateway tells the program its API's error
        other = None if items == written else written
        tools = bool(msgspec.json.decode(params.get("tools", NULL)))
        in_transcript = await off_loop(
            [*items, *answer],
            lambda: transcript.add(
                items, answer, turn.tokens, before, name=known.name, written=other, tools=tools
            ),
        )
        instructions = msgspec.json.decode(params.get("instructions", b"null"), type=str | None)
        answered = _Answered(known.name, turn, instructions)
        if self._part is not None:  # else they would be kept for nothing
            self._part.append(answered)
        if self._shortens and tools and not in_transcript:
            transcript.end_with(known.name)  # what the program goes on with, not the longer one before
            in_transcript = True
        if in_transcript and not self._between:
            self._show(answered)
        return ModelAnswer(response=response)

    async def _recognised(self, name: str, written: list[Raw], params: dict[str, Raw]) -> _Known:
        """A call, as it is recorded or will be. Instructions in ``params`` become those of the past, too."""
        past, transcript = self._past, self._transcript
        if past is None:
            return _Known(written, name)
        items = await off_loop(written, lambda: transcript.recorded(written))
        after, known = await off_loop(items, lambda: transcript.continued(items))
        added = items[known:]
        tools = _digest_of(bytes(params.get("tools", NULL)))
        instructions = params.get("instructions", NULL)
        found = await self._earlier(past, after, added, tools, instructions)
        told = past.put_back(instructions)
        if found is not None:
            told = past.instructions_of(found.call.name)
        if told is not instructions:
            params["instructions"] = told
        if found is not None:
            self._rollout.drifted_calls += found.drifted
            return _Known([*items[:known], *found.call.added], found.call.name, past=found.place)
        call = PastCall(
            name=name,
            after=after,
            added=added,
            tools=tools,
            instructions="" if told == past.instructions_of(after) else bytes(told).decode(),
        )
        past.begin(call)
        return _Known(items, name, Raw(_encode(call)))

    async def _earlier(
        self, past: PastCalls, after: str, added: Sequence[Raw], tools: str, instructions: Raw
    ) -> Found | None:
        """The recorded call that a call repeats.

        Raises:
            JournalMismatch: as `PastCalls.find`, and no call that is made at the same time explains it.
        """

        async def find() -> Found | None:
            if past.over or sum(map(len, map(bytes, added))) < LONG_BYTES:
                return past.find(after, added, tools, instructions)
            return await anyio.to_thread.run_sync(past.find, after, added, tools, instructions)

        with anyio.move_on_after(SETTLE_S):
            while True:
                found_one = self._found
                with suppress(JournalMismatch):
                    found = await find()
                    self._found.set()
                    self._found = anyio.Event()
                    return found
                await found_one.wait()
        return await find()

    @contextmanager
    def working(self) -> Generator[None]:
        """The program's work, until it or the rollout is over.

        Raises:
            ResourceError: the program failed, and not because the model's context was too short for it.
        """
        try:
            with self.scope:
                yield
        except (GymError, BaseExceptionGroup) as failure:
            error = leaf(failure)
            if not self.overflowed or not isinstance(error, ResourceError) or error.retryable:
                raise

    def begin_part(self) -> None:
        """The program is about to work on another prompt."""
        self.refused, self._between = None, False
        self._part = []

    def end_part(self, said: str) -> Turn | None:
        """The program is done with a prompt. The transcript ends with the answer that it has shown its user,
        not with a question beside it, such as for a title or for what the user might say next.

        Args:
            said: what it has shown since `begin_part`. If it holds none of the answers, the transcript ends
                with the last answer of the longest conversation.

        Returns:
            That turn; None if the model has answered nothing since then.
        """
        if not self._part:
            return None
        ends = [
            (said.rfind(one.text) + len(one.text), len(one.text), place)
            for place, one in enumerate(self._part)
            if one.text and one.text in said
        ]
        if ends:
            chosen = self._part[max(ends)[-1]]
        else:
            chosen = next((one for one in self._part if one is self._shown), self._part[-1])
        self._transcript.end_with(chosen.name)
        self._show(chosen)
        # What the program asks from now on is beside the conversation, until it is prompted again.
        self._between = True
        return chosen.turn

    def end(self, program: str) -> None:
        """The program is done, or the rollout is.

        Raises:
            GymError: that is no end at which a rollout can be judged.
        """
        try:
            if self.failure is None and self._past is not None and self._rollout.truncated is None:
                self._past.require_caught_up()
        except JournalMismatch as error:
            self.fail(error)
        if self._between and self._shown is not None:
            self._transcript.end_with(self._shown.name)  # so that the branches are those of this transcript
        if self.failure is not None:
            raise self.failure
        if not self._rollout.turns:
            raise ResourceError(
                f"{program} asked the model nothing; does it know OPENAI_BASE_URL, ANTHROPIC_BASE_URL "
                "or GOOGLE_GEMINI_BASE_URL?",
                stage="agent",
            )
        if self.overflowed and self._shown is None:
            raise ModelRefused("the first prompt does not fit the model's context", stage="model")
        if self.overflowed:
            self._rollout.truncate("max_output_tokens")
        elif self.incomplete is not None:
            self._rollout.truncate(self.incomplete)

    def fail(self, error: GymError) -> None:
        """The rollout is over by this error, whatever the program does."""
        if isinstance(error, JournalMismatch):
            error.retryable = self._options.on_divergence == "restart"
        self.failure = self.failure or error
        self.scope.cancel()

    async def call_tool(self, name: str, arguments: str) -> Called:
        """One call of a tool of the environment."""
        from gym_faces.gateway import Called, content_of

        rollout = self._rollout
        try:
            async with self.tool_turn:
                call = FunctionCall(call_id="", name=name, arguments=arguments)
                (failure,) = await rollout.call_tools([call])
                # The transcript has the call and its output when the harness tells its model.
                (said,) = decode_items([rollout.output.pop()])
        except GymError as error:
            self.fail(error)
            raise
        return Called(content_of(cast("FunctionCallOutput", said)), failed=failure is not None)

    def _show(self, last: _Answered) -> None:
        """Copy the transcript, which ends with this call, into the rollout, which appends to its own copy."""
        rollout, transcript = self._rollout, self._transcript
        self._shown, self.incomplete = last, last.turn.incomplete
        rollout.input, rollout.output = [*transcript.input], [*transcript.output]
        rollout.tokens = dict(transcript.tokens)
        rollout.params = msgspec.structs.replace(
            rollout.params, input=Raw(_encode(rollout.input)), instructions=last.instructions
        )

    def _params(self, asked: Raw) -> dict[str, Raw]:
        """The harness's request with the row's sampling settings.

        Raises:
            TaskError: the request has something else where settings should be.
        """
        fields = _decode_params(asked)
        try:
            if self._metadata:
                said = _decode_object(fields["metadata"]) if "metadata" in fields else {}
                fields["metadata"] = Raw(_encode({**said, **self._metadata}))
            return _decode_params(_encode(lay_over(fields, self._sampling)))
        except UNREADABLE as error:
            raise TaskError(f"the request's metadata or reasoning: {error}") from error


def _sampling(params: CreateParams) -> dict[str, Any]:
    """A row's sampling settings, which replace those of a harness's request."""
    row = msgspec.structs.asdict(params)
    found: dict[str, Any] = {name: row[name] for name in _SAMPLING if row[name] is not None}
    if isinstance(reasoning := msgspec.json.decode(params.reasoning), dict):
        found["reasoning"] = reasoning
    metadata = params.metadata or {}
    extra = _decode_object(metadata.get("extra_body", "{}"))
    kwargs = _decode_object(metadata.get("chat_template_kwargs", "{}"))
    if kwargs:
        extra["chat_template_kwargs"] = {**extra.get("chat_template_kwargs", {}), **kwargs}
    return {**found, "extra_body": extra}
