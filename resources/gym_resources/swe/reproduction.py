"""Whether a script reproduces an issue: it ends with 2 before the perfect patch, and with 0 after it.

The two runs are in new containers that differ in the patched files only: without the repository's history and
with the same times of all files, the script cannot see from anything else which of the two it is in.
"""

from __future__ import annotations

import shlex

import anyio
import msgspec
from gym_runtime import ResourceError
from gym_runtime.errors import leaf
from gym_sandbox import Container, in_container, python_command, slots

from gym_resources.swe import specs
from gym_resources.swe.instances import Instance
from gym_resources.swe.patch_evaluation import APPLY, GIT_LIMIT_S, SETUP_LIMIT_S, prepare

BROKEN, FIXED = 2, 0
SCRIPT = "reproduce_bug.py"
_ALIKE = "rm -rf .git; find . -exec touch -h -d @0 {} +"


class Reproduction(msgspec.Struct, frozen=True):
    """The exit codes before and after the perfect patch; None for a script that took too long."""

    before: int | None
    after: int | None

    @property
    def reproduced(self) -> bool:
        return (self.before, self.after) == (BROKEN, FIXED)


async def reproduce(instance: Instance, image: str, script: str, timeout_s: float) -> Reproduction:
    """Run a script before and after the perfect patch, each for at most ``timeout_s`` seconds.

    Raises:
        ResourceError: a container does not start, or the row's own script or patch fails.
        SandboxError: something outside has killed a container.
    """
    codes: dict[bool, int | None] = {}

    async def once(patched: bool) -> None:
        codes[patched] = await _run(instance, image, script, timeout_s, patched=patched)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(once, False)
            tasks.start_soon(once, True)
    except BaseExceptionGroup as group:
        raise leaf(group) from group
    return Reproduction(codes[False], codes[True])


async def _run(instance: Instance, image: str, script: str, timeout_s: float, *, patched: bool) -> int | None:
    steps = [(instance.regression_script, b"", SETUP_LIMIT_S)] if instance.regression_script else []
    if patched:
        steps.append((APPLY, instance.patch.encode(), GIT_LIMIT_S))
    steps.append((_ALIKE, b"", GIT_LIMIT_S))
    steps.append((f"cat >{SCRIPT}", script.encode("utf-8", "replace"), GIT_LIMIT_S))
    python = (
        shlex.join(python_command()) if instance.local else f"{specs.ACTIVATE}cd {specs.DIRECTORY}\npython"
    )

    async def ran(container: Container) -> int | None:
        await prepare(container, instance)
        for step, stdin, limit_s in steps:
            done = await container.run(step, stdin=stdin, timeout_s=limit_s)
            if done.exit_code != 0:
                raise ResourceError(
                    f"the set-up of {instance.instance_id} failed ({done.exit_code}): "
                    f"{done.stderr.decode(errors='replace')[-1000:]}",
                    stage="sandbox",
                )
        return (await container.run(f"{python} {SCRIPT}", timeout_s=timeout_s)).exit_code

    async with slots():
        return await in_container(lambda: instance.container(image), ran)
