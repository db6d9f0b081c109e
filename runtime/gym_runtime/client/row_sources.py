"""Rows become the rollouts of a new run: numbered, with settings that were checked before anything starts."""

from __future__ import annotations

import tempfile
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any

import anyio
import msgspec
from anyio import to_thread

from gym_runtime import clock
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import NOT_JSON, UNREADABLE, TaskError, UsageError
from gym_runtime.files.dataset import Dataset, Source, open_dataset
from gym_runtime.files.recorded_run import RunPlan
from gym_runtime.files.rows import Numbering, check_sampling, expand, note_seed, whole_groups
from gym_runtime.logs import logger
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo, new_run_id
from gym_runtime.rpc.ask import NO_WORKER_GRACE_S
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.workers.adapter import ModelSettings

POLICY = "policy"
"""The pool of the policy, which may also answer in a role."""
APPEAR_S = 5.0
"""How long a worker may take to appear: a lost worker is being restarted."""
APPEAR_LOOK_S = 0.2
"""How often to look for the worker meanwhile."""

TASK_INDEX = "_ng_task_index"
AnyRow = Mapping[str, Any] | bytes | str
Declared = Mapping[str, LoadedEnvironment]
"""Environments whose code is elsewhere, by their names."""
Workers = Callable[[], Awaitable[list[Heartbeat]]]
Started = Mapping[str, Sequence[str]]
"""What workers serve: the names of each kind, ``agent`` and ``environment``."""


def line(row: AnyRow, position: int = 1) -> bytes:
    """A row, the one at this position from 1 on, as JSON.

    Raises:
        TaskError: it cannot be JSON.
    """
    if isinstance(row, bytes):
        return row
    try:
        return row.encode() if isinstance(row, str) else msgspec.json.encode(row)
    except NOT_JSON as error:
        raise TaskError(f"row {position} is no JSON, neither as a mapping nor as text: {error}") from error


class _Numbered(msgspec.Struct, frozen=True):
    task_index: Any = msgspec.field(name=TASK_INDEX, default=None)


_decode_number = msgspec.json.Decoder(_Numbered).decode


def _own_index(row: AnyRow) -> int:
    """A row's own number; -1 if it brings none, or cannot be read."""
    try:
        found = row.get(TASK_INDEX) if isinstance(row, Mapping) else _decode_number(row).task_index
    except (*UNREADABLE, TypeError):  # no text either: refused where it is read
        return -1
    return found if isinstance(found, int) else -1


class RowSources:
    """Rows on their way into rollouts.

    Args:
        keys: the caller's name for each row; None for no names.
        remembered: keep each row until `take` is called for its task. Without this a stream of rows takes no
            memory, and `take` may not be called.

    Attributes:
        listed: all rows are known from the start.
        apart: each row is its own task: those with keys, and those of a stream that are remembered, of which
            one may come again before its group is complete.
    """

    def __init__(
        self, rows: Iterable[AnyRow], keys: Iterable[Any] | None = None, *, remembered: bool
    ) -> None:
        self.listed = isinstance(rows, Sequence)
        self.apart = keys is not None or (remembered and not self.listed)
        self._rows, self._keys, self._remembered = rows, keys, remembered
        self._present: tuple[AnyRow, Any] = b"", None
        self._of_task: dict[int, tuple[AnyRow, Any]] = {}

    @property
    def own_index(self) -> int:
        """The largest ``_ng_task_index`` of a list's rows that counts; -1 if none does."""
        rows = self._rows if self.listed and not self.apart else ()
        return max(map(_own_index, rows), default=-1)

    def lines(self) -> Iterator[bytes]:
        """The rows as JSON.

        Raises:
            UsageError: there are not as many keys as rows.
        """
        rows, named = self._rows, self._keys
        if isinstance(rows, Sequence) and isinstance(named, Sequence) and len(named) > len(rows):
            raise UsageError(f"keys has {len(named)} entries for {len(rows)} rows: give one for each row")
        keys = repeat(None) if self._keys is None else iter(self._keys)
        for position, row in enumerate(self._rows, 1):
            try:
                # Set before the line is yielded: `noting` reads it while this generator is suspended there.
                self._present = row, next(keys)
            except StopIteration:
                raise UsageError("keys has fewer entries than rows: give one for each row") from None
            yield line(row, position)

    def noting(self, specs: Iterable[RolloutSpec]) -> Iterator[RolloutSpec]:
        """The specs made of the lines, each row's before the next row is read."""
        for spec in specs:
            if self._remembered:
                # `setdefault`: rows with the same text are one task, whose first row counts.
                self._of_task.setdefault(spec.task_index, self._present)
            yield spec

    def take(self, task_index: int) -> tuple[AnyRow, Any]:
        """The row of a task whose group is complete, and its key; both are forgotten now."""
        return self._of_task.pop(task_index)


class NewRuns:
    """Builds new runs: settings, rollouts, and the description for others.

    Args:
        workers: the workers that are alive.
        declared: what an environment declares, or all of them, where the modules are elsewhere.
        roles: which pool serves which role, where the settings of rollouts do not say.

    Attributes:
        served: the model that `connect` has started as the pool ``policy``, if it has.
        started: the names of the agents and of the environments that the system has, where `connect` has
            started all of its workers.
    """

    def __init__(
        self,
        workers: Workers,
        declared: Callable[[str | None], Awaitable[Declared]],
        roles: Mapping[str, str],
    ) -> None:
        self.served: ModelSettings | None = None
        self.started: Started | None = None
        self._workers, self._declared, self._roles = workers, declared, roles

    async def settings(self, asked: RolloutSettings) -> RolloutSettings:
        """The settings of a run, checked.

        Raises:
            UsageError: the sampling is wrong, or there is no such agent.
        """
        check_sampling(asked.sampling)
        agent = asked.agent and catalogue.known_name("agents", asked.agent)
        if agent and self.started is None and not catalogue.is_known("agents", agent):
            workers = await self._workers()
            served = sorted({name for one in workers if one.kind == "agent" for name in one.pools})
            # Without any agent worker nothing is known: a platform may start one when a task waits.
            if served and agent not in served:
                there = catalogue.unknown(agent, served)
                raise UsageError(f"there is no agent '{agent}'{there}; name your own by its file")
        return replace(asked, agent=agent, roles={**self._roles, **asked.roles})

    def info(self, settings: RolloutSettings, environment: str | None = None) -> RunInfo:
        """The description, for others, of a new run whose rows are not known yet."""
        model = settings.model_pool
        if self.served is not None and model == POLICY:
            model = f"{self.served.provider}/{self.served.name}"
        return RunInfo(
            run=new_run_id(),
            total=0,
            environments=[catalogue.known_name("environments", environment)] if environment else [],
            created_s=clock.now(),
            model=model,
            repeats=settings.repeats if isinstance(settings.repeats, int) else 1,
            share=settings.share,
            priority=settings.priority,
        )

    async def of_rows(
        self, sources: RowSources, asked: RolloutSettings, environment: str | None
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """The rollouts of a new run, and its description for others.

        Raises:
            TaskError, UsageError: a row, a name or a value is wrong; the rows of a list are all checked now.
        """
        chosen = await self.settings(asked)
        info = self.info(chosen, environment)
        declared = await self._declared(environment)
        specs = sources.noting(
            expand(
                sources.lines(),
                chosen,
                run=info.run,
                environment=environment,
                attached=True,
                numbering=Numbering(1 + sources.own_index, apart=sources.apart),
                declared=declared,
            )
        )
        # An agent that the caller names may ask roles which no environment declares.
        named = () if chosen.agent else tuple({**asked.roles, **asked.role_sampling})
        repeats = chosen.repeats or 1
        if not isinstance(repeats, int):
            # A batch of a trainer need not have rows of each environment that it names.
            for name in repeats:
                if name not in declared and not catalogue.is_known("environments", name):
                    near = catalogue.suggest(name, catalogue.names("environments"), "environments")
                    raise UsageError(f"repeats: there is no environment '{name}'{near}")
            repeats = max(repeats.values(), default=1)
        note_seed(chosen, repeats)
        if not sources.listed:
            require_declared(named, info.environments, declared)
            return await self.served_only(specs), info
        listed = whole_groups(list(specs))
        require_declared(named, {spec.environment for spec in listed}, declared)
        listed = list(await self.served_only(listed))
        return listed, msgspec.structs.replace(
            info,
            total=len(listed),
            environments=sorted({spec.environment for spec in listed}),
            agents=sorted({spec.agent for spec in listed}),
            tasks=1 + max((spec.task_index for spec in listed), default=-1),
        )

    async def plan(self, dataset: Dataset, asked: RolloutSettings) -> RunPlan:
        """The plan of a new run of a dataset.

        Raises:
            UsageError: as `settings` and `RunPlan.require_runnable`, or no environment has a role.
        """
        plan = RunPlan(dataset, await self.settings(asked))
        plan.require_runnable()
        if plan.settings.agent is None:
            known = {name: dataset.environment(name) for name in dataset.environments}
            require_declared(tuple({**asked.roles, **asked.role_sampling}), known, known)
        return plan

    async def of_dataset(
        self, dataset: Dataset, asked: RolloutSettings
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """As `of_rows`, of a dataset that is open."""
        plan = await self.plan(dataset, asked)
        named = self.info(plan.settings)
        await self.served_only(plan.one_of_each())
        specs = self.startable(plan.specs(named.run, attached=True))
        return specs, plan.info(named.run, plan.rollouts, named.model)

    def startable(self, specs: Iterable[RolloutSpec], *, agents: bool = True) -> Iterator[RolloutSpec]:
        """The rollouts, refused if the system that `connect` has started lacks their environment or agent.

        Args:
            agents: False for sessions, which need none.

        Raises:
            UsageError: with the names that it has; when the rollout is read.
        """
        for spec in specs:
            for kind, name in (("environment", spec.environment), ("agent", spec.agent))[: 1 + agents]:
                if self.started is not None and name not in (has := self.started[kind]):
                    raise UsageError(
                        f"this client's workers have no {kind} '{name}'{catalogue.unknown(name, has)}; "
                        f"connect({kind}s=[…]) says what they serve"
                    )
            yield spec

    async def served_only(self, specs: Iterable[RolloutSpec]) -> Iterable[RolloutSpec]:
        """The rollouts, refused if no worker serves what they need: of a list all are looked at now, of a
        stream the first one.

        A missing worker of a role has `APPEAR_S` seconds to appear. A role that a stream asks for later
        fails by itself. If no worker serves the model that the settings name, a warning says so: one may be
        started later. Another names workers that have different code of an environment.

        Raises:
            UsageError: as `startable`, or no worker serves the pool of a role.
        """
        remaining = self.startable(specs)
        first = list(islice(remaining, None if isinstance(specs, Sequence) else 1))
        wanted = {pool for spec in first for pool in spec.roles.values()}
        served = await _served(self._workers, wanted) if wanted else wanted
        asked = {spec.model for spec in first} - {POLICY}
        # Files of the user, which a colleague may have, too, and have changed.
        named = {spec.environment for spec in first}
        files = {name for name in named if catalogue.address(name) != name}
        if self.started is None and (asked or files):
            workers = await self._workers()
            for problem in (*unserved(workers, models=asked), *differing(workers, files)):
                logger().warning(problem)
        for spec in first:
            for role, pool in spec.roles.items():
                if pool not in served:
                    raise UsageError(
                        f"environment '{spec.environment}' asks a model in the role '{role}', and no worker "
                        f"serves model '{pool}': connect(roles={{'{role}': 'PROVIDER/NAME'}}, …), or start "
                        f"one with: gym-runtime start model:{pool} --model PROVIDER/NAME"
                    )
        return chain(first, remaining)

    @asynccontextmanager
    async def dataset(
        self, rows: Iterable[AnyRow] | Dataset, environment: str | None
    ) -> AsyncGenerator[Dataset]:
        """Rows as a dataset, which is closed when the context ends; one that is open stays open."""
        if isinstance(rows, Dataset):
            yield rows
            return
        declared = await self._declared(environment)
        # In a thread: the rows may come from a slow generator of the caller.
        with await to_thread.run_sync(_spooled, rows, environment, declared) as dataset:
            yield dataset


def _spooled(rows: Iterable[AnyRow], environment: str | None, declared: Declared) -> Dataset:
    """Rows as a dataset, through a temporary file that ends with this call; the dataset keeps it open."""
    with tempfile.NamedTemporaryFile(prefix="gym-runtime-", suffix=".jsonl") as file:
        for position, row in enumerate(rows, 1):
            # A row may be JSON text over several lines; within its strings line breaks are escaped.
            file.write(line(row, position).replace(b"\n", b" ") + b"\n")
        file.flush()
        return open_dataset(Source(file.name, environment, "rows"), declared=declared)


# -- checks before anything starts ------------------------------------------------------------------------


def served_model(workers: Iterable[Heartbeat], pool: str) -> ModelSettings | None:
    """The model that workers serve under a name; None if no worker does."""
    for worker in workers:
        if worker.kind == "model" and pool in worker.pools and not worker.draining:
            return ModelSettings.parse(worker.detail.get("model", ""))
    return None


def unserved(
    workers: Iterable[Heartbeat],
    *,
    agents: Iterable[str] = (),
    environments: Iterable[str] = (),
    models: Iterable[str] = (),
) -> list[str]:
    """One line for each name that rollouts ask for and no worker serves now, or whose code differs."""
    workers, environments = list(workers), list(environments)
    served: dict[str, set[str]] = {}
    for worker in workers:
        served.setdefault(worker.kind, set()).update(worker.pools)
    fails = f"{NO_WORKER_GRACE_S:.0f} s at each attempt, then fails"
    lines: list[str] = []
    for kind, noun, names, waits in (
        ("agent", "agent", agents, "until one does"),
        ("resource", "environment", environments, fails),
        ("model", "model", models, fails),
    ):
        there = sorted(served.get(kind, ()))
        for name in names:
            if name not in there:
                others = catalogue.suggest(name, there)
                if kind == "model" and there:  # no list that is known elsewhere has their names
                    others = catalogue.unknown(name, there)
                start = kind if name == POLICY else f"{kind}:{name}"
                lines.append(
                    f"no worker serves {noun} '{name}' now; what asks for it waits {waits}: "
                    f"gym-runtime start {start}{others}"
                )
    return [*lines, *differing(workers, environments)]


def differing(workers: Iterable[Heartbeat], environments: Container[str]) -> list[str]:
    """One line for each of these environments that workers serve with different code: either judges."""
    first: dict[str, dict[str, Heartbeat]] = {}
    for worker in workers:
        for name, _, code in (said.partition("=") for said in worker.detail.get("code", "").split()):
            if name in environments:
                first.setdefault(name, {}).setdefault(code, worker)
    lines: list[str] = []
    for name, codes in first.items():
        if len(codes) > 1:
            places = " and ".join(f"{worker.worker} ({worker.host})" for worker in codes.values())
            lines.append(
                f"environment '{name}' has different code on {places}; each rollout is judged by one or the "
                "other: 'gym-runtime drain WORKER' removes one, --prefix keeps systems apart"
            )
    return lines


def require_roles(environments: Sequence[str], given: Container[str], remedy: Callable[[str], str]) -> None:
    """Refuse environments whose roles have no model.

    Args:
        given: the roles that have one.
        remedy: what to say of a role that has none.

    Raises:
        UsageError: a role that is not optional has none.
    """
    for name in environments:
        loaded = catalogue.environment(name)
        for role in loaded.definition.declared_roles:
            if not role.optional and role.name not in given:
                raise UsageError(
                    f"environment '{loaded.name}' asks a model in the role '{role.name}', "
                    f"and none is given: {remedy(role.name)}"
                )


def require_declared(
    named: Sequence[str], environments: Iterable[str], known: Mapping[str, LoadedEnvironment] | None = None
) -> None:
    """Refuse roles that none of some environments has. Without environments nothing is known of them.

    Args:
        known: environments whose code is elsewhere, by their names.

    Raises:
        UsageError: a role was named that no environment has; with those that they have.
    """
    elsewhere = known or {}
    loaded = [(elsewhere.get(name) or catalogue.environment(name)).definition for name in environments]
    declared = {role.name for definition in loaded for role in definition.declared_roles}
    unknown = [name for name in named if name not in declared] if loaded else []
    if unknown:
        near = catalogue.nearest(unknown[0], sorted(declared))
        there = f"they have: {', '.join(sorted(declared))}" if declared else "they ask no models in roles"
        raise UsageError(
            f"no environment of this run has the role '{unknown[0]}'; "
            + (f"did you mean '{near}'?" if near else there)
        )


async def _served(workers: Workers, wanted: set[str]) -> set[str]:
    """The pools that model workers serve, once they include the wanted ones or the time is over."""
    served = set[str]()
    with anyio.move_on_after(APPEAR_S):
        while True:
            served = {pool for one in await workers() if one.kind == "model" for pool in one.pools}
            if wanted <= served:
                break
            await anyio.sleep(APPEAR_LOOK_S)
    return served
