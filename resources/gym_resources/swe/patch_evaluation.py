"""Whether a patch solves an instance: it is applied in a new container, in which the tests then run.

The patch is the only thing of a rollout that reaches this container, and only what `patches.checked` keeps of
it. What a local repository's functions return is compared here, so the repository's code cannot forge it:
it does not know what is expected. In an image, the tests run in one process with the repository's code, so a
patch that is written to deceive its test runner from within is not excluded.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from anyio import to_thread
from gym_runtime import ResourceError
from gym_sandbox import Container, in_container, python_command, slots

from gym_resources.swe import runner_logs, specs
from gym_resources.swe.instances import Check, Instance
from gym_resources.swe.later_history import remove_later_history
from gym_resources.swe.patches import Checked, checked

SETUP_LIMIT_S = 900.0
GIT_LIMIT_S = 120.0
CHECK_LIMIT_S = 5.0
LOG_CHARS = 20_000
GIT = "git -c core.fsmonitor= -c core.hooksPath=/dev/null -c diff.external= -c safe.directory='*'"
COMMIT = f"{GIT} -c user.name=gym -c user.email=gym@localhost -c commit.gpgsign=false commit -q --no-verify"
APPLY = f"{GIT} apply --whitespace=nowarn -"
DIFF = f"{GIT} add -A -N . && {GIT} diff --no-color --no-ext-diff --no-textconv --no-renames"
Resolution = Literal["RESOLVED_FULL", "RESOLVED_PARTIAL", "RESOLVED_NO"]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests say of a patch.

    Attributes:
        resolution: all tests pass; some of those that failed before, and all others; or neither.
        patch: the changes as they stand in the new container.
        ignored: the paths of changes that were not applied.
        tests: each test that decides, and whether it passed.
        problem: why no test ran, or "".
        log: the end of the tests' log.
    """

    resolution: Resolution = "RESOLVED_NO"
    patch: str = ""
    ignored: tuple[str, ...] = ()
    tests: dict[str, bool] = {}
    problem: str = ""
    log: str = ""


async def prepare(container: Container, instance: Instance, *, history: bool = False) -> str:
    """Write a local repository into a new container; an image has its repository already.

    Args:
        history: make it a repository of git with one commit; the name of the commit is returned, else "".

    Raises:
        ResourceError: it cannot be written.
    """
    steps = ["tar -xf -"] if instance.local else []
    if history:
        # Without the samples of hooks, which would be saved with the model's files.
        made = [f"{GIT} init -q --template= .", f"{GIT} add -A", f"{COMMIT} -m base"]
        steps += made if instance.local else []
        steps.append(f"{GIT} rev-parse HEAD")
    if not steps:
        return ""
    archive = _archive(instance.files) if instance.local else b""
    done = await container.run(" && ".join(steps), stdin=archive, timeout_s=GIT_LIMIT_S)
    if done.exit_code != 0:
        raise ResourceError(
            f"the repository of {instance.instance_id} cannot be prepared; git and tar must be installed: "
            f"{done.stderr.decode(errors='replace')[-500:]}",
            stage="sandbox",
        )
    return done.stdout.decode(errors="replace").strip()


async def evaluate(instance: Instance, image: str, patch: str, timeout_s: float) -> Evaluation:
    """Apply a patch in a new container, and run the tests there for at most ``timeout_s`` seconds.

    Raises:
        ResourceError: the container does not start, or the row's own scripts fail.
        SandboxError: this machine has no back end for it, or something outside has killed the container.
    """
    kept = await to_thread.run_sync(checked, patch, instance.patch)
    if kept.problem:
        return Evaluation(ignored=kept.ignored, problem=kept.problem)

    async def tested(container: Container) -> Evaluation:
        await prepare(container, instance)
        await set_up(container, instance)
        applied = await container.run(
            APPLY, stdin=kept.text.encode("utf-8", "replace"), timeout_s=GIT_LIMIT_S
        )
        if applied.exit_code != 0:
            reason = applied.stderr.decode(errors="replace")[-1000:]
            return Evaluation(ignored=kept.ignored, problem=f"the patch does not apply: {reason}")
        if instance.local:
            tests, log = await _run_checks(container, instance.checks, timeout_s), ""
        else:
            script = instance.test_script or specs.test_script(
                instance.repo, instance.test_patch, instance.version
            )
            done = await container.run(script, timeout_s=timeout_s)
            if done.timed_out:
                problem = f"the tests took longer than {timeout_s:g} s"
                return Evaluation(patch=kept.text, ignored=kept.ignored, problem=problem)
            log = (done.stdout + b"\n" + done.stderr).decode(errors="replace")
            tests = await to_thread.run_sync(runner_logs.read, log, instance.repo)
        return _graded(instance, kept, tests, log)

    async with slots():
        return await in_container(lambda: instance.container(image), tested)


async def set_up(container: Container, instance: Instance) -> None:
    """Run what a row does before its tests; nothing in a local repository.

    Raises:
        ResourceError: it fails, which no patch has caused.
    """
    if instance.local:
        return
    stdin = b""
    script = instance.setup_script
    if not script:
        await remove_later_history(container, instance.instance_id)  # the patch could read the repair there
        script, stdin = (
            specs.setup_script(instance.base_commit, instance.test_patch),
            instance.test_patch.encode(),
        )
    done = await container.run(script, stdin=stdin, timeout_s=SETUP_LIMIT_S)
    if done.exit_code != 0:
        raise ResourceError(
            f"the set-up of {instance.instance_id} failed ({done.exit_code}): "
            f"{done.stderr.decode(errors='replace')[-1000:]}",
            stage="sandbox",
        )


def _graded(instance: Instance, kept: Checked, found: Mapping[str, bool], log: str) -> Evaluation:
    wanted = [*instance.fail_to_pass, *instance.pass_to_pass]
    tests = {name: found.get(name, False) for name in wanted}
    fixed = [tests[name] for name in instance.fail_to_pass]
    intact = all(tests[name] for name in instance.pass_to_pass)
    resolution: Resolution = "RESOLVED_NO"
    if fixed and intact and any(fixed):
        resolution = "RESOLVED_FULL" if all(fixed) else "RESOLVED_PARTIAL"
    return Evaluation(
        resolution=resolution, patch=kept.text, ignored=kept.ignored, tests=tests, log=log[-LOG_CHARS:]
    )


async def _run_checks(container: Container, checks: Mapping[str, Check], timeout_s: float) -> dict[str, bool]:
    requests = "".join(
        json.dumps({"id": name, "call": check.call, "arguments": check.arguments, "limit_s": CHECK_LIMIT_S})
        + "\n"
        for name, check in checks.items()
    )
    script = shlex.join([*python_command(), "-c", _script()])
    done = await container.run(script, stdin=requests.encode(), timeout_s=timeout_s)
    answers = await to_thread.run_sync(_answers, done.stdout)
    return {
        name: name in answers and answers[name] == _canonical({"error": check.error, "value": check.value})
        for name, check in checks.items()
    }


def _answers(output: bytes) -> dict[str, str]:
    """What each call returned or raised, as canonical JSON; lines that cannot be read are dropped."""
    found: dict[str, str] = {}
    for line in output.split(b"\n"):
        try:
            answer = json.loads(line)
            found[str(answer["id"])] = _canonical({"error": answer["error"], "value": answer["value"]})
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _archive(files: Mapping[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


@cache
def _script() -> str:
    return Path(__file__).with_name("calls_inside.py").read_text("utf-8")
