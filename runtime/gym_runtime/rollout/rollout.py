"""A rollout as its agent uses it: every call to a model or an environment goes through it.

It keeps the conversation, counts turns and tool calls, holds the one deadline and the one budget of retries,
and knows which worker holds the session. It does not depend on how an agent decides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, Model, Role
from gym_runtime.errors import ModelUnavailable, ResourceError, TaskError, UsageError, leaf
from gym_runtime.messages import calls
from gym_runtime.messages.comparison import Comparison
from gym_runtime.messages.items import FunctionCall, Item, Message, decode_items, tool_output
from gym_runtime.messages.responses import NULL, CreateParams, Response, Usage, decode_params
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.envelope import Envelope
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.remote_model import RemoteModel
from gym_runtime.rollout.remote_session import RemoteSession
from gym_runtime.rollout.role_calls import RoleCalls, RoleLimits
from gym_runtime.rollout.times import RolloutTimes
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.router import Router
from gym_runtime.timing import SESSION_CLOSED_S

_encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder().decode
_decode_verdict = msgspec.json.Decoder(JudgedVerdict).decode
_decode_pending = msgspec.json.Decoder(JudgedPending).decode
_decode_comparison = msgspec.json.Decoder(Comparison).decode
_limits = RoleLimits()


class Turn:
    """One answer of the model."""

    def __init__(self, response: Response, tokens: calls.Tokens | None) -> None:
        self.response = response
        self.tokens = tokens
        self.items: list[Item] = decode_items(response.output)

    @property
    def function_calls(self) -> list[FunctionCall]:
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @property
    def messages(self) -> list[Message]:
        """The assistant's messages."""
        return [item for item in self.items if isinstance(item, Message) and item.role == "assistant"]

    @property
    def incomplete(self) -> str | None:
        """Why the answer is incomplete (``max_output_tokens``, ``content_filter``), or None."""
        details = self.response.incomplete_details
        return None if details is None else details.reason or "incomplete"


class Rollout:
    """One attempt at one rollout, as its agent sees it.

    Attributes:
        task: the rollout's spec, including its limits.
        deadline_s: the rollout's, in seconds since the epoch by this machine's clock.
        params: the row's ``responses_create_params``; its input ends with what `reset` added.
        turns: model calls made so far.
        output: the transcript: all items that were added after the row's input.
        truncated: which limit ended the rollout, or None.
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
        try:
            self.params = decode_params(_row(task.row).responses_create_params)
        except msgspec.DecodeError as error:
            raise TaskError(f"the row is not a task: {error}") from error
        self.task = task
        self.attempt = attempt
        self.turns = 0
        self.tool_calls = 0
        self.truncated: str | None = None
        self.usage = Usage()
        self.input: list[Raw] = self.params.input_items()
        self.output: list[Raw] = []
        self.tokens: dict[int, calls.Tokens] = {}
        self.weight_versions: list[str] = []
        self.times = RolloutTimes(router.meter, task.environment)
        self.last_response: Response | None = None
        self._router = router
        self._budget = budget or RetryBudget()
        self._call_params = _without_input(self.params)
        self._journal = journal or Journal(None, "")
        # A task that was published twice is delivered twice as attempt 1, so the attempt's number alone is
        # not unique.
        name = f"{task.rollout_id}.{attempt}.{random.getrandbits(40):010x}"
        self._journal.session = self._journal.session or name
        envelope = Envelope(task, attempt, task.timeout_s if left_s is None else left_s)
        self.deadline_s = envelope.deadline_s
        self._session = RemoteSession(task, router, self._budget, self._journal, envelope)
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
    def max_turns(self) -> int | None:
        """Model calls at most, or None for no limit."""
        return self.task.max_turns

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

    def truncate(self, reason: str) -> None:
        """Note that a limit ends this rollout; it is still judged, with the outcome ``truncated``."""
        self.truncated = self.truncated or reason

    async def respond(self) -> Turn:
        """Have the model answer the conversation so far; the answer is appended to it.

        Raises:
            GymError: the model refused, or stayed unavailable up to the deadline.
        """
        with tracing.span("turn", {"gym.turn": self.turns}), self.times.model():
            response, answer = await self._model.ask(self._call_params, [*self.input, *self.output])
        return self._take(response, answer)

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
            response, answer = await self._model.ask_apart(params, items, prefix)
        return self._count(response, answer)

    def _take(self, response: Response, answer: calls.ModelAnswer) -> Turn:
        """Count a turn, and append it to the transcript."""
        turn = self._count(response, answer)
        self.output += response.output
        if answer.tokens is not None and response.output:
            self.tokens[len(self.output) - 1] = answer.tokens
        return turn

    def _count(self, response: Response, answer: calls.ModelAnswer) -> Turn:
        try:
            turn = Turn(response, answer.tokens)
        except msgspec.DecodeError as error:
            raise ModelUnavailable(f"the model's answer is not a response: {error}", stage="model") from error
        self.turns += 1
        self._note_weights(answer)
        if response.usage is not None:
            self.usage += response.usage
        self.last_response = response
        return turn

    async def call_tools(self, function_calls: Sequence[FunctionCall]) -> None:
        """Execute tool calls; their outputs are appended in the calls' order.

        They run one after the other, or concurrently if the environment allows it. If a call fails (its
        arguments are not JSON, the tool is unknown, the tool raised), its output tells the model the error.

        Raises:
            SessionLost: the worker that holds the session is gone.
        """
        with self.times.tools():
            outputs = await self._call_tools(function_calls)
        for call, output in zip(function_calls, outputs, strict=True):
            self.output.append(tool_output(call.call_id, output or ""))

    async def _call_tools(self, function_calls: Sequence[FunctionCall]) -> list[str | None]:
        outputs: list[str | None] = [None] * len(function_calls)

        async def one(index: int) -> None:
            outputs[index] = await self._call_tool(function_calls[index])

        if self.task.parallel_tools and len(function_calls) > 1:
            if not self._session.worker:
                # Else each of the first calls would carry the task, and open a session on another worker.
                await self._session.ask(calls.OpenSession())
            try:
                async with anyio.create_task_group() as tasks:
                    for index in range(len(function_calls)):
                        tasks.start_soon(one, index)
            except BaseExceptionGroup as group:
                raise leaf(group) from group
        else:
            for index in range(len(function_calls)):
                await one(index)
        return outputs

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
            self.params = msgspec.structs.replace(self.params, input=Raw(_encode(self.input)))
        if answer.tools:
            self.params = msgspec.structs.replace(self.params, tools=[*self.params.tools, *answer.tools])
            self._call_params = _without_input(self.params)

    async def step(self, turn: Turn) -> calls.StepAnswer:
        """Hand the model's answer to a step-by-step environment; its observation is appended."""
        call = calls.StepCall(response=Raw(_encode(turn.response)))
        with self.times.tools():
            answer = calls.decode_step_answer(await self._session.ask(call))
        self.output += answer.items
        return answer

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
            return _decode_comparison(await self._session.ask(call, repeated=self.task.taken_up))

    async def close(self) -> None:
        """Tell each worker that may hold the session that the rollout is over; wait for no answer."""
        request = calls.Request(
            body=calls.pack(calls.CloseSession(session=self._session.name)),
            deadline_s=clock.now() + SESSION_CLOSED_S,  # not the rollout's, which may have passed
            rollout=self.task.rollout_id,
            attempt=self.attempt,
        )
        for worker in sorted(self._session.asked):
            await self._router.tell("resource", self.task.environment, worker, request)

    def response(self) -> Response:
        """The rollout as one response: the last one, with the whole transcript and all usage."""
        last = self.last_response or Response(id=self._session.name, status="incomplete")
        return msgspec.structs.replace(last, output=self.output, usage=self.usage)

    async def _call_tool(self, call: FunctionCall) -> str:
        self.tool_calls += 1
        problem = _json_problem(call.arguments)
        if problem is not None:
            return json.dumps({"error": f"Invalid tool call arguments: {problem}"})
        request = calls.CallTool(name=call.name, arguments=call.arguments)
        about = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id,
        }
        with tracing.span(f"execute_tool {call.name[: tracing.NAME_CHARS]}", about):
            return calls.decode_tool_answer(await self._session.ask(request)).output

    def _note_weights(self, answer: calls.ModelAnswer) -> None:
        spans = answer.tokens.weights if answer.tokens is not None else []
        for version in [span.version for span in spans] or [answer.weight_version]:
            if version and version not in self.weight_versions:
                self.weight_versions.append(version)


class _Row(msgspec.Struct, frozen=True):
    responses_create_params: Raw


_row = msgspec.json.Decoder(_Row).decode


def _without_input(params: CreateParams) -> Raw:
    return Raw(_encode(msgspec.structs.replace(params, input=Raw(b"[]"))))


def _json_problem(arguments: str) -> str | None:
    """Why tool arguments are not JSON, in the words of Python's json module; None if they are."""
    try:
        _decode_any(arguments)
    except (msgspec.DecodeError, RecursionError):
        try:
            json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return str(error)
    return None
