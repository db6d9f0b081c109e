"""How far one attempt at a rollout has come: its conversation, what it has cost, which limit ended it.

Plain state, without I/O; `Rollout` adds the calls that change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, ModelUnavailable, TaskError, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import Ids, lengthened
from gym_runtime.messages.responses import CreateParams, Response, Usage, decode_params
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.remote_model import Answered
from gym_runtime.rollout.turn import Turn

Options = TypeVar("Options", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class AttemptState:
    """The state of an attempt; `Rollout` describes the attributes."""

    def __init__(self, task: RolloutSpec, deadline_s: float) -> None:
        try:
            self.row_fields = _fields(task.row)
            self.params = decode_params(self.row_fields["responses_create_params"])
        except UNREADABLE as error:
            raise TaskError(f"the row is not a task: {error}") from error
        except KeyError as error:
            raise TaskError(f"the row is not a task: it has no {error}") from error
        self.task = task
        self.deadline_s = deadline_s
        self.turns = 0
        self.truncated: str | None = None
        self.usage = Usage()
        self.input: list[Raw] = self.params.input_items()
        self.output: list[Raw] = []
        self.tokens: dict[int, calls.Tokens] = {}
        self.notes: dict[str, str] = {}
        self.weight_versions: list[str] = []
        self.last_response: Response | None = None
        self._newest: calls.Tokens | None = None
        self._reset = False
        self._ids: Ids = ()

    @property
    def max_turns(self) -> int | None:
        """Model calls at most, or None for no limit."""
        return self.task.max_turns

    @property
    def shown_params(self) -> CreateParams:
        """``params`` as the row shows them: with what the model was asked, the first observation included."""
        if not self._reset:
            return self.params
        # Made where it is needed: a large input would be in memory twice for as long as the rollout.
        return msgspec.structs.replace(self.params, input=Raw(_encode(self.input)))

    @property
    def used_s(self) -> float:
        """The seconds that all attempts together have taken so far."""
        return self.task.timeout_s - (self.deadline_s - clock.monotonic())

    def truncate(self, reason: str) -> None:
        """Note that a limit ends this rollout; it is still judged, with the outcome ``truncated``."""
        # The first limit counts: others may follow from it.
        self.truncated = self.truncated or reason

    def options(self, kind: type[Options]) -> Options:
        """The agent's options, as the run and the environment set them.

        Args:
            kind: a frozen struct that forbids unknown fields; its defaults are the options' own.

        Raises:
            UsageError: an option is unknown, or its value does not fit.
        """
        try:
            return msgspec.convert(self.task.agent_options, kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"options of the agent '{self.task.agent}': {error}", stage="agent") from error

    def _take(self, answered: Answered, asked: Sequence[Raw] = ()) -> Turn:
        """Count a turn, and append it to the transcript, after what it was asked there."""
        turn = self._count(answered)
        tokens, output = answered.answer.tokens, answered.response.output
        self.output += [*asked, *output]
        # Tokens stand on the last item; an answer without items has no place for them.
        if tokens is not None and output:
            newest = next(reversed(self.tokens.values()), None)
            # A prompt stays short only behind the call on which it is short.
            if newest is None or newest is not self._newest or answered.before is not self._ids:
                tokens = lengthened(tokens, answered.before)
            self.tokens[len(self.output) - 1] = self._newest = tokens
            self._ids = answered.after
        return turn

    def _count(self, answered: Answered) -> Turn:
        """Count a turn that the caller appends.

        Raises:
            ModelUnavailable: the answer is not a response.
        """
        response, answer, before, _ = answered
        try:
            turn = Turn(response, answer.tokens, before)
        except UNREADABLE as error:
            raise ModelUnavailable(f"the model's answer is not a response: {error}", stage="model") from error
        self.turns += 1
        self._note_weights(answer)
        if response.usage is not None:
            self.usage += response.usage
        self.last_response = response
        return turn

    def _whole_response(self, name: str) -> Response:
        """The rollout as one response: the last one, with the whole transcript and all usage.

        Args:
            name: identifies it where the model was never asked.
        """
        last = self.last_response or Response(id=name, status="incomplete")
        if self.notes:
            # The metadata come from the engine, and may be anything.
            said: Any = msgspec.json.decode(last.metadata)
            known = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            last = msgspec.structs.replace(last, metadata=Raw(_encode({**known, **self.notes})))
        return msgspec.structs.replace(last, output=self.output, usage=self.usage)

    def _note_weights(self, answer: calls.ModelAnswer) -> None:
        spans = answer.tokens.weights if answer.tokens is not None else []
        # The spans know more: weights may have changed during the answer.
        for version in [span.version for span in spans] or [answer.weight_version]:
            if version and version not in self.weight_versions:
                self.weight_versions.append(version)
