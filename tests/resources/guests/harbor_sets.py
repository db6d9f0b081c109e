"""Sets of Harbor tasks, written for these tests: each feature of the format once, and many small ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from resources.guests.harbor_folders import task

HEAD = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n{}[agent]\ntimeout_sec = 60.0\n'
ANSWER = "#!/bin/sh\necho 3 >out.txt\n"
JUDGE = """#!/bin/sh
[ "$(cat /app/out.txt 2>/dev/null)" = 3 ] && r=1 || r=0
echo $r >/logs/verifier/reward.txt
"""
USER = "1234"


def features(folder: Path, image: str) -> list[str]:
    """Write a task for each feature; their names. Their images are made of this one."""
    plain = f'docker_image = "{image}"\nworkdir = "/app"\n'
    built = f"FROM {image}\nWORKDIR /app\nRUN chmod 777 /app\n"

    def one(
        name: str,
        environment: str = plain,
        more: str = "",
        top: str = "",
        *,
        dockerfile: str = "",
        **texts: str,
    ) -> Path:
        made = task(
            folder / name,
            toml=top + HEAD.format(environment) + more,
            tests=texts.pop("tests", JUDGE),
            solution=texts.pop("solution", ANSWER),
            **texts,
        )
        file = made / "environment" / "Dockerfile"
        file.write_text(dockerfile) if dockerfile else file.unlink()
        return made

    def json_tests(fields: str) -> str:
        lines = JUDGE.replace("echo $r >/logs/verifier/reward.txt", "")
        return f'{lines}echo "{{{fields}}}" >/logs/verifier/reward.json\n'

    count = "#!/bin/sh\nwc -l <data.txt >out.txt\n"
    one("prebuilt")
    one("files-of-environment", solution=count)
    one("dockerfile", "", dockerfile=f"{built}COPY data.txt /app/\n", solution=count)
    one(
        "dockerfile-runs",
        "",
        dockerfile=f"{built}RUN echo 3 >/app/kept\n",
        solution="#!/bin/sh\ncp kept out.txt\n",
    )
    one(
        "agent-user",
        "",
        f'user = "{USER}"\n',
        dockerfile=built,
        solution="#!/bin/sh\n[ $(id -u) = 1234 ] && echo 3 >out.txt\n",
    )
    one(
        "verifier-user",
        more=f'[verifier]\nuser = "{USER}"\n',
        tests=JUDGE.replace("&& r=1", '&& [ "$(id -u)" = 1234 ] && r=1'),
    )
    one(
        "user-of-the-image",
        "",
        dockerfile=f"{built}USER {USER}\n",
        solution="#!/bin/sh\n[ $(id -u) = 1234 ] && echo 3 >out.txt\n",
    )
    one(
        "variables",
        f'{plain}env = {{ A = "3", B = "${{GYM_NO_SUCH:-3}}" }}\n',
        solution='#!/bin/sh\n[ "$A" = "$B" ] && echo "$B" >out.txt\n',
    )
    one(
        "solution-variables",
        more='[solution]\nenv = { ANSWER = "3" }\n',
        solution='#!/bin/sh\necho "$ANSWER" >out.txt\n',
    )
    one(
        "verifier-variables",
        more='[verifier]\nenv = { WANTED = "3" }\n',
        tests=JUDGE.replace("= 3 ]", '= "$WANTED" ]'),
    )
    one("healthy", f'{plain}healthcheck = {{ command = "test -d /app", interval_sec = 0.1 }}\n')
    one("several-rewards", tests=json_tests('\\"reward\\": $r, \\"style\\": 0.5'))
    one(
        "json-first",
        tests=JUDGE
        + 'echo "{\\"reward\\": $r}" >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt\n',
    )
    one("parts", tests=JUDGE.replace("r=0", "r=0.25"))
    one(
        "separate",
        more='[verifier]\nenvironment_mode = "separate"\n',
        top='artifacts = ["/app/out.txt"]\n',
    )
    one(
        "separate-image",
        more="[verifier.environment]\n",
        top='artifacts = ["/app/out.txt"]\n',
        **{"tests/Dockerfile": f"FROM {image}\nCOPY test.sh /tests/test.sh\nRUN chmod +x /tests/test.sh\n"},
    )
    one(
        "collected",
        more='[verifier]\nenvironment_mode = "separate"\n[[verifier.collect]]\n'
        'command = "cp /app/out.txt /logs/artifacts/kept"\n',
        tests=JUDGE.replace("/app/out.txt", "/logs/artifacts/kept"),
    )
    one("limits", f"{plain}cpus = 1\nmemory = '1G'\nstorage_mb = 512\n")
    one("windows-lines", solution=ANSWER.replace("\n", "\r\n"))
    one("leaves-processes", solution="#!/bin/sh\necho 3 >out.txt\n(sleep 300 &) >/dev/null 2>&1\n")
    one("fails-and-is-right", solution="#!/bin/sh\necho 3 >out.txt\nexit 3\n")
    for name in ("steps-mean", "steps-final", "steps-gate"):
        steps(folder / name, plain, name)
    return sorted(path.name for path in folder.iterdir())


def steps(folder: Path, environment: str, kind: str) -> None:
    """A task of two steps; the second goes on with the first's files."""
    top = 'multi_step_reward_strategy = "final"\n' if kind == "steps-final" else ""
    gate = "min_reward = 1.0\n" if kind == "steps-gate" else ""
    toml = top + HEAD.format(environment)
    toml += f'[[steps]]\nname = "first"\n{gate}[[steps]]\nname = "second"\n'
    task(folder, toml=toml, tests="#!/bin/sh\nexit 1\n", solution=None)
    for path in ("instruction.md", "environment/Dockerfile"):
        (folder / path).unlink()
    (folder / "tests" / "judge.sh").write_text(
        '[ "$(echo $(cat /app/said 2>/dev/null))" = "$1" ] && r=1 || r=0\n'
        "echo $r >/logs/verifier/reward.txt\n"
    )
    (folder / "tests" / "test.sh").unlink()
    for step, word, wanted in (("first", "one", "one"), ("second", "two", "one two")):
        for path, text in {
            "instruction.md": f"Say {word}.",
            "tests/test.sh": f'#!/bin/sh\nset -- "{wanted}"\n. /tests/judge.sh\n',
            "solution/solve.sh": f"#!/bin/sh\necho {word} >>said\n",
            "workdir/setup.sh": f"#!/bin/sh\ntouch begun-{step}\n",
        }.items():
            file = folder / "steps" / step / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def sums(folder: Path, count: int, environment: Callable[[int], str]) -> None:
    """Write small tasks: each asks for a sum; of every fifth, nothing is worth a part."""
    for number in range(count):
        a, b = 3 * number + 1, 7 * number + 2
        nothing = 0.2 if number % 5 == 0 else 0
        made = task(
            folder / f"sum-{number:04}",
            toml=HEAD.format(environment(number)),
            instruction=f"Write {a} + {b} to out.txt.\n",
            solution=f"#!/bin/sh\necho $(({a} + {b})) >out.txt\n",
            tests=f'#!/bin/sh\n[ "$(cat /app/out.txt 2>/dev/null)" = {a + b} ] && r=1 || r={nothing}\n'
            "echo $r >/logs/verifier/reward.txt\n",
        )
        (made / "environment" / "Dockerfile").unlink()
