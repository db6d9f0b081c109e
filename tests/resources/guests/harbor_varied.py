"""Harbor tasks with random features of the format, the same ones each time, for comparing two runners.

Of some the solution is wrong, late or fails; of some the tests write something that is no reward.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

USER = "1234"
RIGHT = (
    *("echo 1 >$to.txt", "printf ' 0.75\\n\\n' >$to.txt", "echo 2.5 >$to.txt", "echo 1_0 >$to.txt"),
    *("echo 1e-3 >$to.txt", "echo '{\"reward\": 1}' >$to.json"),
    'echo \'{"reward": 0.5, "style": -1, "speed": 1e-3}\' >$to.json; echo 1 >$to.txt',
)
WRONG = (
    *("echo 0 >$to.txt", "echo 0 >$to.txt", "echo -1.5 >$to.txt", "echo '{\"reward\": 0}' >$to.json"),
    'echo \'{"reward": 0.125, "style": 1}\' >$to.json',
)
NO_REWARD = (
    *("true", ": >$to.txt", "echo NaN >$to.txt", "echo 1e999 >$to.txt", "echo >$to.txt", "echo 1 2 >$to.txt"),
    *(
        "echo '[1]' >$to.json",
        "echo 1 >$to.json",
        "echo '{}' >$to.json",
        "echo '{\"reward\": null}' >$to.json",
    ),
    *('echo \'{"reward": "1"}\' >$to.json', "echo '{\"reward\": 1e999}' >$to.json"),
    *("echo '{' >$to.json; echo 1 >$to.txt", ": >$to.json; echo 1 >$to.txt"),
)
TESTS = """{shell}
to=/logs/verifier/reward
echo "$(id -u) in $(pwd)"
if [ "$(cat /app/out.txt 2>/dev/null)" = "$WANTED" ] && {more}; then
  {right}
else
  {wrong}
fi
exit {status}
"""
SOLUTIONS = (
    *("echo {} >out.txt", "printf {} >/app/out.txt", "echo {} >out.txt; exit 3"),
    "echo {} >out.txt; (sleep 200 &) >/dev/null 2>&1",
)


def write(folder: Path, image: str, count: int, *, seed: int) -> list[str]:
    """Write tasks whose images are made of this one; their names."""
    for number in range(count):
        _write(folder / f"varied-{number:03}", image, Random(f"{seed}-{number}"))
    return sorted(path.name for path in folder.glob("varied-*"))


def _write(folder: Path, image: str, draw: Random) -> None:
    separate, built = draw.random() < 0.35, draw.random() < 0.3
    steps = [f"step-{number}" for number in range(draw.choice((0, 0, 0, 0, 1, 2, 3)))]
    own_image = separate and not steps and draw.random() < 0.4
    ignored, known = draw.random() < 0.2, draw.random() < 0.4
    texts: dict[str, str] = {}
    top = [f'schema_version = "{draw.choice(("1.4", "1.3", "1.0"))}"']
    if steps and draw.random() < 0.7:
        top.append(f'multi_step_reward_strategy = "{draw.choice(("mean", "final"))}"')
    if separate:
        kept = ('"/app/out.txt"', '{ source = "/app", exclude = ["*.tmp"] }')
        top.append(f"artifacts = [{draw.choice(kept)}]")
    environment = [draw.choice(('network_mode = "no-network"', "allow_internet = false"))]
    if built:
        texts["environment/Dockerfile"] = f"FROM {image}\nRUN mkdir -p /app && chmod 777 /app\nWORKDIR /app\n"
    else:
        environment += [f'docker_image = "{image}"', 'workdir = "/app"']
    if known:
        environment.append('env = { A = "3", B = "${GYM_NO_SUCH:-4}" }')
    if draw.random() < 0.3:
        environment.append('healthcheck = { command = "test -d /app", interval_sec = 0.1 }')
    environment.append(draw.choice(("cpus = 1", "memory_mb = 1024", 'memory = "1G"')))
    late = not steps and draw.random() < 0.08
    agent = [f"timeout_sec = {3.0 if late else 60.0}"]
    if built and draw.random() < 0.5:
        agent.append(f'user = "{USER}"')
    verifier = ["timeout_sec = 60.0"]
    if draw.random() < 0.3:
        verifier.append(f'user = "{USER}"')
    if separate and not own_image:
        verifier.append('environment_mode = "separate"')
    if ignored:
        texts |= {".harborignore": "*.bak\n", "tests/old.bak": "-"}

    def judged(path: str) -> None:
        right = draw.choice(RIGHT) if draw.random() < 0.9 else draw.choice(NO_REWARD)
        wrong = draw.choice(WRONG) if draw.random() < 0.7 else draw.choice(NO_REWARD)
        checks = ["true", *(["[ ! -e /tests/old.bak ]"] if ignored else [])]
        checks += ['[ "$A$B" = 34 ]'] if known and not own_image else []
        texts[f"{path}tests/test.sh"] = TESTS.format(
            shell=draw.choice(("#!/bin/sh", "#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash")),
            more=" && ".join(checks),
            right=right,
            wrong=wrong,
            status=draw.choice((0, 0, 1, 7)),
        )
        texts[f"{path}instruction.md"] = draw.choice(("", "<!-- canary 1 -->\n\n")) + "Write the number.\n"

    def solved(path: str, wanted: int) -> None:
        said = wanted if draw.random() < 0.85 else "something else"
        after = "\nsleep 60" if late else ""
        line = draw.choice(SOLUTIONS).format(f'"{said}"')
        texts[f"{path}solution/solve.sh"] = f"#!/bin/sh\n{line}{after}\n"

    parts = ["\n".join(top), "[environment]", *environment, "[agent]", *agent, "[verifier]", *verifier]
    wanted = draw.randrange(1000)
    if not steps:
        parts.append(f'env = {{ WANTED = "{wanted}" }}')
    if own_image:
        parts.append("[verifier.environment]")
        texts["tests/Dockerfile"] = (
            f"FROM {image}\nCOPY test.sh /tests/test.sh\nRUN chmod +x /tests/test.sh\n"
        )
    for number, name in enumerate(steps):
        parts += ["[[steps]]", f'name = "{name}"']
        if draw.random() < 0.5:
            parts.append(draw.choice(("min_reward = 0.5", "min_reward = { reward = 0.001 }")))
        parts += ["[steps.verifier]", f'env = {{ WANTED = "{wanted + number}" }}']
        judged(f"steps/{name}/")
        solved(f"steps/{name}/", wanted + number)
    if not steps:
        judged("")
        solved("", wanted)
    texts["task.toml"] = "\n".join(parts) + "\n"
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
