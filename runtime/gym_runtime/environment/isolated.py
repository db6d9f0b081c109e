"""Isolated verification: in sandboxed processes that are killed from outside when they take too long.

Some libraries execute their input; symbolic mathematics and backtracking regular expressions can run for
ever; and both hold the interpreter's lock. So code that evaluates a model's text, or may hang on it, runs in
`gym_sandbox.pool`: no network, no files but the code's own, no environment variables, no privileges, a new
fork for each verification unless the environment lets them share one (`shares_process`). An input that has
killed `DEATHS_AT_MOST` processes is quarantined: this worker refuses it at once from then on.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import msgspec
from gym_sandbox import frames
from gym_sandbox.pool import pool
from gym_sandbox.sandbox_errors import NotPrepared, ProcessDied, SandboxError
from gym_sandbox.verifier import Verifier, verifier
from msgspec import Raw

from gym_runtime.environment import catalogue, examples, requirements
from gym_runtime.environment.author_code import explain, translated, translating
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Models
from gym_runtime.environment.settings import filled
from gym_runtime.environment.verdict import Pending, Reply, Verdict, make_response
from gym_runtime.errors import UNREADABLE, ResourceError, TaskError, UsageError

DEATHS_AT_MOST = 2
REMEMBERED_AT_MOST = 10_000
_MADE_UP = {"id", "call_id"}
_R = TypeVar("_R")
_deaths: OrderedDict[str, int] = OrderedDict()
_loaded: dict[str, Resource] = {}
"""In a fork server: what its forks judge with."""


class _Response(msgspec.Struct, frozen=True):
    output: list[dict[str, msgspec.Raw]]


_decode_output = msgspec.json.Decoder(_Response).decode


async def verify_isolated(
    environment: str, row: bytes, response: bytes, timeout_s: float, folders: Mapping[str, str] | None = None
) -> Verdict | Pending:
    """The verdict of an environment, by its module's path, on a recorded rollout.

    The process opens a session from the row, replays the recorded calls if the session has state, and
    verifies the response. Cancelling kills the process.

    Args:
        timeout_s: seconds of processor time that it may take.
        folders: the folders that the environment reads besides its code: `LoadedEnvironment.asset_folders`.

    Raises:
        ResourceError: it took longer, the process died, the input is quarantined, or the verifier raised.
        TaskError: the row does not match the environment's task.
        UsageError: this machine cannot isolate.
    """
    judging, name = _judging(environment, _present(folders or {}))
    try:
        verdict = await _call(
            judging, _judge, (environment, row, response), timeout_s, name, (row, _said(response))
        )
    except TimeoutError as error:
        raise ResourceError(f"verification took longer than {error}", stage="verify") from error
    return verdict.judgement()


def start_ahead(environments: Iterable[LoadedEnvironment]) -> list[str]:
    """Start the processes of isolated environments before their first verification, all at the same time.

    They import what they need in the background. No process starts if there are more environments than
    may have an idle process.

    Returns:
        The environments whose processes were started.

    Raises:
        ResourceError, UsageError: as `verify_isolated`.
    """
    isolated = [environment for environment in environments if environment.definition.isolated]
    with translating():
        started = pool().start_ahead(
            [_judging(str(one.source), _present(one.asset_folders))[0] for one in isolated]
        )
    return [one.name for one in isolated] if started else []


async def judge_recorded(
    environment: LoadedEnvironment, row: Raw | bytes, response: Raw | bytes, models: Models
) -> Verdict | Pending:
    """The verdict on a recorded rollout as a worker reaches it: isolated if it must be, and reviewed.

    Raises:
        GymError: as `verify_isolated`, or as `gym_runtime.environment.replaying.rejudge`.
    """
    definition, resource = environment.definition, environment.resource
    if not definition.isolated:
        return await rejudge(resource, row, response, models)
    source, limit_s = str(environment.source), definition.verify_timeout_s
    verdict = await verify_isolated(source, bytes(row), bytes(response), limit_s, environment.asset_folders)
    return await resource.review(row, response, verdict, models)


async def run_isolated(
    function: Callable[..., _R],
    *args: object,
    timeout_s: float,
    imports: Sequence[str] = (),
    sources: Sequence[Path] = (),
    folders: Mapping[str, str] | None = None,
) -> _R:
    """Call a module's function in a sandboxed process.

    Its parameters and its result must be annotated with types that msgspec can decode. The process imports
    its module before the time begins.

    Args:
        imports: further modules that are slow to import, to be imported as early; a function that imports
            them where it needs them keeps them out of this process.
        sources: files of modules that are not installed; their folders can be read and imported from.
        folders: further folders that can be read, by the environment variables that name them.

    Raises:
        TimeoutError: it took more than ``timeout_s`` seconds of processor time, and was killed.
        ResourceError: the process could not be started, or the function raised; with the cause `ProcessDied`:
            the process died, or such an input has killed too many of them.
        TaskError, UsageError: the function raised it.
        TypeError: the function is not a module's, so the process cannot import it.
    """
    prepare = _import if imports else None
    calling = verifier(function, prepare, imports, explain=explain, sources=sources, folders=folders)
    return await _call(calling, function, args, timeout_s, function.__name__, args)


async def _call(
    judging: Verifier,
    function: Callable[..., _R],
    args: tuple[object, ...],
    timeout_s: float,
    what: str,
    same: object,
) -> _R:
    """Make a call; ``what`` names the input in errors, and inputs with an equal ``same`` count as one."""
    identity = frames.encode_arguments((judging.start.function, judging.start.arguments, same))
    digest = hashlib.sha256(identity).hexdigest()
    name = f"{what} (sha256 {digest[:12]})"
    if _deaths.get(digest, 0) >= DEATHS_AT_MOST:
        problem = f"quarantined: {name} has killed {DEATHS_AT_MOST} processes"
        raise ResourceError(problem, stage="verify") from ProcessDied(problem)
    try:
        result = await pool().call(judging, frames.encode_arguments(args), timeout_s)
        return cast("_R", frames.result_decoder(function)(result))
    except TimeoutError:
        _count(digest)
        raise
    except ProcessDied as error:
        _count(digest)
        raise ResourceError(f"the process that verified died: {error}", stage="verify") from error
    except NotPrepared as error:
        raise ResourceError(f"no process can be started for {name}: {error}", stage="verify") from error
    except SandboxError as error:
        raise translated(error) from error
    except UNREADABLE as error:
        raise ResourceError(f"the verifier's result cannot be read: {error}", stage="verify") from error


def _present(folders: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, place) for name, place in folders.items() if os.path.isdir(place))


@lru_cache(maxsize=64)  # made for each call, it would cost as much as sending the request
def _judging(environment: str, folders: tuple[tuple[str, str], ...]) -> tuple[Verifier, str]:
    """The verifier of an environment; what its input is called in errors."""
    source = Path(environment)
    judging = verifier(
        _judge, _load, (environment,), explain=explain, sources=(source,), folders=dict(folders)
    )
    return judging, f"a rollout of '{source.stem}'"


def _said(response: bytes) -> bytes:
    """A response's output without the ids that the engine generates and that differ each time."""
    try:
        output = _decode_output(response).output
    except UNREADABLE:
        return response
    return msgspec.json.encode(
        [{name: item[name] for name in item if name not in _MADE_UP} for item in output]
    )


def _count(digest: str) -> None:
    _deaths[digest] = _deaths.pop(digest, 0) + 1
    while len(_deaths) > REMEMBERED_AT_MOST:
        _deaths.popitem(last=False)


def _import(*modules: str) -> None:
    """Runs in the fork server."""
    for module in modules:
        with suppress(ImportError):  # the call itself gives the better error
            importlib.import_module(module)


def _load(environment: str) -> bool:
    """Runs in the fork server; returns whether verdicts may share a fork."""
    loaded = catalogue.environment(environment)
    _loaded[environment] = loaded.resource
    _import(*loaded.definition.imports)
    _rehearse(environment, loaded)
    return loaded.definition.shares_process


def _rehearse(environment: str, loaded: LoadedEnvironment) -> None:
    """Judge the perfect rollouts of the environment's own examples, and answers that are wrong.

    Otherwise each fork would build again what libraries build at their first use, such as parser tables.
    """
    decode = frames.argument_decoder(_judge)
    # No examples, or something is missing, or the code fails on this wrong answer: the verification itself
    # reports it better.
    with suppress(Exception):
        for example in examples.read(loaded):
            for reply in (_run(examples.play, loaded.resource, example), make_response("?")):
                arguments = decode(frames.encode_arguments((environment, example.row, reply)))
                frames.encode_result(_judge(*arguments))


class _Judged(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A verdict, or the features of a `Pending`, on its way out of the fork."""

    reward: float | None = None
    components: dict[str, float] = {}
    fields: dict[str, Any] = {}
    rewards: dict[str, float] = {}
    features: Any = None

    def judgement(self) -> Verdict | Pending:
        if self.reward is None:
            return Pending(self.features)
        return Verdict(self.reward, self.components, self.fields, self.rewards).checked()


def _judge(environment: str, row: bytes, response: bytes) -> _Judged:
    """Runs in the fork."""
    judged = _run(rejudge, _loaded[environment], row, response)
    if isinstance(judged, Pending):
        return _Judged(features=judged.features)
    return _Judged(**msgspec.structs.asdict(judged))


def _run(function: Callable[..., Coroutine[Any, Any, _R]], *args: object) -> _R:
    """Run a coroutine function to its end; in an event loop only if it awaits something.

    Most verifiers await nothing. A loop would add 1.3 ms to the 3.4 ms of a verification by
    ``structured_outputs``, because every page of memory that the fork touches is copied. If the first try
    ends without a result, the function runs again in a loop.
    """
    trial = function(*args)
    try:
        trial.send(None)
    except StopIteration as end:
        return cast("_R", end.value)
    except Exception:  # noqa: BLE001, S110 - the cause may be the missing loop; else the run below raises it again
        pass
    finally:
        trial.close()
    return anyio.run(function, *args)


class Delegate:
    """Another environment, by a name from data, that verifies in place of the asking environment.

    Its rules are used, not its workers: its row fields, its isolated process if it has one, its second look,
    its prompts. Its models in roles are those of the environment that asks.

    Args:
        name: an environment that is installed or that the user has named; never a path.
        row: the rollout's row, with the fields that the other environment wants.
        models: the models of the session that asks.

    Raises:
        TaskError: there is no such environment, it keeps a state (it has tools or steps), or it does not
            accept the row.
        UsageError: its packages are missing, or a role that it needs is not declared or has no model.
    """

    def __init__(self, name: str, row: Raw | bytes, models: Models) -> None:
        try:
            self._environment = catalogue.known_environment(name)
        except UsageError as error:
            raise TaskError(error.message) from error
        if self._environment.definition.shape != "verify":
            raise TaskError(f"'{name}' cannot verify for another environment: it keeps a state")
        requirements.require(self._environment)
        roles = self._environment.resource.roles
        missing = [role.name for role in roles if not role.optional and models.get(role.name) is None]
        if missing:
            raise UsageError(
                f"'{name}' verifies here and asks a model in the role '{missing[0]}', and none is given: "
                f"--role {missing[0]}=PROVIDER/NAME; the environment that asks it must declare the role, too"
            )
        self._models = models.under(roles)
        self._row = filled(self._environment, bytes(row), None)
        self._environment.resource.task(self._row)

    async def verify(self, reply: Reply) -> Verdict:
        """Its verdict on a rollout.

        Raises:
            GymError: as its own verification would.
        """
        verdict = await judge_recorded(self._environment, self._row, reply.raw, self._models)
        if isinstance(verdict, Pending):
            raise TaskError(
                f"'{self._environment.name}' compares whole groups, and cannot verify for another"
            )
        return verdict
