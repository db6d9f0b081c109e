"""The scores of a run's benchmarks, computed from its rows as the benchmarks' authors do."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import Benchmark, ScoredRollout
from gym_runtime.errors import UsageError

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_ref = msgspec.json.Decoder(dict[str, Any]).decode
_decode = msgspec.json.Decoder().decode


def benchmark_scores(rollouts: Path, agents: Iterable[str]) -> dict[str, dict[str, float]]:
    """The scores of benchmarks by their names in ``agent_ref``, where there is a rollout with a verdict.

    Args:
        rollouts: a run's rows; read only if there is a benchmark among the agents.
        agents: the names that the rows refer to.
    """
    benchmarks = {agent: found for agent in agents if (found := _benchmark(agent))}
    scored: dict[str, list[ScoredRollout]] = {}
    if benchmarks and rollouts.exists():
        with rollouts.open("rb") as file:
            for line in file:
                _take(line, benchmarks, scored)
    return {agent: dict(benchmarks[agent].score(found)) for agent, found in scored.items()}


def _take(line: bytes, benchmarks: dict[str, Benchmark], scored: dict[str, list[ScoredRollout]]) -> None:
    row = _decode_fields(line)
    agent = _decode_ref(row["agent_ref"])["name"]
    if agent in benchmarks:
        wanted = benchmarks[agent].fields
        fields = {name: _decode(row[name]) if name in row else None for name in wanted}
        task_index, reward = _decode(row["_ng_task_index"]), _decode(row["reward"])
        scored.setdefault(agent, []).append(ScoredRollout(task_index, reward, fields))


def _benchmark(agent: str) -> Benchmark | None:
    with suppress(UsageError):  # rows of an environment that is not installed here
        name = catalogue.resolve_agent_ref(agent)
        return catalogue.known_environment(name).definition.benchmark
    return None
