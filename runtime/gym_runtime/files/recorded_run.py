"""A run whose rollouts are written to files, and which goes on with what its files have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gym_runtime import __version__, clock
from gym_runtime.files.benchmark_scores import benchmark_scores
from gym_runtime.files.manifest import Manifest
from gym_runtime.files.profile import reward_profiles
from gym_runtime.files.results import OutputFiles, write_whole
from gym_runtime.files.resume import start_run
from gym_runtime.files.run_metrics import Metrics, Summary
from gym_runtime.files.run_plan import RunPlan


class RecordedRun:
    """A run and its files. Hold the `Lock` of ``files.rollouts`` from before this is made until it is over.

    Args:
        run: its id; of a run that is resumed, the one in its manifest.
        model: ``PROVIDER/NAME``, or the pool that serves the model.
        settings: what else changes results, such as the models in roles; all of it must be the same when the
            run is resumed.
        notes: what may change between its parts. Never a secret.
        resume: go on with the rows that are there; without files it is a new run.
        extend: a run that is resumed may have more rows and repeats than before.
        retry_failed: failures of a run that is resumed that are final otherwise are made again.
        overwrite: the files of an earlier run are removed.

    Attributes:
        run: as given, or another id if the part that was interrupted has left nothing on the broker.
        progress: what has been made already.
        metrics: over all rollouts that are settled, those of earlier parts included.

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
    ) -> None:
        self.plan, self.run, self.model = plan, run, model
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
        self.progress = start_run(
            self.files,
            self.manifest,
            resume=resume,
            extend=extend,
            retry_failed=retry_failed,
            overwrite=overwrite,
            metrics=self.metrics,
            dataset=plan.dataset,
            tasks=lambda: plan.specs(run, attached=True),
        )

    @property
    def missing(self) -> int:
        """How many rollouts are still to be made."""
        return self.manifest.rollouts - len(self.progress)

    def rename(self, run: str) -> None:
        """Go on under another id."""
        self.run = run
        msgspec.structs.replace(self.manifest, run=run).save(self.files.manifest)

    def summarize(self) -> Summary:
        """Write what the run comes to so far: metrics, profiles of the rewards, counts in the manifest.

        Raises:
            UsageError: the disk is full or broken.
        """
        files, metrics = self.files, self.metrics
        metrics.scores = benchmark_scores(files.rollouts, metrics.agents)
        summary = metrics.summary()
        msgspec.structs.replace(self.manifest, run=self.run, counts=summary.outcomes).save(files.manifest)
        write_whole(files.aggregate_metrics, metrics.aggregate())
        if files.materialized_inputs.exists():  # a run that is interrupted before its first row has none
            write_whole(files.reward_profiling, reward_profiles(files.materialized_inputs, metrics))
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
        "return_token_ids": settings.return_tokens,
        "settings": None,
    }
