"""Resources: the environment's side of a rollout, the same for each of the three shapes.

A worker uses a `Resource`, which makes `Session` objects. What an author's code raises and returns is
checked by `gym_runtime.environment.author_code`. How a recorded rollout is judged again is in
`gym_runtime.environment.replaying`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast, get_args, get_type_hints

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw

from gym_runtime.environment.author_code import guarded, observed, returned
from gym_runtime.environment.roles import Model, Models, Role
from gym_runtime.environment.shapes import (
    Candidates,
    CompareFunction,
    Episode,
    ReviewFunction,
    Session,
    Step,
    Store,
    Task,
    VerifyFunction,
    check_methods,
    compared,
    no_verdicts,
)
from gym_runtime.environment.tools import (
    NOT_FOUND,
    Tool,
    ToolError,
    ToolPack,
    ToolPacks,
    collect_tools,
    parts_of,
    place,
    refused,
)
from gym_runtime.environment.verdict import Pending, Reply, Verdict
from gym_runtime.errors import NOT_JSON, UNREADABLE, ResourceError, TaskError, UsageError
from gym_runtime.messages.calls import ComparedVerdict, StepAnswer
from gym_runtime.messages.images import Content
from gym_runtime.messages.responses import (
    NULL,
    decode_items,
    tool_output,
)
from gym_runtime.messages.rollout_spec import Candidate
from gym_runtime.messages.transcripts import encoded, whole


def task_type(shape: type[Session[Any]] | VerifyFunction) -> type[Task]:
    """The task's type, which an author must name: a plain `Task` has none of the row's own fields.

    Raises:
        UsageError: it is not named, or does not derive from `Task`; with what to write.
    """
    return _session_task(shape) if isinstance(shape, type) else _function_task(shape)


def _function_task(verify: VerifyFunction) -> type[Task]:
    first, why, named = next(iter(inspect.signature(verify).parameters), ""), "", None
    try:
        named = get_type_hints(verify).get(first)
    except NameError as error:
        why = f": {error}"
    if isinstance(named, type) and issubclass(named, Task):
        return named
    raise UsageError(
        f"{place(verify)}verify's first parameter must be annotated with a subclass of Task{why}"
    )


def _session_task(session: type[Session[Any]]) -> type[Task]:
    for cls in session.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Task):
                    return argument
    name, kind = session.__name__, Episode if issubclass(session, Episode) else Session
    wanted = f"class {name}({kind.__name__}[{name}Task]), where the task derives from Task"
    raise UsageError(f"{place(session)}{name} does not name its task: {wanted}")


def role_parameters(function: Callable[..., Any], roles: Sequence[Role], *given: str) -> list[Role]:
    """The roles that a function asks: its parameters after those that the runtime gives it.

    Raises:
        UsageError: it has too few parameters, or one does not name a role; with the function's file and line.
    """
    known = {role.name: role for role in roles}
    found: list[Role] = []
    where = f"{place(function)}{getattr(function, '__name__', 'verify')}"
    signature = inspect.signature(function)
    asked = list(signature.parameters)[len(given) :]
    try:
        signature.bind(*given, *asked)
    except TypeError:
        bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
        taken = signature.replace(parameters=bare, return_annotation=signature.empty)
        raise UsageError(
            f"{where}{taken} is called with ({', '.join(given)}), then its roles, by position"
        ) from None
    for name in asked:
        if name not in known:
            there = f"; there are: {', '.join(known)}" if known else ""
            raise UsageError(
                f"{where} asks a model '{name}', which is no role of the environment{there}: "
                f"Environment(roles=('{name}',), …). "
                "An isolated verification asks none; its review does"
            )
        found.append(known[name])
    return found


CLOSE_LIMIT_S = 5.0
"""How long a session's `close` may take; then it is abandoned, with a warning."""


def releases(session: Session[Any]) -> bool:
    """Whether a session has anything to release when it is closed."""
    return type(session).close is not Session.close or not session.packs.idle


async def close_session(session: Session[Any]) -> None:
    """Close a session within `CLOSE_LIMIT_S` seconds, also during a cancellation.

    Raises:
        ResourceError: its ``close`` raised.
    """
    if not releases(session):
        return  # `isolated._run` has no loop
    with anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
        try:
            await guarded("close", session.close)
        finally:
            await guarded("close", session.packs.close)


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Resource:
    """One interface to any of the three shapes: it decodes rows, opens sessions, and lists the tools.

    Args:
        roles: the models that it may ask.
        isolated: verifying happens in a separate process, where no model can be asked.
        review: what looks at an isolated verification's verdict again.
        compare: what judges the rollouts of a group together.
        packs: the tool packs that every session has besides its own tools, by name.

    Raises:
        UsageError: the task of a verify function is not a `Task`, a tool has no schema, two tools have the
            same name, or a parameter names no role.
    """

    def __init__(
        self,
        shape: type[Session[Any]] | VerifyFunction,
        roles: Sequence[Role] = (),
        *,
        isolated: bool = False,
        review: ReviewFunction | None = None,
        compare: CompareFunction | None = None,
        packs: Mapping[str, type[ToolPack]] | None = None,
    ) -> None:
        self.stateless = not isinstance(shape, type)
        self.task_type = task_type(shape)
        self.roles = tuple(roles)
        if isinstance(shape, type):
            self.session_type: type[Session[Any]] = shape
        else:
            self.session_type = _stateless(
                shape, role_parameters(shape, () if isolated else roles, "task", "reply")
            )
        self._review = review and (review, role_parameters(review, roles, "task", "reply", "verdict"))
        self._compare = compare and (compare, role_parameters(compare, roles, "candidates"))
        self._own = collect_tools(self.session_type)
        check_methods(self.session_type)
        self._packs = dict(packs or {})
        packed = ToolPacks(self._packs).tools
        for name in self._own.keys() & packed.keys():
            raise UsageError(f"{self.session_type.__name__} and one of its tool packs have a tool '{name}'")
        self.tools: dict[str, Tool] = {**self._own, **packed}
        self._needs_files = self.task_type.check_assets is not Task.check_assets
        try:
            self._decode = msgspec.json.Decoder(self.task_type, strict=False).decode
        except TypeError as error:
            what = (
                f"{place(self.task_type)}{self.task_type.__name__} has a field that no JSON can be: {error}"
            )
            raise UsageError(what) from error
        fields = msgspec.structs.fields(self.task_type)
        self._defaulted = {field.encode_name for field in fields if not field.required}

    def task(self, row: Raw | bytes, fields: Mapping[str, Raw] | None = None) -> Task:
        """A row as this resource's task; a field that is null gets its default if it has one.

        Args:
            fields: the row's, for a caller that has decoded them.

        Raises:
            TaskError: a field, or one of an item of the input, is missing or has a wrong type; the message
                names it.
        """
        try:
            task = self._decode(self._without_nulls(row, _decode_fields(row) if fields is None else fields))
        except UNREADABLE as error:
            raise TaskError(str(error)) from error
        try:
            decode_items(task.responses_create_params.input_items())
        except UNREADABLE as error:
            raise TaskError(f"'responses_create_params.input': {error}") from error
        return task

    def _without_nulls(self, row: Raw | bytes, fields: Mapping[str, Raw]) -> Raw | bytes:
        kept = {name: value for name, value in fields.items() if name not in self._defaulted or value != NULL}
        return row if len(kept) == len(fields) else _encode(kept)

    async def open(
        self,
        row: Raw | bytes,
        models: Models | None = None,
        *,
        store: Store | None = None,
        restore: Raw | None = None,
    ) -> Session[Any]:
        """A new, open session for a row; if opening fails, its resources are released.

        Args:
            models: the models in its roles.
            store: where it may save parts of its state.
            restore: what a lost session has saved, from which it continues.

        Raises:
            TaskError: the row does not match the task.
            AssetMissing: a file that the row needs is missing.
            ResourceError: the environment could not prepare its state.
        """
        if self._needs_files:
            await guarded("open", anyio.to_thread.run_sync, self.task(row).check_assets)
        session = await self.unopened(row, models)
        session.store = store
        if self._packs:
            session.packs = ToolPacks(self._packs)
        try:
            await guarded("open", session.open)
            if restore is not None:
                saved = msgspec.json.decode(restore)
                if isinstance(session, Episode):
                    saved = await guarded("restore", _go_on, session, saved)
                await guarded("restore", session.on_restore, saved)
        except BaseException:
            with suppress(ResourceError):
                await self.close(session)
            raise
        return session

    async def unopened(self, row: Raw | bytes, models: Models | None = None) -> Session[Any]:
        """A session for a row whose `Session.open` has not run.

        Raises:
            TaskError: the row does not match the task.
            ResourceError: its class could not be made.
        """
        session = await guarded("open", self.session_type, self.task(row))
        if not hasattr(session, "packs"):
            what = f"{type(session).__name__}.__init__ does not call super().__init__(task)"
            raise ResourceError(what, stage="open")
        session.row = bytes(row)
        session.models = models or session.models
        return session

    async def close(self, session: Session[Any]) -> None:
        """As `close_session`."""
        await close_session(session)

    @property
    def saves(self) -> bool:
        """Whether its sessions save their state; not where a role or a tool pack has a part in it."""
        return self.session_type.save is not Session.save and not self.roles and not self._packs

    async def saved(self, session: Session[Any]) -> Raw:
        """What another worker needs to continue with this session; null for nothing.

        Raises:
            ResourceError: it cannot be saved.
        """
        saved = await guarded("save", session.save)
        if isinstance(session, Episode) and saved is not None:
            saved = _with_rewards(session, saved)
        try:
            return Raw(encoded(saved))
        except NOT_JSON as error:
            raise ResourceError(f"what save returned is not JSON: {error}", stage="save") from error

    async def call_tool(self, session: Session[Any], name: str, arguments: str) -> Content:
        """Call a tool; return what the model reads, also if the call is wrong or the tool raised.

        Half a surrogate pair is U+FFFD there: `json` reads such halves out of what a model wrote, and names
        of files have them.
        """
        return whole(await self._called(session, name, arguments))

    async def _called(self, session: Session[Any], name: str, arguments: str) -> Content:
        known = self._own.get(name)
        if known is not None:
            return await known.call(session, arguments)
        if name in session.packs:
            return await session.packs.call(name, arguments)
        try:
            answer = await guarded("tool", session.call_unknown_tool, name, arguments)
        except ResourceError as error:
            if isinstance(error.__cause__, ToolError):
                return refused(name, arguments, str(error.__cause__))
            raise
        if answer is None:
            refused(name, arguments, "there is no such tool")
            return NOT_FOUND
        return answer if isinstance(answer, str) else parts_of(answer)

    async def verify(self, session: Session[Any], response: Raw | bytes | Reply) -> Verdict | Pending:
        """The verdict on a finished rollout, or the features that the comparison of its group needs.

        Args:
            response: a `Reply` if it has been read before: it may be long, and reading it takes its time.

        Raises:
            ResourceError: the verifier raised, its reward is not a finite number, or an episode never began.
        """
        if isinstance(session, Episode) and not session.begun and type(session).verify is Episode.verify:
            # No step was taken: the sum of no steps must not become a reward of 0.
            raise ResourceError(
                f"{type(session).__name__} is an Episode, but its rollout's agent took no step; "
                "use an agent that does: agent='step_loop'",
                stage="verify",
            )
        reply = response if isinstance(response, Reply) else Reply(response)
        verdict = await guarded("verify", session.verify, reply)
        return self.judgement(verdict)

    def judgement(self, found: object) -> Verdict | Pending:
        """Check what a verifier returned: a `Verdict` with finite rewards, or `Pending`.

        Raises:
            ResourceError: it is neither, or `Pending` where the environment has no ``compare``.
        """
        if isinstance(found, Pending):
            if self._compare is None:
                raise ResourceError(
                    "verify returned Pending, and its environment has no compare: Environment(compare=…)",
                    stage="verify",
                )
            return found
        return returned(found, Verdict, "verify").checked()

    async def compare(
        self, row: Raw | bytes, candidates: Sequence[Candidate], models: Models
    ) -> list[ComparedVerdict]:
        """The verdicts on the rollouts of a group, in their order.

        Raises:
            TaskError: the row does not match the task.
            ResourceError: the environment's ``compare`` raised, or did not return a verdict for each.
        """
        if self._compare is None:
            raise ResourceError("the environment has no compare", stage="compare")
        compare, roles = self._compare
        given = Candidates(self.task(row), candidates)
        found = cast("object", await guarded("compare", compare, given, *_asked(roles, models)))
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise no_verdicts(f"{found!r}; it must return a list of Verdicts")
        verdicts = list(cast("Sequence[object]", found))
        if len(verdicts) != len(candidates):
            raise no_verdicts(f"{len(verdicts)} verdicts for {len(candidates)} candidates")
        return [compared(one, of.rollout_index) for one, of in zip(verdicts, candidates, strict=True)]

    async def review(
        self, row: Raw | bytes, response: Raw | bytes, verdict: Verdict | Pending, models: Models
    ) -> Verdict | Pending:
        """The verdict of an isolated verification after the second look at it, if the environment takes one.

        Raises:
            GymError: as `verify`.
        """
        if isinstance(verdict, Pending):
            return self.judgement(verdict)
        if self._review is None:
            return verdict
        review, roles = self._review
        second = await guarded(
            "verify", review, self.task(row), Reply(response), verdict, *_asked(roles, models)
        )
        return returned(second, Verdict, "review").checked()

    async def reset(self, session: Episode[Any]) -> list[Raw]:
        """An episode's first observation, as items."""
        session.begun = True
        return observed(await guarded("reset", session.reset), "reset")

    def offered_tools(self, session: Episode[Any]) -> list[Raw]:
        """The tools that an episode offers in addition to its row's; known after `reset`."""
        return [Raw(msgspec.json.encode(offered)) for offered in session.offered_tools]

    async def step(self, session: Session[Any], response: Reply | Raw | bytes) -> StepAnswer:
        """One step of an episode.

        Raises:
            ResourceError: the environment is not an `Episode`, or its step raised.
        """
        if not isinstance(session, Episode):
            raise ResourceError(f"{type(session).__name__} is not an Episode: it has no steps", stage="step")
        session.begun = True
        reply = response if isinstance(response, Reply) else Reply(response)
        step = returned(await guarded("step", session.step, reply), Step, "step").checked()
        session.total_reward += step.reward
        session.last_info = step.info
        outputs = [
            tool_output(call_id, whole(output if isinstance(output, str) else parts_of(output)))
            for call_id, output in step.tool_outputs.items()
        ]
        return StepAnswer(
            items=outputs + observed(step.observation, "step"),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            tools=[Raw(msgspec.json.encode(offered)) for offered in step.tools],
        )


_EPISODE, _STATE = "_gym_episode", "_gym_state"
"""In what an episode has saved: its rewards so far; and its state, where that is no object."""


def _with_rewards(session: Episode[Any], saved: object) -> dict[str, Any]:
    # Within the object, which a worker of an earlier version can read, too.
    own = cast("dict[str, Any]", saved) if isinstance(saved, dict) else {_STATE: saved}
    return {_EPISODE: [session.total_reward, session.last_info], **own}


def _go_on(session: Episode[Any], saved: object) -> object:
    """Continue an episode's rewards; the state that its author has saved."""
    session.begun = True
    # A state of an earlier version has none, and may be no object.
    if not isinstance(saved, dict):
        return saved
    own = cast("dict[str, Any]", saved)
    if _EPISODE in own:
        session.total_reward, session.last_info = own.pop(_EPISODE)
    return own.get(_STATE, own)


def _stateless(verify: VerifyFunction, roles: Sequence[Role]) -> type[Session[Any]]:
    class Stateless(Session[Any]):
        async def verify(self, reply: Reply) -> Verdict | Pending:
            verdict = verify(self.task, reply, *_asked(roles, self.models))
            return await verdict if inspect.isawaitable(verdict) else verdict

    return Stateless


def _asked(roles: Sequence[Role], models: Models) -> list[Model | None]:
    """The models in some roles; None for an optional role without a model.

    Raises:
        ResourceError: a required role has no model.
    """
    found = [models.get(role.name) for role in roles]
    for role, model in zip(roles, found, strict=True):
        if model is None and not role.optional:
            raise ResourceError(f"no model is given for the role '{role.name}'", stage=role.name)
    return found
