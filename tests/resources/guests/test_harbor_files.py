"""300 random ``task.toml`` mean the same here and to Harbor's own models, or are refused by both.

Where one refuses what the other takes, the difference is in `OURS_TAKES` or `OURS_REFUSES`. Harbor is
found as the program ``harbor`` on the PATH; its Python runs ``own/harbor_models.py``.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_resources.harbor_tasks import task_file
from gym_resources.harbor_tasks.task_file import MIB, AgentPart, EnvironmentPart, TaskFile, VerifierPart
from gym_runtime import UsageError
from resources.guests.guest_runs import OWN

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("harbor") is None, reason="put harbor on the PATH"),
]

OURS_TAKES = {
    "task.name": "the name of a task is not read",
    "allowed_hosts": "hosts are not read: an allowlist is no network here",
    "destination": "where Harbor puts an artifact among a trial's files is not read",
    "header": "headers of MCP servers are not read: servers by HTTP are refused later",
}
OURS_REFUSES = {
    "timeout": "no time is 0, negative, infinite or over a week",
    "memory": "no size is 0 or negative",
    "variable": "the name of a variable is letters, digits and _",
    "empty source": "an artifact has a path",
    "step": "the name of a step is letters, digits and _.-, without a dot at the beginning",
}


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return json.dumps(value)
        case _:
            return str(value)


class Draw:
    """Draws a file; ``odd`` has the difference that it was given, if one."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.odd: set[str] = set()

    def one(self, *values: Any) -> Any:
        return self._rng.choice(values)

    def some(self, chance: float = 0.5) -> bool:
        return self._rng.random() < chance

    def seconds(self) -> float:
        if self.some(0.02):
            self.odd.add("timeout")
            return self.one(0.0, -5.0, 1e9)
        return self.one(1.0, 60.0, 30, 0.5, 3600.0)

    def variables(self) -> dict[str, str]:
        given = {self.one("A", "B", "KEY_1"): self.one("x", "${HOST:-none}", "")}
        if self.some(0.03):
            self.odd.add("variable")
            given["not-a-name"] = "x"
        return given

    def user(self) -> Any:
        return self.one("root", "alice", 0, 1000)

    def network(self, made: dict[str, Any]) -> None:
        if self.some():
            made["network_mode"] = self.one("public", "no-network", "allowlist", "allowlist")
        if made.get("network_mode") == "allowlist" and self.some():
            made["allowed_hosts"] = ["example.com", "10.0.0.0/8"]
        elif self.some(0.03):
            self.odd.add("allowed_hosts")
            made |= {"network_mode": "public", "allowed_hosts": ["example.com"]}

    def box(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, values in {
            "docker_image": ("a:1", "localhost/b"),
            "os": ("linux", "Linux", "windows", "linux"),
            "cpus": (1, 2.0, 0.5),
            "gpus": (0, 1),
            "workdir": ("/app", "app"),
            "skills_dir": ("/skills", "skills"),
            "unknown": (1, "x"),
        }.items():
            if self.some(0.3):
                made[name] = self.one(*values)
        for name in ("memory", "storage"):
            if self.some(0.3):
                made[f"{name}_mb"] = self.one(512, 2048)
            elif self.some(0.2):
                made[name] = self.one("2G", "512M", "1.5g", " 4096K ", "2 G", "2GB", "x")
            if self.some(0.02):
                self.odd.add("memory")
                made.pop(name, None)
                made[f"{name}_mb"] = self.one(0, -1)
        if self.some(0.05):
            made |= {"memory": "2G", "memory_mb": self.one(2048, 1)}
        if self.some(0.3):
            made["build_timeout_sec"] = self.seconds()
        if self.some(0.3):
            made["env"] = self.variables()
        if self.some(0.2):
            made["healthcheck"] = {"command": "true", "interval_sec": self.seconds(), "retries": 3}
        if self.some(0.1):
            made["allow_internet"] = self.one(True, False)
        else:
            self.network(made)
        if self.some(0.3):
            made["mcp_servers"] = [self.server() for _ in range(self.one(1, 2))]
        return made

    def server(self) -> dict[str, Any]:
        made = {
            "name": self.one("db", "files"),
            "transport": self.one("sse", "streamable-http", "http", "stdio"),
        }
        if self.some(0.95):
            made |= (
                {"command": "serve", "args": ["-x"]} if made["transport"] == "stdio" else {"url": "http://x"}
            )
        if self.some(0.05) and made["transport"] != "stdio":
            self.odd.add("header")
            made["headers"] = {"Authorization": "Bearer secret"}
        return made

    def agent(self) -> dict[str, Any]:
        made: dict[str, Any] = {"timeout_sec": self.seconds()} if self.some() else {}
        if self.some(0.3):
            made["user"] = self.user()
        self.network(made)
        return made

    def verifier(self) -> dict[str, Any]:
        made = self.agent()
        if self.some(0.3):
            made["env"] = self.variables()
        if self.some(0.3):
            made["environment_mode"] = self.one("shared", "separate", "seperate")
        if self.some(0.2):
            made["environment"] = self.box()
        if self.some(0.2):
            made["collect"] = [{"command": "ls", "service": self.one("main", "db"), "timeout_sec": 5.0}]
        return made

    def artifacts(self) -> list[Any]:
        found: list[Any] = []
        for number in range(self.one(1, 2)):
            path = f"/app/{number}"
            if self.some(0.1):
                path = f"../{number}"
            if self.some(0.03):
                self.odd.add("empty source")
                path = " "
            made: dict[str, Any] = {"source": path, "exclude": ["*.tmp"]}
            if self.some(0.05):
                self.odd.add("destination")
                made["destination"] = "../out"
            found.append(self.one(path, made) if "destination" not in made else made)
        return found

    def file(self) -> dict[str, Any]:
        made: dict[str, Any] = {self.one("version", "schema_version"): self.one("1.0", "1.4")}
        if self.some(0.4):
            name = "own/count"
            if self.some(0.1):
                self.odd.add("task.name")
                name = self.one("count", "a/../b")
            made["task"] = {"name": name}
        for name, draw in {"environment": self.box, "agent": self.agent, "verifier": self.verifier}.items():
            if self.some(0.8):
                made[name] = draw()
        if self.some(0.3):
            made["solution"] = {"env": self.variables()}
        if self.some(0.3):
            made["artifacts"] = self.artifacts()
        if self.some(0.2):
            made["multi_step_reward_strategy"] = self.one("mean", "final", "best")
        if self.some(0.3):
            made["steps"] = [self.step(number) for number in range(self.one(1, 2, 3))]
        return made

    def step(self, number: int) -> dict[str, Any]:
        made: dict[str, Any] = {"name": self.one(f"s{number}", f"s{number}", "same", "SAME")}
        if self.some(0.1):
            made["name"] = self.one("../x", "", ".hidden", "a b")
            if made["name"] in (".hidden", "a b"):
                self.odd.add("step")
        for name, draw in {"agent": self.agent, "verifier": self.verifier}.items():
            if self.some(0.4):
                made[name] = draw()
        if self.some(0.3):
            made["min_reward"] = self.one(1.0, 0.5, {"reward": 1.0, "style": 0.2})
        if self.some(0.2):
            made["artifacts"] = self.artifacts()
        return made


# -- what ours makes of them ----------------------------------------------------------------------------


def box(one: EnvironmentPart | None) -> Any:
    if one is None:
        return None
    health = one.healthcheck
    sizes = {
        name: None if value is None else value // MIB
        for name, value in (("memory_mb", one.memory_bytes), ("storage_mb", one.storage_bytes))
    }
    servers = [
        [s.name, "streamable-http" if s.transport == "http" else s.transport, s.url, s.command, s.args]
        for s in one.mcp_servers
    ]
    return {
        "image": one.docker_image,
        "os": one.os.lower(),
        "build_s": one.build_timeout_sec,
        "cpus": one.cpus,
        **sizes,
        "gpus": one.gpus,
        "network": one.network,
        "workdir": one.workdir,
        "skills_dir": one.skills_dir,
        "env": one.env,
        "health": health and [health.command, health.interval_sec, health.timeout_sec, health.retries],
        "servers": servers,
    }


def part(one: AgentPart | VerifierPart) -> dict[str, Any]:
    return {"timeout_s": one.timeout_sec, "user": one.user, "network": one.network_mode}


def verifier(one: VerifierPart) -> dict[str, Any]:
    hooks = [[hook.command, hook.service, hook.timeout_sec, hook.user] for hook in one.collect]
    more = {"env": one.env, "mode": one.environment_mode, "box": box(one.environment), "collect": hooks}
    return {**part(one), **more}


def artifacts(listed: list[Any]) -> list[Any]:
    return [[a, None, []] if isinstance(a, str) else [a.source, a.service, a.exclude] for a in listed]


def values(task: TaskFile) -> dict[str, Any]:
    return {
        "environment": box(task.environment),
        "agent": part(task.agent),
        "verifier": verifier(task.verifier),
        "solution": task.solution.env,
        "artifacts": artifacts(task.artifacts),
        "strategy": task.multi_step_reward_strategy,
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


def test_300_files_mean_the_same_to_harbor(tmp_path: Path) -> None:
    odd: dict[str, set[str]] = {}
    for seed in range(300):
        draw = Draw(seed)
        lines = [f"{name} = {toml(value)}" for name, value in draw.file().items()]
        (tmp_path / f"{seed:03}.toml").write_text("\n".join(lines))
        odd[f"{seed:03}"] = draw.odd
    program = Path(shutil.which("harbor") or "").read_text().splitlines()[0].removeprefix("#!")
    told = [program, str(OWN / "harbor_models.py"), str(tmp_path)]
    said = subprocess.run(told, capture_output=True, text=True, check=True, timeout=250)
    taken, wrong = 0, []
    for name, theirs, why in map(json.loads, said.stdout.splitlines()):
        text = (tmp_path / f"{name}.toml").read_text()
        try:
            ours, reason = values(task_file.parse(text, name)), ""
        except UsageError as error:
            ours, reason = None, error.message
        taken += ours is not None and theirs is not None
        if ours == theirs:
            continue
        known = OURS_TAKES if theirs is None else OURS_REFUSES if ours is None else {}
        if not odd[name] & known.keys():
            differ = [key for key in ours or () if theirs and ours[key] != theirs[key]]
            wrong.append((name, differ, why[:300], reason))
    assert not wrong, "\n".join(map(str, wrong[:8]))
    assert len(odd) == 300
    assert taken > 100
