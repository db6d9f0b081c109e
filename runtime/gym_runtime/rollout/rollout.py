"""A rollout as its agent uses it: every call to a model or an environment goes through it.

It holds the one deadline and the one budget of retries, and knows which worker holds the session; what was
said and counted is kept by `attempt_state`. It does not depend on how an agent decides.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from gym_runtime import tracing
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, Model, Role
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.calls import Comparison
from gym_runtime.messages.responses import NULL, CreateParams, FunctionCall, Response, tool_output
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.attempt_state import AttemptState
from gym_runtime.rollout.envelope import Envelope
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.remote_model import RemoteModel
from gym_runtime.rollout.remote_session import RemoteSession
from gym_runtime.rollout.role_calls import RoleCalls, RoleLimits
from gym_runtime.rollout.times import RolloutTimes
from gym_runtime.rollout.tool_calls import ToolCalls, ToolFailure, tool_failure
from gym_runtime.rollout.turn import Turn
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.router import Router

_encode = msgspec.json.Encoder().encode
_decode_verdict = msgspec.json.Decoder(JudgedVerdict).decode
_decode_pending = msgspec.json.Decoder(JudgedPending).decode
_decode_comparison = msgspec.json.Decoder(Comparison).decode
# One for the process: a role's limit counts the questions of all its rollouts.
_limits = RoleLimits()


class Rollout(AttemptState):
    """One attempt at one rollout, as its agent sees it.

    Attributes:
        task: the rollout's spec, including its limits.
        deadline_s: the rollout's, a time of `gym_runtime.clock.monotonic`.
        params: the row's ``responses_create_params``.
        turns: model calls made so far.
        input: the items of the row's input, and behind them those that `reset` added.
        output: the transcript: all items that were added after the row's input.
        tokens: of each model call that reported them, by the index of its last item in ``output``. A prompt
            may be short on the tokens of the call before; `Turn.tokens` has it whole.
        truncated: which limit ended the rollout, or None.
        notes: texts by their names, which stand in the response's ``metadata``.
        weight_versions: the versions of the model's weights that answered, if the engine reports them.
        times: how long each turn and the verification took.
        roles: what the agent asks models in roles.
    """

    def __init__(
        self,
        task: RolloutSpec,
        attempt: int,
        router: Router,
        journal: Journal | None = None,
        budget: RetryBudget | None = None,
        left_s: float | None = None,
    ) -> None:
        envelope = Envelope(task, attempt, task.timeout_s if left_s is None else left_s)
        super().__init__(task, envelope.deadline_s)
        self.attempt = attempt
        self.times = RolloutTimes(router.meter, task.environment)
        self._router = router
        self._budget = budget or RetryBudget()
        self._call_params = _without_input(self.params)
        self._journal = journal or Journal(None, "")
        # A task that was published twice is delivered twice as attempt 1, so the attempt's number alone is
        # not unique.
        name = f"{task.rollout_id}.{attempt}.{random.getrandbits(40):010x}"
        # An earlier attempt's session is used again: it answers repeated calls from memory.
        self._journal.session = self._journal.session or name
        self._session = RemoteSession(task, router, self._budget, self._journal, envelope)
        self._tools = ToolCalls(self._session, parallel=task.parallel_tools)
        self._model = RemoteModel(task, name, router, self._budget, self._journal, envelope)
        self.roles = RoleCalls(
            router,
            _limits,
            environment=task.environment,
            request=envelope(NULL, f"{self._journal.session}.0", with_roles=True),
            budget=self._budget,
            worker=name,
        )

    @property
    def tool_calls(self) -> int:
        """Tool calls begun so far."""
        return self._tools.begun

    @property
    def resumed_turns(self) -> int:
        """How many of the turns came from an earlier attempt's journal."""
        return self._journal.turns

    @property
    def rebuilt_sessions(self) -> int:
        """How often the session was lost with its worker and rebuilt."""
        return self._session.rebuilt

    @property
    def trace_context(self) -> Mapping[str, str]:
        """The W3C trace context as headers, for what the agent asks or starts; empty if not traced."""
        return tracing.headers() or {}

    @property
    def is_resuming(self) -> bool:
        """Whether the next answer of the model comes from an earlier attempt's journal."""
        return self._journal.turns < self._journal.length

    async def respond(self, shown: Sequence[Raw] | None = None) -> Turn:
        """Have the model answer the conversation so far; the answer is appended to the transcript.

        Args:
            shown: the conversation that the model is shown in place of the whole one, for agents that leave
                out or replace a part of it. Its tokens are then a sequence of their own.

        Raises:
            GymError: the model refused, or stayed unavailable up to the deadline.
        """
        items = [*self.input, *self.output] if shown is None else shown
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.model():
            answered = await self._model.ask(self._call_params, items)
        return self._take(answered)

    async def respond_apart(self, *conversations: Sequence[Raw]) -> list[Turn]:
        """Have the model answer several separate conversations, all at the same time.

        Each counts as a turn, is journaled, and is a token sequence of its own. The last item of each
        conversation, the question, and its answer are appended to the transcript, in the order given.

        Raises:
            GymError: as `respond`; the other calls are given up.
        """
        if not conversations:
            return []
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.model():
            answers = await self._model.ask_each(self._call_params, conversations)
        return [
            self._take(answered, conversation[-1:])
            for conversation, answered in zip(conversations, answers, strict=True)
        ]

    async def respond_to(self, items: Sequence[Raw], params: Raw, prefix: calls.Prefix | None = None) -> Turn:
        """Have the model answer a conversation that the caller keeps, such as a harness.

        It counts as a turn; the caller decides what is added to the transcript (``input``, ``output``,
        ``tokens``). Calls may run concurrently. They are not journaled.

        Args:
            params: ``responses_create_params`` without input, as JSON.
            prefix: the tokens of the turns that the conversation continues, if they are known.

        Raises:
            GymError: as `respond`.
        """
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.model():
            answered = await self._model.ask_apart(params, items, prefix)
        return self._count(answered)

    async def call_tools(
        self, function_calls: Sequence[FunctionCall], *, limit_s: float | None = None
    ) -> list[ToolFailure | None]:
        """Execute tool calls; their outputs are appended in the calls' order.

        They run one after the other, or concurrently if the environment allows it. If a call fails (its
        arguments are not JSON, the tool is unknown, the tool raised), its output tells the model the error,
        and the result has ``arguments``, ``unknown_tool``, ``exception`` or ``timeout`` at its place.

        Args:
            limit_s: the seconds that one call may take; it is then given up, and its output says so.

        Raises:
            SessionLost: the worker that holds the session is gone.
        """
        with self.times.tools():
            outputs = await self._tools.execute(function_calls, limit_s)
        for call, output in zip(function_calls, outputs, strict=True):
            self.output.append(tool_output(call.call_id, output))
        return [tool_failure(output) for output in outputs]

    async def open(self) -> None:
        """Open the session now if its environment may refuse the row; otherwise the first call opens it."""
        if self.task.opens_first:
            await self._session.ask(calls.OpenSession())

    async def reset(self) -> None:
        """Open a step-by-step environment; its first observation is appended to the row's input, and the
        tools that it offers to the row's tools.
        """
        answer = calls.decode_step_answer(await self._session.ask(calls.OpenSession()))
        if answer.items:
            self.input += answer.items
            self._reset = True
        self._offer(answer.tools)

    async def step(self, turn: Turn) -> calls.StepAnswer:
        """Hand the model's answer to a step-by-step environment; its observation is appended, and new tools
        are offered.
        """
        call = calls.StepCall(response=Raw(_encode(turn.response)))
        with self.times.tools():
            answer = calls.decode_step_answer(await self._session.ask(call))
        self.output += answer.items
        self._offer(answer.tools)
        return answer

    def _offer(self, tools: Sequence[Raw]) -> None:
        if tools:
            self.params = msgspec.structs.replace(self.params, tools=[*self.params.tools, *tools])
            self._call_params = _without_input(self.params)

    def model(self, role: str | Role) -> Model:
        """The model in a role, such as ``critic``, for the agent to ask beside the policy.

        What it answers is journaled and stands in the row; it is no part of the transcript. The role is one
        of the environment's, or one that the run names for this agent.

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
        return Model(role, self.roles.ask, self.task.role_sampling.get(role.name))

    async def verify(self) -> JudgedVerdict | JudgedPending:
        """Have the environment judge the transcript. The runtime calls it after the agent returned."""
        environment = self.task.environment
        with tracing.span(f"verify {environment}", {"gym.environment": environment}):
            with self.times.verification():
                answer = await self._session.ask(calls.Verify(response=Raw(_encode(self.response()))))
            if self.task.group is not None:
                pending = _decode_pending(answer)
                # A verdict has no features; it is told from a pending one by this field alone.
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

    def response(self) -> Response:
        """The rollout as one response: the last one, with the whole transcript and all usage."""
        return self._whole_response(self._session.names[0])


def _without_input(params: CreateParams) -> Raw:
    # The items travel beside the parameters, and only those that the worker has not kept.
    return Raw(_encode(msgspec.structs.replace(params, input=Raw(b"[]"))))
