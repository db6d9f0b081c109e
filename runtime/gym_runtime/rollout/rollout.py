"""One attempt at one rollout, from its first call to its end: open, respond, call tools, step, verify, close.

Every call to a model or an environment goes through it. It has one deadline and one budget of retries for
all of them, and does not depend on how an agent decides.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, Model, Role
from gym_runtime.errors import UNREADABLE, ResourceError, TaskError, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.branches import BranchCall, Branches, CallTree, Kind
from gym_runtime.messages.call_tokens import Ids, lengthened, shortened
from gym_runtime.messages.calls import Comparison
from gym_runtime.messages.choices import choices
from gym_runtime.messages.responses import (
    NULL,
    CreateParams,
    FunctionCall,
    Response,
    Usage,
    decode_params,
    tool_output,
)
from gym_runtime.messages.rollout_settings import lay_over
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES, RolloutSpec
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.record import Facts, RolloutTimes
from gym_runtime.rollout.remote_model import Answered, Envelope, RemoteModel
from gym_runtime.rollout.remote_session import RemoteSession, ToolCalls, ToolFailure, tool_failure
from gym_runtime.rollout.role_calls import RoleCalls, RoleLimits
from gym_runtime.rollout.seats import Seat, checked_names
from gym_runtime.rollout.shared_turns import SharedTurns, same
from gym_runtime.rollout.turn import Turn
from gym_runtime.rpc.actors import Actors
from gym_runtime.rpc.retry_budget import RetryBudget

Options = TypeVar("Options", bound=msgspec.Struct)
"""From here on a row is sent to its environment without an input that it does not read."""

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_verdict = msgspec.json.Decoder(JudgedVerdict).decode
_decode_pending = msgspec.json.Decoder(JudgedPending).decode
_decode_comparison = msgspec.json.Decoder(Comparison).decode
# One for the process: a role's limit covers the questions of all rollouts.
_limits: RoleLimits = {}


class Rollout:
    """One attempt at one rollout, as its agent sees it.

    Attributes:
        task: the rollout's spec, including its limits.
        params: the row's ``responses_create_params``.
        turns: model calls so far.
        input: the items of the row's input, then the items that `reset` added.
        output: the transcript: all items that were added after the row's input.
        tokens: the tokens of each model call that reported them, by the index of its last item in ``output``.
            A prompt may leave out the tokens of the previous call; `Turn.tokens` has the whole prompt.
        truncated: which limit ended the rollout, or None.
        seat: the main one of several; empty if there is one.
        branches: what the row says of the calls; an agent that keeps its own conversations replaces it.
        notes: texts by name, for the response's ``metadata``.
        drifted_calls: calls that got a recorded answer although their tools' outputs or instructions differ.
        weight_versions: the versions of the weights that gave the answers, if the engine reports them; not
            of turns that a fork shares.
        times: how long each turn and the verification took.
        roles: the agent's questions to models in roles.
    """

    def __init__(
        self,
        task: RolloutSpec,
        attempt: int,
        actors: Actors,
        journal: Journal | None = None,
        budget: RetryBudget | None = None,
        left_s: float | None = None,
    ) -> None:
        try:
            self._row_fields = _fields(task.row)
            self.params = decode_params(self._row_fields["responses_create_params"])
        except UNREADABLE as error:
            raise TaskError(f"the row is not a task: {error}") from error
        except KeyError as error:
            raise TaskError(f"the row is not a task: it has no {error}") from error
        envelope = Envelope(task, attempt, task.timeout_s if left_s is None else left_s)
        self.task = task
        self.attempt = attempt
        self._envelope = envelope
        self.turns = 0
        self.truncated: str | None = None
        self.usage = Usage()
        self.input: list[Raw] = self.params.input_items()
        self.output: list[Raw] = []
        self.tokens: dict[int, calls.Tokens] = {}
        self.notes: dict[str, str] = {}
        self.drifted_calls = 0
        self.weight_versions: list[str] = []
        self.last_response: Response | None = None
        self.seat, self._seats = "", tuple[str, ...]()
        self._tree = CallTree()
        self._line = -1  # the last call of `respond`
        self.branches: Callable[[], Branches] = self._tree.branches
        self._newest: calls.Tokens | None = None
        self._reset = False
        self._ids: Ids = ()
        self._call_params = _without_input(self.params)
        self._journal = journal = journal or Journal(None, "")
        self._shared = SharedTurns(task.fork)
        journal.shared_turns = self._shared.answers
        self._shared_versions: list[str] = []
        self._saved: dict[int, str] = {}
        self._budget = budget = budget or RetryBudget()
        self.times = RolloutTimes(actors.meter, task.environment, budget.role_use)
        # A task that was published twice is delivered twice as attempt 1, so the attempt's number alone is
        # not unique.
        name = f"{task.rollout_id}.{attempt}.{random.getrandbits(40):010x}"
        # An earlier attempt's session is used again: it answers repeated calls from memory. Not where no
        # worker has answered from it yet: that attempt may go on and close it, and a call that opens would
        # then make another session of its name, which a later attempt takes for the first.
        if not journal.session or (task.replayable and not journal.worker):
            journal.session = name
        self._session = RemoteSession(task, actors, budget, journal, envelope, self._row_to_judge())
        self._tools = ToolCalls(self._session, parallel=task.parallel_tools)
        self._model = RemoteModel(task, name, actors, budget, journal, envelope)
        self.roles = RoleCalls(
            actors,
            _limits,
            journal.bus,
            environment=task.environment,
            request=envelope(NULL, f"{journal.session}.0", with_roles=True),
            budget=budget,
            worker=name,
        )

    def _row_to_judge(self) -> Raw:
        """The row as the environment gets it."""
        if self.task.reads_input or memoryview(self.task.row).nbytes < LONG_ROW_BYTES:
            return self.task.row
        return Raw(_encode({**self._row_fields, "responses_create_params": self._call_params}))

    @property
    def tool_calls(self) -> int:
        """Tool calls begun so far."""
        return self._tools.begun

    @property
    def trace_context(self) -> Mapping[str, str]:
        """The W3C trace context as headers, for the agent's requests and processes; empty if not traced."""
        return tracing.headers() or {}

    @property
    def is_resuming(self) -> bool:
        """Whether the next answer of the model comes from an earlier attempt's journal, or is a fork's."""
        return self._journal.is_replaying

    @property
    def max_turns(self) -> int | None:
        """The most model calls, or None for no limit."""
        return self.task.max_turns

    @property
    def deadline_s(self) -> float:
        """The rollout's deadline, by `gym_runtime.clock.monotonic`."""
        return self._envelope.deadline_s

    def postpone(self, by_s: float) -> None:
        """Move the deadline: so many seconds did not count."""
        self._envelope.deadline_s += by_s
        asked = self.roles.request
        self.roles.request = msgspec.structs.replace(asked, deadline_s=asked.deadline_s + by_s)

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
            kind: a frozen struct that forbids unknown fields; its defaults are the options' defaults.

        Raises:
            UsageError: an option is unknown, or its value does not fit.
        """
        try:
            return msgspec.convert(self.task.agent_options, kind)
        except msgspec.ValidationError as error:
            said = f"{error}{choices(error, kind)}"
            raise UsageError(f"options of the agent '{self.task.agent}': {said}", stage="agent") from error

    # -- the life ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session now if its environment may refuse the row, or with what a forked one has saved;
        otherwise the first call opens it.
        """
        fork = self.task.fork
        if fork is not None and fork.saved and await self._session.begin_with(fork.saved, fork.saved_in):
            self._shared.restored = fork.saved_turn
        elif self.task.opens_first:
            await self._session.ask(calls.OpenSession())

    async def reset(self) -> None:
        """Open a step-by-step environment; its first observation is appended to the row's input, and the
        tools that it offers to the row's tools.
        """
        if self._shared.restored:
            return  # the row has the first observation, and the tools
        answer = calls.decode_step_answer(await self._session.ask(calls.OpenSession()))
        if answer.items:
            if not self._shared.began(self.input, answer.items):
                self.input += answer.items
            self._reset = True
        self._offer(answer.tools)

    async def respond(self, shown: Sequence[Raw] | None = None, *, kind: Kind = "main") -> Turn:
        """Have the model answer the conversation so far; the answer is appended to the transcript.

        Args:
            shown: the conversation that the model is shown instead of the whole one, for agents that leave
                out or replace a part of it. Its tokens then form a separate sequence.
            kind: what the call is to the rollout, for training: ``compaction`` for a shorter history.

        Raises:
            GymError: the model refused, or stayed unavailable up to the deadline.
        """
        items = [*self.input, *self.output] if shown is None else shown
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.hop("model"):
            answered = await self._model.ask(self._call_params, items)
        turn, self._line = self._take(answered, kind, self._line if answered.before else -1)
        return turn

    async def respond_apart(self, *conversations: Sequence[Raw]) -> list[Turn]:
        """Have the model answer several separate conversations, all at the same time.

        Each counts as a turn, is journaled, and is a separate token sequence: of the kind ``parallel`` if all
        conversations are the same, else ``subagent``. The last item of each conversation, the question, and
        its answer are appended to the transcript, in the order given.

        Raises:
            GymError: as `respond`; the other calls are given up.
        """
        if not conversations:
            return []
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.hop("model"):
            answers = await self._model.ask_each(self._call_params, conversations)
        first, *others = conversations
        kind = "parallel" if others and all(other == first for other in others) else "subagent"
        return [
            self._take(answered, kind, -1, conversation[-1:])[0]
            for conversation, answered in zip(conversations, answers, strict=True)
        ]

    def take_seats(self, *names: str) -> list[Seat]:
        """The trained seats of this rollout, of which the first is the main one; see `Seat`.

        Raises:
            UsageError: they are no different names.
        """
        self._seats = checked_names(names)
        self.seat = self._seats[0]
        return [self._seat(name, f"seat{number}") for number, name in enumerate(self._seats)]

    def _seat(self, name: str, conversation: str) -> Seat:
        role, params = name.partition("/")[0], self._call_params
        pool = self.task.roles.get(role, self.task.model)
        if sampling := self.task.role_sampling.get(role):
            params = Raw(_encode(lay_over(_fields(params), sampling)))
        return Seat(name, pool, self._model.another(pool, conversation), params, self._respond_in)

    async def _respond_in(self, seat: Seat, ask: Callable[[], Awaitable[Answered]]) -> Turn:
        with tracing.span("turn", {"gym.turn": self.turns, "gym.seat": seat.name}), self.times.hop("model"):
            answered = await ask()
        parent, versions = seat.last if answered.before else -1, list(self.weight_versions)
        if seat.name == self.seat:
            turn, seat.last = self._take(answered, "main", parent, seat=seat.name)
        else:
            turn, tokens = self._count(answered), answered.answer.tokens
            if tokens is not None and parent < 0:
                tokens = lengthened(tokens, answered.before)
            call = BranchCall(parent=parent, tokens=tokens, seat=seat.name)
            # A call that sampled nothing is not stored, so the next one cannot be short on it.
            seat.last = self._tree.add(tokens, call) if tokens and tokens.generation_ids else -1
        if seat.pool != self.task.model:
            self.weight_versions = versions  # they are compared with those of the rollout's own pool
        return turn

    def past_calls(self) -> list[Raw]:
        """The notes that earlier attempts stored with their calls of `respond_to`, as JSON, in order.

        An agent whose calls come in any order asks for them once, before its first call. From then on calls
        of tools, too, are recognised by what they are, not by their order.
        """
        self._session.any_order = True
        return self._journal.notes()

    async def respond_to(
        self,
        items: Sequence[Raw],
        params: Raw,
        prefix: calls.Prefix | None = None,
        *,
        note: Raw | None = None,
        past: int | None = None,
    ) -> Turn:
        """Have the model answer a conversation that the caller keeps, such as a harness.

        It counts as a turn; the caller decides what is added to the transcript (``input``, ``output``,
        ``tokens``). Calls may run concurrently. With a note they are journaled.

        Args:
            params: ``responses_create_params`` without input, as JSON.
            prefix: the tokens of the turns that the conversation continues, if they are known.
            note: what the caller recognises this call by in a later attempt, as JSON.
            past: the place in `past_calls` of the call that this one repeats: the answer is the recorded one,
                and the model is not asked. Each is used once.

        Raises:
            GymError: as `respond`.
        """
        self._shared.require_taken(self.turns, self.task.agent)
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.hop("model"):
            answered = await self._model.ask_apart(params, items, prefix, note=note, past=past)
        return self._count(answered)

    async def call_tools(
        self, function_calls: Sequence[FunctionCall], *, limit_s: float | None = None
    ) -> list[ToolFailure | None]:
        """Execute tool calls; their outputs are appended in the calls' order.

        They run one after the other, or concurrently if the environment allows it. If a call fails (its
        arguments are not JSON, the tool is unknown, the tool raised), its output tells the model the error,
        and the result has ``arguments``, ``unknown_tool``, ``exception`` or ``timeout`` at its place.

        Args:
            limit_s: how many seconds one call may take; a longer call is given up, and its output says so.

        Raises:
            SessionLost: the worker that holds the session is gone.
        """
        outputs = self._shared.recorded(self.turns, function_calls)
        if outputs is None:
            with self.times.hop("tool"):
                outputs = await self._tools.execute(function_calls, limit_s)
            self._note_saved()
        else:
            self._tools.begun += len(function_calls)
        outputs = self._shared.outputs(self.turns, function_calls, outputs)
        for call, output in zip(function_calls, outputs, strict=True):
            self.output.append(tool_output(call.call_id, output))
        return [tool_failure(output) for output in outputs]

    async def step(self, turn: Turn) -> calls.StepAnswer:
        """Hand the model's answer to a step-by-step environment; its observation is appended, and new tools
        are offered.
        """
        self._tools.begun += len(turn.function_calls)  # the environment executes them
        call = calls.StepCall(response=Raw(_encode(turn.response)))
        answer = self._shared.observation(self.turns)
        if answer is None:
            with self.times.hop("tool"):
                answer = calls.decode_step_answer(await self._session.ask(call))
            self._note_saved()
        self._shared.observed(self.turns, answer.items)
        self.output += answer.items
        self._offer(answer.tools)
        return answer

    def model(self, role: str | Role) -> Model:
        """The model in a role, such as ``critic``, for the agent to ask beside the policy.

        Its answers are journaled and are in the row, but not in the transcript. The role belongs to the
        environment, or the run names it for this agent.

        Args:
            role: its name, or a `Role` that says how it samples, and how many questions all rollouts of this
                worker together may have in flight.

        Raises:
            UsageError: no model is given for this role.
        """
        role = Role(name=role) if isinstance(role, str) else role
        if role.name not in self.task.roles:
            raise UsageError(
                f"agent '{self.task.agent}' asks a model in the role '{role.name}', and none is given: "
                f"--role {role.name}=PROVIDER/NAME, or roles=('{role.name}',) in the environment",
                stage=role.name,
            )
        return Model(role, self._ask, self.task.role_sampling.get(role.name))

    async def _ask(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        with self.times.role(role.name):
            return await self.roles.ask(role, params, items)

    async def verify(self) -> JudgedVerdict | JudgedPending:
        """Have the environment judge the transcript. The runtime calls it after the agent returned."""
        environment, skipped = self.task.environment, self.task.skip_verification
        self._shared.require_taken(self.turns, self.task.agent)
        if skipped is not None:
            return JudgedVerdict(skipped, fields={"verification_skipped": True})
        with tracing.span(f"verify {environment}", {"gym.environment": environment}):
            with self.times.hop("verify"):
                answer = await self._session.ask(calls.Verify(response=Raw(_encode(self.response()))))
            if self.task.group is not None:
                pending = _decode_pending(answer)
                # A verdict has no features; this field alone tells it from a pending one.
                if bytes(pending.features):
                    return pending
            try:
                verdict = _decode_verdict(answer)
            except msgspec.ValidationError as error:
                raise ResourceError(
                    f"verify returned no verdict ({error}); Pending is for rollouts that are published in "
                    "groups",
                    stage="verify",
                ) from error
            verdict.checked()
            strange = [one for one in verdict.rewards if self._seats and one not in self._seats]
            if strange:  # a trainer would leave out the seat that is meant, without a word
                what = f"{', '.join(strange)}; the agent's seats are {', '.join(self._seats)}"
                raise ResourceError(f"verify named rewards of the seats {what}", stage="verify")
            evaluation = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": verdict.reward}
            tracing.event("gen_ai.evaluation.result", evaluation)
        return verdict

    async def compare(self) -> Comparison:
        """Have the environment compare the rollouts of a group; for a task that is a comparison."""
        call = calls.Compare(candidates=self.task.candidates)
        with tracing.span("compare"):
            # An earlier client's comparison may have asked judges already; their answers are in the journal.
            return _decode_comparison(await self._session.ask(call, repeated=self.task.taken_up))

    async def close(self) -> None:
        """Tell each worker that may hold the session that the rollout is over; wait for no answer."""
        await self._session.close()

    # -- the result ------------------------------------------------------------------------------

    def response(self) -> Response:
        """The rollout as one response: the last one, with the whole transcript and all usage."""
        last = self.last_response or Response(id=self._session.names[0], status="incomplete")
        if self.notes:
            # The metadata come from the engine, and may be anything.
            said: Any = msgspec.json.decode(last.metadata)
            known = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            last = msgspec.structs.replace(last, metadata=Raw(_encode({**known, **self.notes})))
        return msgspec.structs.replace(last, output=self.output, usage=self.usage)

    def facts(self) -> Facts:
        """This attempt's part of the rollout's row."""
        params = self.params
        if self._reset:
            # The input with the first observation. Joined only here: a large input would otherwise be in
            # memory twice during the whole rollout.
            params = msgspec.structs.replace(params, input=Raw(_encode(self.input)))
        return Facts(
            row_fields=self._row_fields,
            params=params,
            response=self.response(),
            tokens=self.tokens,
            branches=self.branches(),
            seat=self.seat,
            turns=self.turns,
            tool_calls=self._tools.begun,
            resumed_turns=self._journal.resumed,
            rebuilt_sessions=self._session.rebuilt,
            weight_versions=list(dict.fromkeys((*self._shared_versions, *self.weight_versions))),
            repeated_calls=self._session.repeated_calls,
            drifted_calls=self.drifted_calls,
            shared_items=self._shared.items,
            differed=self._shared.differed,
            restored_turns=self._shared.restored,
            saved=self._saved,
            timing=self.times.fields(),
            roles=self.roles.log,
        )

    def _note_saved(self) -> None:
        if self._session.kept:
            self._saved[self.turns] = self._session.kept

    def _offer(self, tools: Sequence[Raw]) -> None:
        if self.task.fork is not None:
            # The recorded row has those that were offered to it.
            tools = [tool for tool in tools if not any(same([tool], [known]) for known in self.params.tools)]
        if tools:
            self.params = msgspec.structs.replace(self.params, tools=[*self.params.tools, *tools])
            self._call_params = _without_input(self.params)

    def _take(
        self, answered: Answered, kind: str, parent: int, asked: Sequence[Raw] = (), seat: str = ""
    ) -> tuple[Turn, int]:
        """Count a turn, and append the question items and the answer to the transcript.

        Returns:
            The turn, and the call's number; that of its parent if it reports no tokens.
        """
        turn, number = self._count(answered), parent
        tokens, output = answered.answer.tokens, answered.response.output
        self.output += [*asked, *output]
        if self.turns <= len(self._shared.answers):
            self._shared.items = len(self.output)
        if tokens is not None:
            # Tokens stand on the last item; those of an answer without items stand beside the transcript.
            item, named = len(self.output) - 1, None
            if not output:
                item, named = -1, lengthened(tokens, answered.before)
            call = BranchCall(kind=kind, parent=parent, item=item, tokens=named, seat=seat)
            # A recorded prompt is whole, and the tree takes what it does not repeat as resampled.
            is_shared = self.turns <= len(self._shared.answers)
            short = shortened(tokens, b"".join(answered.before)) if is_shared else tokens
            number = self._tree.add(short, call)
        if tokens is not None and output:
            newest = next(reversed(self.tokens.values()), None)
            # A prompt stays shortened only directly after the call that it continues.
            if newest is None or newest is not self._newest or answered.before is not self._ids:
                tokens = lengthened(tokens, answered.before)
            self.tokens[len(self.output) - 1] = self._newest = tokens
            self._ids = answered.after
        return turn, number

    def _count(self, answered: Answered) -> Turn:
        """Count a turn that the caller appends."""
        response, answer, items, before, _ = answered
        turn = Turn(response, answer.tokens, before, items)
        self.turns += 1
        self._note_weights(answer)
        if response.usage is not None:
            self.usage += response.usage
        self.last_response = response
        return turn

    def _note_weights(self, answer: calls.ModelAnswer) -> None:
        spans = answer.tokens.weights if answer.tokens is not None else []
        # The spans are more exact: weights may have changed during the answer.
        shared = self.turns <= len(self._shared.answers)
        known = self._shared_versions if shared else self.weight_versions
        for version in [span.version for span in spans] or [answer.weight_version]:
            if version and version not in known:
                known.append(version)


def _without_input(params: CreateParams) -> Raw:
    # The items travel beside the parameters, and only those that the worker has not kept.
    return Raw(_encode(msgspec.structs.replace(params, input=Raw(b"[]"))))


class Agent(Protocol):
    """How a rollout is run. A module of ``gym_agents`` has one class of this name.

    One instance runs all rollouts of a worker, so keep a rollout's state in local variables. When `run`
    returns, the rollout has ended and is judged.
    """

    async def run(self, rollout: Rollout) -> None:
        """Run one rollout to its end. Do not catch the errors of the rollout's methods."""
        ...
