"""Tasks in Harbor's format, such as Terminal-Bench 2: ``harbor:PATH``.

PATH is a task's folder, a folder of tasks, or a ``registry.json`` (``?dataset=NAME@VERSION``). The model
works in the task's box by one tool, ``bash``, until it answers without a command or its time is up; both are
judged. Then its processes are ended, and the task's tests run in a new box: with all that the agent could
write (a shared verifier), or with the declared artifacts (a separate one). The reward is what they write.

A box has no network, whatever a task says. So tests that install something can fail and still write a 0:
before a reward below ``gold`` counts, the task's own solution is judged in the same way, once in each worker,
and the rollout fails if it is not graded full. What a task asks for and does not get is refused by name.

Sessions are not rebuilt: when a worker is lost, its rollouts start again.
Source: the folders, the order of a trial and the reward files of Harbor 0.26 (Apache-2.0).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import anyio
import msgspec
from anyio import to_thread
from gym_runtime import Environment, Episode, Reply, Step, Task, TaskError, UsageError, Verdict

from gym_resources.guests.played import named_code
from gym_resources.harbor_tasks import grading, task_box, task_file, task_folder
from gym_resources.harbor_tasks.grading import Grade
from gym_resources.harbor_tasks.task_box import TaskBox
from gym_resources.harbor_tasks.task_file import EnvironmentPart
from gym_resources.harbor_tasks.task_folder import HarborTask
from gym_resources.swe import shell

NO_LIMIT_S = 7200.0
"""How long an agent may take in a task that sets no limit."""
SETUP_S = 600.0
TOOL: dict[str, Any] = {**shell.TOOL, "description": "Run a bash script; each call is a new shell."}


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
        shared: tests of a shared verifier may run in the image's box in which the agent worked.
        network: ``task`` refuses tasks that ask for a network; ``none`` runs them without.
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

    def agent_s(self, task: HarborTask) -> float:
        """How long the agent may take, in seconds."""
        limit_s = task.file.agent.timeout_sec if self.timeouts == "task" else None
        return NO_LIMIT_S if limit_s is None else limit_s * self.multiplier

    def verifier_s(self, task: HarborTask) -> float:
        return task.file.verifier.timeout_sec * self.multiplier


class Named(msgspec.Struct, frozen=True):
    """A task by its name in what the user has named, and the state of its folder."""

    path: str
    digest: str


class HarborRow(Task, kw_only=True):
    harbor: Named


class HarborSession(Episode[HarborRow]):
    """A rollout in the box of a task."""

    tasks: ClassVar[dict[str, HarborTask]] = {}
    settings: ClassVar[Settings] = Settings()
    sound: ClassVar[set[str]] = set()
    """The digests of tasks whose own solution was graded full in this worker."""

    async def open(self) -> None:
        named = self.task.harbor
        found = self.tasks.get(named.path)
        if found is None:
            raise TaskError(f"there is no task '{named.path:.100}' in what harbor: names")
        if await to_thread.run_sync(found.digest) != named.digest:
            raise TaskError(f"task {found.name} is not as it was when the row was made: {found.folder}")
        self.offered_tools = [TOOL]
        self.harbor = found
        self.ended_by = "turns"
        self.box = self._box(found.file.environment)
        await self.box.open()
        self._begun_s = anyio.current_time()

    async def reset(self) -> str | None:
        if self.task.responses_create_params.input_items():
            return None
        return self.harbor.instruction

    async def step(self, reply: Reply) -> Step:
        if self.settings.play != "agent":
            self.ended_by = self.settings.play
            if self.settings.play == "oracle":
                await self._solve(self.box)
            return Step(terminated=True)
        commands = shell.commands(reply)
        if not commands:
            self.ended_by = "agent"
            return Step(terminated=True)
        outputs: dict[str, str] = {}
        said: str | None = None
        for command in commands:
            text = command.problem or await self._executed(command.script)
            if command.call_id:
                outputs[command.call_id] = text
            else:
                said = text
        late = self._left_s() <= 0
        if late:
            self.ended_by = "timeout"
        return Step(observation=None if late else said, tool_outputs=outputs, truncated=late)

    async def verify(self, reply: Reply) -> Verdict:
        for hook in self.harbor.file.verifier.collect:
            await self.box.must(hook.command, "a command of [[verifier.collect]]", timeout_s=hook.timeout_sec)
        found = await self._judged(self.box)
        reward = grading.chosen(found.rewards, self.settings.reward_key)
        if reward < self.settings.gold:
            await self._control(found, reward)
        fields = {
            "harbor_task": self.harbor.name,
            "harbor_ended_by": self.ended_by,
            "harbor_log": found.log,
            "verifier_s": found.verifier_s,
        }
        return Verdict(reward, components=found.rewards, fields=fields)

    async def close(self) -> None:
        if hasattr(self, "box"):
            await self.box.close()

    def _box(self, part: EnvironmentPart) -> TaskBox:
        variables = self._resolved(part.env)
        return TaskBox(self.harbor, part, plain=self.settings.plain, variables=variables)

    def _resolved(self, variables: dict[str, str]) -> dict[str, str]:
        return task_file.resolved(variables, _known(self.settings), f"task {self.harbor.name}")

    def _left_s(self) -> float:
        return self._begun_s + self.settings.agent_s(self.harbor) - anyio.current_time()

    async def _executed(self, script: str) -> str:
        if "\0" in script:
            return "A command must not hold NUL characters."
        left_s = self._left_s()
        if left_s <= 0:
            return "Your time is up."
        limit_s = min(left_s, self.settings.command_s)
        return shell.shown(await self.box.run(script, timeout_s=limit_s), limit_s)

    async def _solve(self, box: TaskBox) -> None:
        variables = self._resolved(self.harbor.file.solution.env)
        await grading.solve(box, timeout_s=self.settings.agent_s(self.harbor), variables=variables)

    async def _judged(self, box: TaskBox) -> Grade:
        """What the tests say of what was done in a box, which is closed."""
        verifier = self.harbor.file.verifier
        timeout_s, variables = self.settings.verifier_s(self.harbor), self._resolved(verifier.env)
        await box.end_processes()
        if not verifier.separate and not self.settings.plain:
            return await grading.grade(box, timeout_s=timeout_s, variables=variables)
        kept = task_box.declared(self.harbor) if verifier.separate else task_box.carried(box)
        archive = await box.export(kept)
        await box.close()
        fresh = self._box(verifier.environment or self.harbor.file.environment)
        try:
            await fresh.open()
            await fresh.upload(archive)
            return await grading.grade(fresh, timeout_s=timeout_s, variables=variables)
        finally:
            await fresh.close()

    async def _control(self, found: Grade, reward: float) -> None:
        """Judge the task's own solution, unless that was done before.

        Raises:
            ResourceError: it is not graded full, so the tests or their box do not work here.
        """
        digest, wanted = self.task.harbor.digest, self.settings.gold
        if self.settings.control == "none" or digest in self.sound or not _solvable(self.harbor):
            return
        if self.settings.play != "oracle":
            box = self._box(self.harbor.file.environment)
            try:
                await box.open()
                await self._solve(box)
                found = await self._judged(box)
            finally:
                await box.close()
            reward = grading.chosen(found.rewards, self.settings.reward_key)
        if reward < wanted:
            raise await to_thread.run_sync(grading.doubts, self.harbor, found, reward, wanted)
        self.sound.add(digest)


def _solvable(task: HarborTask) -> bool:
    return task.has("solution/solve.sh")


def _known(settings: Settings) -> dict[str, str]:
    names = [name.strip() for name in settings.variables.split(",") if name.strip()]
    return {name: os.environ[name] for name in names if name in os.environ}


def _refusals(task: HarborTask, settings: Settings) -> list[str]:
    """What of a task does not run here."""
    found = task_file.refusals(task.file)
    environment, verifier = task.file.environment, task.file.verifier
    if task.has("environment/docker-compose.yaml"):
        found.append("it has a docker-compose.yaml; only one container is supported")
    if task.has("trajectory.json"):
        found.append("it begins with a trajectory.json")
    if not task.has("tests/test.sh"):
        found.append("it has no tests/test.sh")
    if settings.plain:
        for part in (environment, *filter(None, (verifier.environment,))):
            task_box.check_directory(part.workdir or task_box.WORKDIR, task.name)
    else:
        if not environment.docker_image:
            found.append(
                "it has no docker_image, and images are not built here: build its Dockerfile and name the "
                "image, or ?image=none runs it in a sandbox with this machine's programs"
            )
        if task.has("tests/Dockerfile"):
            found.append("its verifier has an image of its own to be built")
        if not verifier.separate and not settings.shared:
            found.append(
                "its tests would run in the box where the agent worked: ?shared=true judges it so, as "
                "Harbor does"
            )
    if settings.network == "task" and task_file.asks_for_network(task.file):
        found.append("it asks for a network; without ?network=task it runs without one")
    if not _solvable(task):
        if settings.play == "oracle":
            found.append("it has no solution/solve.sh")
        elif commands := task.network_commands():
            found.append(f"its tests need a network, and no solution shows whether they work: {commands[0]}")
    return found


def _supported(tasks: list[HarborTask], settings: Settings, address: str) -> list[HarborTask]:
    refused: dict[str, str] = {}
    for task in tasks:
        try:
            reasons = _refusals(task, settings)
            for variables in (task.file.environment.env, task.file.verifier.env, task.file.solution.env):
                task_file.resolved(variables, _known(settings), f"task {task.name}")
        except UsageError as error:
            reasons = [error.message]
        if reasons:
            refused[task.name] = "; ".join(reasons)
    left = [task for task in tasks if task.name not in refused]
    if refused and not (settings.skip and left):
        shown = "\n".join(f"  {name}: {why}" for name, why in list(refused.items())[:10])
        rest = f"\n  and {len(refused) - 10} more" if len(refused) > 10 else ""
        skip = "; ?skip=true leaves these out" if left else ""
        raise UsageError(
            f"harbor:{address}: {len(refused)} of {len(tasks)} tasks do not run here{skip}:\n{shown}{rest}"
        )
    return left


def environment(address: str) -> Environment:
    """The environment of the tasks of a path.

    Raises:
        UsageError: there are no tasks, a setting does not fit, or a task does not run here.
    """
    path, given = named_code.parse(address)
    try:
        settings = msgspec.convert(given, Settings)
    except msgspec.ValidationError as error:
        names = ", ".join(one.name for one in msgspec.structs.fields(Settings))
        raise UsageError(f"harbor:{address}: {error}; settings are {names}") from error
    tasks = _supported(task_folder.find(Path(path), settings.dataset), settings, address)

    def generate(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
        for task in tasks[:size]:
            text = {"role": "user", "content": task.instruction}
            named = {"path": task.name, "digest": task.digest()}
            yield {"responses_create_params": {"input": [text]}, "harbor": named}

    longest_s = max(settings.agent_s(task) + 2 * settings.verifier_s(task) for task in tasks)
    here = {"tasks": {task.name: task for task in tasks}, "settings": settings, "sound": set[str]()}
    return Environment(
        resource=type("HarborSession", (HarborSession,), here),
        description=f"Harbor's tasks at {path}",
        domain="coding",
        replayable=False,
        opens_first=True,
        timeout_s=longest_s * 2 + SETUP_S,
        generate=generate,
        gold_reward=settings.gold,
    )
