"""What Harbor's own models make of task files: run by Harbor's Python; a line of JSON for each."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from harbor.models.task.config import TaskConfig

warnings.simplefilter("ignore")


def box(one):
    if one is None:
        return None
    health = one.healthcheck
    return {
        "image": one.docker_image,
        "os": one.os.value,
        "build_s": one.build_timeout_sec,
        "cpus": one.cpus,
        "memory_mb": one.memory_mb,
        "storage_mb": one.storage_mb,
        "gpus": one.gpus,
        "network": one.network_mode.value,
        "workdir": one.workdir,
        "skills_dir": one.skills_dir,
        "env": one.env,
        "health": health and [health.command, health.interval_sec, health.timeout_sec, health.retries],
        "servers": [[s.name, s.transport, s.url, s.command, s.args] for s in one.mcp_servers],
    }


def part(one):
    mode = one.network_mode
    return {"timeout_s": one.timeout_sec, "user": one.user, "network": mode and mode.value}


def verifier(one):
    mode = one.environment_mode
    hooks = [[hook.command, hook.service, hook.timeout_sec, hook.user] for hook in one.collect]
    more = {"env": one.env, "mode": mode and mode.value, "box": box(one.environment), "collect": hooks}
    return {**part(one), **more}


def artifacts(listed):
    return [[a, None, []] if isinstance(a, str) else [a.source, a.service, a.exclude] for a in listed]


def values(task):
    strategy = task.multi_step_reward_strategy
    return {
        "environment": box(task.environment),
        "agent": part(task.agent),
        "verifier": verifier(task.verifier),
        "solution": task.solution.env,
        "artifacts": artifacts(task.artifacts),
        "strategy": strategy and strategy.value,
        "steps": [
            {
                "name": step.name,
                "agent": part(step.agent),
                "verifier": verifier(step.verifier),
                "min_reward": step.min_reward,
                "artifacts": artifacts(step.artifacts),
            }
            for step in task.steps or []
        ],
    }


for path in sorted(Path(sys.argv[1]).glob("*.toml")):
    try:
        found, why = values(TaskConfig.model_validate_toml(path.read_text())), ""
    except Exception as error:
        found, why = None, str(error)
    print(json.dumps([path.stem, found, why]))
