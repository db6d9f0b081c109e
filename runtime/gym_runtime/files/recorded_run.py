"""A run whose rollouts are written to files: its plan, its files, and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime import __version__, clock
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import Benchmark, Environment, ScoredRollout
from gym_runtime.environment.settings import require_harnesses
from gym_runtime.errors import UsageError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.results import Manifest, OutputFiles, load_manifest
from gym_runtime.files.resume import start_run
from gym_runtime.files.rows import alone, expand, note_seed, required_roles
from gym_runtime.files.run_metrics import Metrics, Summary
from gym_runtime.files.sample import samples_of
from gym_runtime.files.scores import percent, repeat_means
from gym_runtime.files.stored_images import Images, remove_images
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.statistics import deviation


class RecordedRun:
    """A run and its files. Hold the `Lock` of ``files.rollouts`` from before its creation to its end.

    Args:
        run: its id; of a run that is resumed, the one in its manifest.
        model: ``PROVIDER/NAME``, or the pool that serves the model.
        settings: what else changes results, such as the models in roles; all of it must be the same when the
            run is resumed.
        notes: what may change between its parts. Never a secret.
        resume: go on with the rows in the files; without files it is a new run.
        extend: a run that is resumed may have more rows and repeats than before.
        retry_failed: rollouts of a resumed run whose failure would be final are run again.
        overwrite: the files of an earlier run are put aside; `begin` removes them, `withdraw` puts them back.

        images: how images are stored in rows.

    Attributes:
        run: as given, or another id if the part that was interrupted has left nothing on the broker.
        progress: the rollouts that are done already.
        metrics: over all rollouts that are settled, those of earlier parts included.
        superseded: a run without a row was to be resumed, and its rows or settings differ.

    Raises:
        UsageError: as `start_run`; nothing was changed.
    """

    def __init__(
        self,
        plan: RunPlan,
        output: str | Path,
        *,
        run: str,
        model: str,
        settings: Mapping[str, Any] | None = None,
        notes: Mapping[str, Any] | None = None,
        resume: bool = False,
        extend: bool = False,
        retry_failed: bool = False,
        overwrite: bool = False,
        failures_as_zero: bool = False,
        images: Images = "inline",
    ) -> None:
        self.plan, self.run, self.model = plan, run, model
        self.images: Images = images
        self.files = OutputFiles.beside(output)
        self.metrics = Metrics(failures_as_zero=failures_as_zero)
        self.manifest = Manifest(
            run=run,
            digest=plan.dataset.digest,
            rows=plan.dataset.rows,
            rollouts=plan.rollouts,
            settings={**_settings(plan, model), **(settings or {})},
            notes=dict(notes or {}),
            started_s=clock.now(),
            version=__version__,
        )
        self._overwrites = overwrite
        resumed = resume and load_manifest(self.files.manifest) is not None
        self.progress = start_run(
            self.files,
            self.manifest,
            resume=resume,
            earlier_digest=plan.dataset.earlier_digest if extend else None,
            retry_failed=retry_failed,
            overwrite=overwrite,
            metrics=self.metrics,
            tasks=lambda: plan.specs(run, attached=True),
        )
        self.superseded = resumed and self.progress.previous is None

    @property
    def missing(self) -> int:
        """How many rollouts are still to be run."""
        return self.manifest.rollouts - len(self.progress)

    def rename(self, run: str) -> None:
        """Go on under another id."""
        self.run = run
        msgspec.structs.replace(self.manifest, run=run).save(self.files.manifest)

    def note_end(self, info: RunInfo) -> None:
        """The run is over; the manifest will say who cancelled it, if it was cancelled."""
        self.manifest = msgspec.structs.replace(
            self.manifest, cancelled_by=info.cancelled_by, cancelled_s=info.cancelled_s
        )

    def begin(self) -> None:
        """The run has started: files that it overwrites are removed."""
        if self._overwrites:
            self.files.drop_aside()
            remove_images(self.files.rollouts)
        self._overwrites = False

    def withdraw(self) -> None:
        """The run could not start: remove its manifest if nothing else has been written, and put back the
        files that it would have overwritten.
        """
        if self.progress.previous is None and not any(
            path.exists() and path.stat().st_size for path in self.files.all() if path != self.files.manifest
        ):
            self.files.manifest.unlink(missing_ok=True)
            self.files.put_back()

    def summarize(self) -> Summary:
        """Write the run's results so far: metrics, and counts in the manifest.

        Raises:
            UsageError: the disk is full or broken.
        """
        files, metrics = self.files, self.metrics
        metrics.scores = benchmark_scores(files.rollouts, metrics.agents)
        summary = metrics.summary()
        msgspec.structs.replace(self.manifest, run=self.run, counts=summary.outcomes).save(files.manifest)
        write_whole(files.aggregate_metrics, metrics.aggregate())
        files.reward_profiling.unlink(missing_ok=True)  # of an earlier part: `gym-runtime profile` writes it
        return summary


def _settings(plan: RunPlan, model: str) -> dict[str, Any]:
    """What changes results, as far as the rollouts' settings say it, in the manifest's order."""
    settings, repeats = plan.settings, plan.repeats
    return {
        "environments": dict(plan.dataset.environments),
        "agent": settings.agent,
        "agent_options": settings.agent_options or None,
        "model": model,
        "model_options": {},
        "roles": dict(settings.roles) or None,
        "role_sampling": settings.role_sampling or None,
        "sampling": settings.sampling,
        "repeats": repeats if len(set(repeats.values())) > 1 else max(repeats.values()),
        "limit": None,
        "shuffle_seed": None,
        "seed_repeats": settings.seed_repeats,
        "max_turns": settings.max_turns,
        "return_token_ids": settings.return_token_ids,
        "skip_verification": settings.skip_verification,
        "settings": None,
    }


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


def benchmark_scores(rollouts: Path, agents: Iterable[str]) -> dict[str, dict[str, float]]:
    """The scores of benchmarks by their names in ``agent_ref``, where there is a rollout with a verdict.

    Args:
        rollouts: a run's rows; read only if there is a benchmark among the agents.
        agents: the names that the rows refer to.
    """
    benchmarks = {agent: found for agent in agents if (found := _benchmark(agent))}
    scored: dict[str, list[ScoredRollout]] = {}
    done = KeyCounts()
    for sample, line, _ in samples_of(rollouts) if benchmarks else ():
        # As in the means: of a rollout's rows the first counts.
        again = done.increase(*sample.key) > 1
        row = _decode_fields(line)
        if again or sample.reward is None or sample.agent not in benchmarks or "verification_skipped" in row:
            continue
        fields = {name: _decode(row.get(name, b"null")) for name in benchmarks[sample.agent].fields}
        rollout = ScoredRollout(sample.task_index, sample.reward, fields, sample.rollout_index)
        scored.setdefault(sample.agent, []).append(rollout)
    return {
        agent: {**benchmarks[agent].score(found), **over_repeats(found)} for agent, found in scored.items()
    }


def over_repeats(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """How far the repeats of a benchmark differ: the sample standard deviation of their mean rewards, in
    percent; nothing for a single repeat.

    Each repeat counts with the tasks that have a verdict in it.

    >>> over_repeats([ScoredRollout(0, 1.0), ScoredRollout(0, 0.0, rollout_index=1)])
    {'spread over repeats': 70.71067811865476}
    """
    means = repeat_means((one.rollout_index, one.reward) for one in rollouts)
    spread = percent(deviation(means)) if len(means) > 1 else None
    return {} if spread is None else {"spread over repeats": spread}


def _benchmark(agent: str) -> Benchmark | None:
    with suppress(UsageError):  # rows of an environment that is not installed here
        name = catalogue.resolve_agent_ref(agent)
        return catalogue.known_environment(name).definition.benchmark
    return None


@dataclass(frozen=True)
class RunPlan:
    """The rollouts that some settings make of a dataset. The same two give the same rollouts each time."""

    dataset: Dataset
    settings: RolloutSettings

    def specs(self, run: str, *, attached: bool) -> Iterator[RolloutSpec]:
        """The rollouts to run, in the order of the rows.

        Args:
            attached: they stop when their client disappears.
        """
        dataset = self.dataset
        return expand(
            dataset.read(),
            self.settings,
            run=run,
            attached=attached,
            numbering=dataset.numbering(),
            declared=dataset.declared,
        )

    def one_of_each(self) -> list[RolloutSpec]:
        """The first rollout of each environment, to find out what the environment needs."""
        found: dict[str, RolloutSpec] = {}
        for spec in self.specs("looked-at", attached=False):
            found.setdefault(spec.environment, spec)
            if len(found) == len(self.dataset.environments):
                break
        return list(found.values())

    def info(self, run: str, total: int, model: str = "") -> RunInfo:
        """The description of the run that others can read.

        Args:
            total: rollouts to run.
            model: ``PROVIDER/NAME``; by default the pool that serves it.
        """
        agents = self.dataset.agents if self.settings.agent is None else [self.settings.agent]
        return RunInfo(
            run=run,
            total=total,
            environments=sorted(self.dataset.environments),
            agents=sorted(agents),
            created_s=clock.now(),
            model=model or self.settings.model_pool,
            repeats=numbers.pop() if len(numbers := {*self.repeats.values()}) == 1 else 1,
            tasks=self.dataset.tasks,
            share=self.settings.share,
            priority=self.settings.priority,
        )

    @property
    def repeats(self) -> dict[str, int]:
        """The rollouts per row of each environment that the rows are of."""
        return {
            name: self.settings.repeats_of(name, self._definition(name).repeats)
            for name in sorted(self.dataset.environments)
        }

    @property
    def rollouts(self) -> int:
        """How many rollouts the rows make."""
        repeats = self.repeats
        return sum(rows * repeats[name] for name, rows in self.dataset.environments.items())

    @property
    def role_pools(self) -> list[str]:
        """The pools that the rollouts ask in roles."""
        given = self.settings.roles
        pools = set(given.values())
        for name in self.dataset.environments:
            required = required_roles(self._definition(name))
            pools.update(pool for role, pool in required.items() if role not in given)
        return sorted(pools)

    def require_runnable(self) -> None:
        """Refuse rows whose rollouts are to be compared with each other, where each has one; rows for a
        harness that no agent here is named after, unless the run names an agent; and repeats of an
        environment of which there are no rows. Warn of one seed for all rollouts of a row.

        Raises:
            UsageError: there are such rows.
        """
        known, given = sorted(self.dataset.environments), self.settings.repeats
        for name, times in () if given is None or isinstance(given, int) else given.items():
            if name not in known:
                there = catalogue.unknown(name, known)
                raise UsageError(f"--repeats {name}={times}: no row is of this environment{there}")
        if self.settings.agent is None:
            require_harnesses(sorted(self.dataset.harnesses))
        note_seed(self.settings, max(self.repeats.values(), default=1))
        if self.dataset.repeats_rows:
            return
        for name, repeats in self.repeats.items():
            compared = self._definition(name).compare is not None and self.settings.skip_verification is None
            if repeats == 1 and compared:
                raise UsageError(f"{alone(name)} (--repeats N)")

    def _definition(self, name: str) -> Environment:
        return self.dataset.environment(name).definition
