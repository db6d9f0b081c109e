"""A trial of a Harbor task: a box, in which one step after the other is worked on and judged.

A step is judged in a new box, and the next one goes on in the agent's. With ``?shared=true`` tests of a
shared verifier run in the agent's box if it has an image. What a step leaves running is ended before its
tests.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import anyio
import msgspec
from gym_runtime import ResourceError
from gym_sandbox.saved_files import Store

from gym_resources.harbor_tasks import grading, task_box
from gym_resources.harbor_tasks.grading import Grade
from gym_resources.harbor_tasks.task_box import TaskBox
from gym_resources.harbor_tasks.task_file import (
    EnvironmentPart,
    Network,
    StepPart,
    agent_network,
    resolved,
    verifier_network,
)
from gym_resources.harbor_tasks.task_folder import HarborTask

NO_LIMIT_S = 7200.0
"""How long an agent may take in a step without a limit."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows the path in an address.

    Attributes:
        dataset: of a registry: ``NAME`` or ``NAME@VERSION``.
        image: ``none`` runs all tasks in a box of bubblewrap, with the files of ``environment/`` in the
            working directory.
        play: ``oracle`` runs the task's own solution, and ``nop`` nothing, in place of the model's commands.
        reward_key: which of several rewards is the reward.
        gold: what a task's own solution gets at least.
        control: ``solution`` judges a task's own solution before a reward below gold counts.
        shared: tests of a shared verifier run in the image's box in which the agent worked, as Harbor does,
            and not in a copy of it.
        network: ``task`` gives the boxes of images, and what builds these, the network that a task asks for;
            ``none`` gives them none.
        timeouts: ``none`` sets the tasks' limits on time aside, ``multiplier`` changes them.
        command_s: how long one command may take, in seconds.
        variables: names of this machine's variables that tasks may read, separated by commas.
        skip: leave out tasks that are refused.
    """

    dataset: str = ""
    image: Literal["task", "none"] = "task"
    play: Literal["agent", "oracle", "nop"] = "agent"
    reward_key: str = ""
    gold: float = 1.0
    control: Literal["solution", "none"] = "solution"
    shared: bool = False
    network: Literal["none", "task"] = "none"
    timeouts: Literal["task", "none"] = "task"
    multiplier: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0
    command_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 600.0
    variables: str = ""
    skip: bool = False

    @property
    def plain(self) -> bool:
        return self.image == "none"

    def agent_s(self, step: StepPart) -> float:
        """How long the agent may take in a step, in seconds."""
        limit_s = step.agent.timeout_sec if self.timeouts == "task" else None
        return NO_LIMIT_S if limit_s is None else limit_s * self.multiplier

    def verifier_s(self, step: StepPart) -> float:
        """How long the tests of a step may take, in seconds."""
        return step.verifier.timeout_sec * self.multiplier

    @property
    def known(self) -> dict[str, str]:
        """The variables of this machine that tasks may read."""
        names = [name.strip() for name in self.variables.split(",") if name.strip()]
        return {name: os.environ[name] for name in names if name in os.environ}


class Trial:
    """One trial.

    Attributes:
        grades: what the tests of each judged step said.
        failed_hooks: commands of ``[[verifier.collect]]`` that failed; as with Harbor, the tests run all the
            same, because an agent can make them fail.
        over: no step is left, or the last one was not good enough to go on.
    """

    def __init__(self, task: HarborTask, settings: Settings, store: Store | None = None) -> None:
        self.task, self.settings = task, settings
        self.grades: list[Grade] = []
        self.failed_hooks: list[str] = []
        self.over = False
        self._steps = task.file.all_steps
        self._begun_s = 0.0
        self._store = store
        self._box: TaskBox | None = None

    @property
    def box(self) -> TaskBox:
        """The agent's box, once it is open."""
        if self._box is None:
            raise ResourceError(f"task {self.task.name} has no box yet")
        return self._box

    @property
    def step(self) -> StepPart:
        """The step that is worked on."""
        return self._steps[min(len(self.grades), len(self._steps) - 1)]

    @property
    def in_last_step(self) -> bool:
        return len(self.grades) >= len(self._steps) - 1

    @property
    def left_s(self) -> float:
        """How long the agent may go on in this step, in seconds."""
        return self._begun_s + self.settings.agent_s(self.step) - anyio.current_time()

    async def open(self) -> None:
        """Start the box and the first step.

        Raises:
            ResourceError: what the task does before its agent fails.
        """
        await self._start()
        await self._begin()

    async def _start(self, saved: Any = None) -> None:
        network = self._reached(agent_network(self.task.file, self.step))
        self._box = await self._fresh(None, network, self._store)
        await self._box.open(saved)

    async def save(self) -> dict[str, Any] | None:
        """What `restore` needs, as JSON; None if the box's files are not saved."""
        files = await self.box.save()
        if files is None:
            return None
        done = {"grades": self.grades, "failed_hooks": self.failed_hooks, "over": self.over}
        return {"files": files, "worked_s": anyio.current_time() - self._begun_s, **msgspec.to_builtins(done)}

    async def restore(self, saved: dict[str, Any]) -> None:
        """Continue in a new trial, in place of `open`, where a lost one was when it was saved.

        Raises:
            StartError: the box does not start, or not with these files.
        """
        await self._start(saved["files"])
        self.grades = msgspec.convert(saved["grades"], list[Grade])
        self.failed_hooks, self.over = list(saved["failed_hooks"]), bool(saved["over"])
        self._begun_s = anyio.current_time() - float(saved["worked_s"])

    async def close(self) -> None:
        """Remove the box; repeatable."""
        if self._box is not None:
            await self._box.close()

    async def solve(self) -> None:
        """Run the step's own solution.

        Raises:
            ResourceError: the step has no solution.
        """
        folder = self.task.solution_of(self.step)
        if not folder:
            raise ResourceError(f"task {self.task.name}: {self.step.name or 'it'} has no solve.sh")
        variables = self._resolved(self.task.file.solution.env)
        limit_s = self.settings.agent_s(self.step)
        user = self.step.agent.user
        await grading.solve(self.box, folder, timeout_s=limit_s, variables=variables, user=user)

    async def judge(self) -> None:
        """Judge the step, and begin the next one if there is one and this one was good enough.

        Raises:
            ResourceError: the tests give no reward, or the next step cannot begin.
        """
        step, last = self.step, self.in_last_step
        for hook in step.verifier.collect:
            done = await self.box.run(hook.command, timeout_s=hook.timeout_sec, user=hook.user)
            if done.exit_code != 0:
                self.failed_hooks.append(hook.command)
        await self.box.end_processes()
        found = await self._judged(step, last=last)
        self.grades.append(found)
        self.over = last or not step.passed(found.rewards)
        if not self.over:
            await self._begin()

    async def play(self, *, solve: bool) -> None:
        """Go through all steps with the task's own solutions, or with nothing.

        Raises:
            ResourceError: as `solve` and `judge`.
        """
        while not self.over:
            if solve:
                await self.solve()
            await self.judge()

    def rewards(self) -> dict[str, float]:
        """The rewards of the judged steps: those of the last one, or of each name the mean.

        A name that a step does not have counts as 0 there; steps that were not reached do not count.
        """
        if self.task.file.multi_step_reward_strategy == "final" or len(self.grades) == 1:
            return self.grades[-1].rewards
        names = dict.fromkeys(name for one in self.grades for name in one.rewards)
        count = len(self.grades)
        return {name: sum(one.rewards.get(name, 0.0) for one in self.grades) / count for name in names}

    async def _begin(self) -> None:
        step, name = self.step, self.step.name
        if name:
            await self.box.must("rm -rf /logs/agent && mkdir -m 777 /logs/agent", "clearing the agent's logs")
            if self.grades:
                await grading.clear(self.box)
            if self.task.has(f"steps/{name}/workdir"):
                await self.box.put(f"steps/{name}/workdir", self.box.directory)
            if self.task.has(f"steps/{name}/workdir/setup.sh"):
                limit_s = self.settings.agent_s(step)
                await self.box.must("sh ./setup.sh", f"setup.sh of step {name}", timeout_s=limit_s)
            if step.healthcheck is not None:
                await self.box.healthy(step.healthcheck)
        self._begun_s = anyio.current_time()

    async def _judged(self, step: StepPart, *, last: bool) -> Grade:
        verifier, file = step.verifier, self.task.file
        timeout_s, variables = self.settings.verifier_s(step), self._resolved(verifier.env)
        tests, archive, user = self.task.tests_of(step), b"", verifier.user
        left_out: list[str] = []
        network = self._reached(verifier_network(file, step))
        if not verifier.separate and self.settings.shared and not self.settings.plain:
            return await grading.grade(
                self.box, tests, timeout_s=timeout_s, variables=variables, user=user, links=True
            )
        if not verifier.separate and not self.settings.plain:
            fresh = await self.box.copied(network=network)
        else:
            kept = task_box.declared(self.task, step) if verifier.separate else task_box.carried(self.box)
            archive = await self.box.export(kept)
            if verifier.separate:
                archive, left_out = await self.box.only(archive, kept)
            fresh = await self._fresh(verifier.environment, network)
            if self._own_image(verifier.environment):
                tests = []  # the image has them
        if last:
            await self.box.close()
        try:
            await fresh.open()
            if archive:
                await fresh.upload(archive)
            found = await grading.grade(
                fresh,
                tests,
                timeout_s=timeout_s,
                variables=variables,
                user=user,
                links=not verifier.separate,
            )
        finally:
            await fresh.close()
        if left_out:
            some = ", ".join(left_out)
            log = f"{found.log}[left out of the artifacts, as links out of them and no files are: {some}]\n"
            found = msgspec.structs.replace(found, log=log)
        return found

    def _own_image(self, part: EnvironmentPart | None) -> bool:
        """Whether a verifier's part has an image of its own."""
        return (
            part is not None
            and not self.settings.plain
            and bool(part.docker_image or self.task.has("tests/Dockerfile"))
        )

    async def _fresh(
        self,
        verifier: EnvironmentPart | None,
        network: Literal["none", "public"],
        store: Store | None = None,
    ) -> TaskBox:
        """A new box: the task's, or one of a verifier's part.

        Raises:
            ResourceError: its image cannot be built.
        """
        task, own = self.task, self._own_image(verifier)
        part = verifier if verifier and own else task.file.environment
        image = None if self.settings.plain else part.docker_image
        if not self.settings.plain and not image:
            folder = "tests" if own else "environment"
            image = await task_box.built(task, folder, part, self._reached(part.network))
        return TaskBox(
            task,
            verifier or part,
            image=image,
            files=not own and (self.settings.plain or not task.has("environment/Dockerfile")),
            variables=self._resolved((verifier or part).env),
            network=network,
            store=store,
        )

    def _reached(self, asked: Network) -> Literal["none", "public"]:
        return "public" if asked == "public" and self.settings.network == "task" else "none"

    def _resolved(self, variables: dict[str, str]) -> dict[str, str]:
        return resolved(variables, self.settings.known, f"task {self.task.name}")
