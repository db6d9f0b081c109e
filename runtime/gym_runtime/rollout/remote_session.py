"""A rollout's session: the worker that holds it, the keys of its calls, how it is rebuilt; its tool calls.

The first call carries the task, which opens the session; the answer names the worker that holds it, and later
calls go to that worker. When it is gone, the session is opened on another worker and its calls are repeated,
if the environment is ``replayable``. If an answer then differs from the first one, the environment is not
replayable after all, and the session is lost. If the environment saves its state, the rebuilt session starts
from the last saved state, and only the calls after it are repeated. A rebuilt session has a new name: another
attempt may also have the rollout, and must not find a session whose calls are only partly repeated.

The tool calls of one turn are executed in order, or concurrently where the environment allows it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import tracing
from gym_runtime.environment.tools import NOT_FOUND, SERVER_ERROR, VALIDATION
from gym_runtime.errors import ResourceError, SessionLost, leaf
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.images import Content
from gym_runtime.messages.responses import NULL, FunctionCall
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.journal import Journal, digest
from gym_runtime.rollout.remote_model import Envelope
from gym_runtime.rpc.actors import Actors, RoutedReply
from gym_runtime.rpc.retry_budget import RetryBudget


class _Past(msgspec.Struct, frozen=True):
    """A call that the session has answered."""

    call: calls.ResourceCall
    name: str
    answer: str
    saved: Raw


@dataclass(eq=False)
class RemoteSession:
    """One rollout's session.

    Attributes:
        names: its first name, then the names that it got when it was rebuilt.
        worker: the worker that holds it; empty before the first call and while it is being rebuilt.
        asked: the workers that may have opened it, including workers that never answered: each must be told
            when the session is over.
        rebuilt: how often it was rebuilt.
        repeated_calls: how many calls were made again for that.
        any_order: another attempt may make the same calls in another order, as the agent is a program.
        kept: the name of what it has saved after its last call, for forks; empty for none.
    """

    _task: RolloutSpec
    _actors: Actors
    _budget: RetryBudget
    _journal: Journal
    _envelope: Envelope
    _row: Raw
    rebuilt: int = 0
    repeated_calls: int = 0
    any_order: bool = False
    kept: str = ""
    _past: list[_Past] = field(default_factory=list[_Past])
    _count: Counter[str] = field(default_factory=Counter[str])
    _half_built: bool = False
    _rebuilding: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        self.names = [self._journal.session]
        self.worker = self._journal.worker
        self._taken_over = bool(self.worker)
        self.asked = {self.worker} if self.worker else set[str]()

    async def ask(
        self,
        call: calls.ResourceCall,
        *,
        repeated: bool = False,
        limit_s: float | None = None,
        instead: Raw = NULL,
    ) -> Raw:
        """The answer to a call: from the journal, or from the worker that holds the session.

        Args:
            repeated: an earlier client may have made this call, and models in roles may have answered it.
            limit_s: a call that takes longer, in seconds, is given up and counts as answered with
                ``instead``. A rebuilt session does not repeat it, because its effect is unknown.

        Raises:
            SessionLost: that worker is gone, and the session cannot be rebuilt.
        """
        # Counted also when the journal answers, so that each call has the same key in every attempt.
        identity = digest(calls.encode(call))
        kind = identity if self.any_order else ""
        self._count[kind] += 1
        name = f"{kind}{self._count[kind]}"
        body = self._journal.environment_answer(identity)
        if body is None:
            answer = await self._deliver(call, name, repeated=repeated, limit_s=limit_s)
            body = instead if answer is None else answer.body
            self._journal.note(identity, body)
        if limit_s is None or body != instead:
            self._remember(call, name, body)
        return body

    async def begin_with(self, saved: str, origins: Sequence[str]) -> bool:
        """Open it with what the session of another rollout has saved; False if that is gone."""
        call = calls.OpenSession(restore=calls.pack(calls.KeptState(saved)), origins=list(origins))
        try:
            body = await self.ask(call)
        except SessionLost:
            raise
        except ResourceError as error:
            logger().warning("a fork repeats its calls: what was saved is gone", error=error.message)
            # Noted, so that each later attempt repeats the calls, too.
            body = calls.pack(calls.StepAnswer())
            self._journal.note(digest(calls.encode(call)), body)
        return bytes(calls.decode_step_answer(body).saved) != b"null"

    async def close(self) -> None:
        """Tell each worker that may hold it that the rollout is over; wait for no answer."""
        for name in self.names:
            # Sorted, because a set's order differs from run to run, and simulated runs must repeat.
            for worker in sorted(self.asked):
                await self._actors.close_session(self._task.environment, worker, name)

    def _remember(self, call: calls.ResourceCall, name: str, body: Raw) -> None:
        if self._task.replayable and not isinstance(call, calls.Verify):
            answer, saved = calls.without_saved(call, body)
            self.kept = calls.kept_name(saved)
            restoring = isinstance(call, calls.OpenSession) and bytes(call.restore) != b"null"
            if restoring and bytes(saved) == b"null":
                return  # it was gone: the calls are made again
            self._past.append(_Past(call, name, digest(answer), saved))

    async def _deliver(
        self, call: calls.ResourceCall, name: str, *, repeated: bool, limit_s: float | None
    ) -> RoutedReply | None:
        """The answer; None if it took too long. The time to rebuild a session does not count."""
        lost = problem = session = ""
        while True:
            losses = self._budget.losses
            try:
                if (lost or self._half_built) and (problem := await self._rebuild(lost)):
                    break
                again, session, answer = repeated or bool(lost), self.names[-1], None
                if limit_s is None:  # a scope costs every call 3 µs
                    answer = await self._send(call, name, repeated=again)
                else:
                    with anyio.move_on_after(limit_s):
                        answer = await self._send(call, name, repeated=again)
                if answer is None or session == self.names[-1]:
                    return answer
                lost = session  # another call has lost it meanwhile: the session that follows lacks this one
            except SessionLost as error:
                if self._taken_over and self._budget.losses == losses:
                    # The attempt before was stopped in the middle of this call: not the rollout's failure.
                    self._budget.lose(error)
                self._taken_over = False
                if not self._task.replayable:
                    raise
                # A live worker that lost the session counts no loss; without a retry this could go on for
                # ever.
                if self._budget.losses == losses:
                    self._budget.spend(error)
                lost = session
        raise SessionLost(f"resource '{self._task.environment}' {problem}", stage="resource")

    async def _rebuild(self, lost: str) -> str:
        """Open another session and bring it to the state of the lost one; why that failed, or empty.

        Tool calls that run concurrently lose their session together; the first one rebuilds it.
        """
        async with self._rebuilding:
            # Another call may have rebuilt it while this one waited for the lock, also on the same worker.
            if self.names[-1] == lost or self._half_built:
                self._half_built = True
                worker, self.worker = self.worker, ""
                self.rebuilt += 1
                name = f"{self.names[0]}-{random.getrandbits(40):010x}"
                self.names.append(name)
                try:
                    problem = await self._repeat()
                except BaseException:
                    # Neither the next call nor, by the journal, another attempt may find it half built.
                    self.worker = worker
                    raise
                self._half_built = False
                self._journal.session, self._journal.worker = name, self.worker
                return problem
        return ""

    async def _repeat(self) -> str:
        """Bring a new session to the state of the lost one; why it is another one, or empty."""
        places = [place for place, past in enumerate(self._past) if bytes(past.saved) != b"null"]
        if places:
            origins = self._task.fork.saved_in if self._task.fork else []
            opening = calls.OpenSession(restore=self._past[places[-1]].saved, origins=origins)
            try:
                opened = await self._send(opening, "0", repeated=True)
            except SessionLost:
                raise
            except ResourceError as error:
                return f"cannot restore what a lost session has saved: {error.message}"
            if bytes(calls.decode_step_answer(opened.body).saved) == b"null":
                return "has a worker of an older version, which restores nothing that a session has saved"
        for past in self._past[places[-1] + 1 if places else 0 :]:
            self.repeated_calls += 1
            answer = await self._send(past.call, past.name, repeated=True)
            if digest(calls.without_saved(past.call, answer.body)[0]) != past.answer:
                return (
                    "answered a repeated call differently: its sessions cannot be rebuilt; let them save "
                    "their state, or declare the environment replayable=False"
                )
        return ""

    async def _send(self, call: calls.ResourceCall, called: str, *, repeated: bool) -> RoutedReply:
        name = self.names[-1]
        # Only the call that opens it carries the task, because a row may be large.
        opening = not self.worker
        sent = msgspec.structs.replace(call, session=name, task=self._row if opening else NULL)
        request = self._envelope(
            sent,
            f"{name}.{called}",
            with_roles=True,
            repeated=repeated,
            opening=opening and not isinstance(call, calls.Verify),
        )
        pool = self._task.environment
        if not opening:
            return await self._actors.ask_session(pool, self.worker, request, self._budget)
        answer = await self._actors.ask("resource", pool, request, self._budget, asked=self.asked)
        self.worker = answer.worker
        if not self._half_built:
            self._journal.worker = answer.worker
        return answer


ToolFailure = Literal["arguments", "exception", "timeout", "unknown_tool"]

# A model wrote the name, so it may have any length.
NAME_CHARS = 100
_NOT_JSON = "Invalid tool call arguments: "
_GAVE_UP = " did not answer within "


@dataclass(eq=False)
class ToolCalls:
    """Executes the tool calls of one session.

    Attributes:
        parallel: the calls of one turn run at once.
        begun: how many calls have begun so far, failed ones included.
    """

    _session: RemoteSession
    _: KW_ONLY
    parallel: bool
    begun: int = 0

    async def execute(
        self, function_calls: Sequence[FunctionCall], limit_s: float | None = None
    ) -> list[Content]:
        """The calls' outputs, in the calls' order; for a failed call, the error as the model sees it.

        A call that takes longer than ``limit_s`` seconds is given up.

        Raises:
            SessionLost: the worker that holds the session is gone.
        """
        # Places are filled by index: parallel calls end in any order.
        outputs: list[Content] = [""] * len(function_calls)

        async def one(index: int) -> None:
            outputs[index] = await self._execute(function_calls[index], limit_s)

        if self.parallel and len(function_calls) > 1:
            if not self._session.worker:
                # Otherwise each of the first calls would carry the task, and open another session.
                await self._session.ask(calls.OpenSession())
            try:
                async with anyio.create_task_group() as tasks:
                    for index in range(len(function_calls)):
                        tasks.start_soon(one, index)
            except BaseExceptionGroup as group:
                # The caller handles single errors, as if the calls had come one after the other.
                raise leaf(group) from group
        else:
            for index in range(len(function_calls)):
                await one(index)
        return outputs

    async def _execute(self, call: FunctionCall, limit_s: float | None) -> Content:
        self.begun += 1
        problem = _json_problem(call.arguments)
        if problem is not None:
            return json.dumps({"error": f"{_NOT_JSON}{problem}"})
        request = calls.CallTool(name=call.name, arguments=call.arguments)
        about = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id,
        }
        with tracing.span(f"execute_tool {call.name[: tracing.NAME_CHARS]}", about):
            # Built before the call: the session compares the answer with it to detect a call given up.
            instead = NULL if limit_s is None else _given_up(call.name, limit_s)
            answer = await self._session.ask(request, limit_s=limit_s, instead=instead)
            return calls.decode_tool_answer(answer).output


def _given_up(name: str, limit_s: float) -> Raw:
    said = json.dumps({"error": f"The tool '{name[:NAME_CHARS]}'{_GAVE_UP}{limit_s:g} s."})
    return calls.pack(calls.ToolAnswer(output=said))


def tool_failure(output: Content) -> ToolFailure | None:
    """How the call with this output failed, recognized by the texts that the runtime writes.

    None if it did not fail, or if the tool reported a failure in its own words.
    """
    if not isinstance(output, str):
        return None
    if output == NOT_FOUND:
        return "unknown_tool"
    if output == SERVER_ERROR:
        return "exception"
    if output.startswith((VALIDATION, f'{{"error": "{_NOT_JSON}')):
        return "arguments"
    # Only the beginning: a tool's output may be megabytes.
    return "timeout" if output.startswith('{"error": "The tool ') and _GAVE_UP in output[:1000] else None


def _json_problem(arguments: str) -> str | None:
    """Why tool arguments are not JSON, in the words of Python's json module; None if they are."""
    # By json, as in NeMo Gym: it accepts NaN. Deeply nested arguments must not end the rollout.
    try:
        json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None
