"""Tasks in Harbor's format, such as Terminal-Bench 2: ``harbor:PATH``.

PATH is a task's folder, a folder of tasks, or a ``registry.json`` (``?dataset=NAME@VERSION``). The model
works in the task's box by one tool, ``bash``, until it answers without a command or its time is up; both are
judged. Then its processes are ended, and the task's tests run in a new box: with all that the agent could
write (a shared verifier), or with the declared artifacts (a separate one). The reward is what they write. In
a task of several steps, the next instruction follows as the user's message.

A box has no network unless the command allows it (``?network=task``). So tests that install something can
fail and still write a 0: before a reward below ``gold`` counts, the task's own solution is judged in the
same way, once in each worker, and the rollout fails if it is not graded full. What a task asks for and does
not get is refused by name.

MCP servers of a task run in its box, and their tools are offered as ``SERVER__TOOL``; skills are listed after
the instruction.

After each step the files of the agent's box are saved: when a worker is lost, its rollouts continue with
these on another one. What a command has left running is not there any more.
Source: the folders, the order of a trial and the reward files of Harbor 0.26 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from anyio import to_thread
from gym_runtime import Environment, Episode, Image, Reply, Step, Task, TaskError, UsageError, Verdict
from gym_runtime.messages import FunctionCall, choices

from gym_resources.guests.played import named_code
from gym_resources.harbor_tasks import box_servers, grading, task_box, task_file, task_folder
from gym_resources.harbor_tasks.box_servers import BoxServers
from gym_resources.harbor_tasks.task_folder import HarborTask
from gym_resources.harbor_tasks.task_trial import Settings, Trial
from gym_resources.swe import shell

SETUP_S = 600.0
TOOL: dict[str, Any] = {**shell.TOOL, "description": "Run a bash script; each call is a new shell."}


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
    trial: Trial | None = None
    servers: BoxServers

    async def open(self) -> None:
        named = self.task.harbor
        found = self.tasks.get(named.path)
        if found is None:
            raise TaskError(f"there is no task '{named.path:.100}' in what harbor: names")
        if await to_thread.run_sync(found.digest) != named.digest:
            raise TaskError(f"task {found.name} is not as it was when the row was made: {found.folder}")
        self.offered_tools = [TOOL]
        self.servers = BoxServers()
        self.ended_by = "turns"
        self.trial = Trial(found, self.settings, self.store)
        await self.trial.open()

    @property
    def opened(self) -> Trial:
        assert self.trial is not None
        return self.trial

    async def reset(self) -> str | None:
        trial, given = self.opened, self.task.responses_create_params.input_items()
        said = [] if given else [trial.task.instruction]
        part = trial.task.file.environment
        if self.settings.play == "agent":
            await self._offer()
            if part.skills_dir and (about := await box_servers.skills(trial.box, part.skills_dir)):
                said.append(about)
        return "\n\n".join(said) or None

    async def _offer(self) -> None:
        trial = self.opened
        parts = trial.task.file.environment.mcp_servers
        tools = await self.servers.begin(trial.box, parts, trial.step.agent.user)
        self.offered_tools = [TOOL, *tools]

    async def step(self, reply: Reply) -> Step:
        trial = self.opened
        if self.settings.play != "agent":
            self.ended_by = self.settings.play
            await trial.play(solve=self.settings.play == "oracle")
            return Step(terminated=True)
        commands = shell.commands(reply)
        asked = {call.call_id: call for call in reply.function_calls if call.name in self.servers}
        outputs: dict[str, str | list[str | Image]] = {}
        said: str | None = None
        for command in commands:
            if (call := asked.get(command.call_id)) is not None:
                outputs[command.call_id] = await self._called(call)
                continue
            text = command.problem or await self._executed(command.script)
            if command.call_id:
                outputs[command.call_id] = text
            else:
                said = text
        late = trial.left_s <= 0
        if commands and not late:
            return Step(observation=said, tool_outputs=outputs)
        if not trial.in_last_step:  # the last step is judged in verify
            await trial.judge()
            if not trial.over:
                instruction = trial.task.instruction_of(trial.step)
                return Step(observation=instruction, tool_outputs=outputs)
        self.ended_by = "timeout" if late else "agent"
        return Step(tool_outputs=outputs, terminated=not late, truncated=late)

    async def verify(self, reply: Reply) -> Verdict:
        trial = self.opened
        if not trial.over:
            await trial.judge()
        rewards = trial.rewards()
        reward = grading.chosen(rewards, self.settings.reward_key)
        if reward < self.settings.gold:
            await self._control(trial)
        fields: dict[str, Any] = {
            "harbor_task": trial.task.name,
            "harbor_ended_by": self.ended_by,
            "harbor_log": trial.grades[-1].log,
            "verifier_s": sum(one.verifier_s for one in trial.grades),
        }
        if trial.task.file.steps:
            steps = zip(trial.task.file.steps, trial.grades, strict=False)
            fields["harbor_steps"] = [{"name": step.name, "rewards": one.rewards} for step, one in steps]
        if trial.failed_hooks:
            fields["harbor_failed_hooks"] = trial.failed_hooks
        return Verdict(reward, components=rewards, fields=fields)

    async def save(self) -> Any:
        saved = await self.opened.save()
        return saved and {**saved, "ended_by": self.ended_by}

    async def on_restore(self, saved: Any) -> None:
        opened = self.opened
        self.trial = Trial(opened.task, self.settings, self.store)  # its box starts again
        await opened.close()
        await self.trial.restore(saved)
        self.ended_by = saved["ended_by"]
        if self.settings.play == "agent":
            await self._offer()

    async def close(self) -> None:
        if self.trial is not None:
            await self.trial.close()

    async def _called(self, call: FunctionCall) -> str | list[str | Image]:
        if self.opened.left_s <= 0:
            return "Your time is up."
        trial = self.opened
        return await self.servers.call(call.name, call.arguments, trial.box, trial.step.agent.user)

    async def _executed(self, script: str) -> str:
        if "\0" in script:
            return "A command must not hold NUL characters."
        if self.opened.left_s <= 0:
            return "Your time is up."
        limit_s = min(self.opened.left_s, self.settings.command_s)
        user = self.opened.step.agent.user
        return shell.shown(await self.opened.box.run(script, timeout_s=limit_s, user=user), limit_s)

    async def _control(self, trial: Trial) -> None:
        """Judge the task's own solution, unless that was done before.

        Raises:
            ResourceError: it is not graded full, so the tests or their box do not work here.
        """
        digest, wanted = self.task.harbor.digest, self.settings.gold
        if self.settings.control == "none" or digest in self.sound or not _solvable(trial.task):
            return
        if self.settings.play != "oracle":
            trial = Trial(trial.task, self.settings)
            try:
                await trial.open()
                await trial.play(solve=True)
            finally:
                await trial.close()
        reward = grading.chosen(trial.rewards(), self.settings.reward_key)
        if reward < wanted:
            raise await to_thread.run_sync(grading.doubts, trial.task, trial.grades[-1], reward, wanted)
        self.sound.add(digest)


def _solvable(task: HarborTask) -> bool:
    return all(task.solution_of(step) for step in task.file.all_steps)


def _refusals(task: HarborTask, settings: Settings) -> list[str]:
    """What of a task does not run here."""
    found = task_file.refusals(task.file, plain=settings.plain, network=settings.network == "task")
    steps = task.file.all_steps
    if task.has("environment/docker-compose.yaml"):
        found.append(
            "it has a docker-compose.yaml; only one container is supported: start its services in the "
            "Dockerfile's image"
        )
    if task.has("trajectory.json") or any(task.has(f"steps/{step.name}/trajectory.json") for step in steps):
        found.append("it begins with a trajectory.json")
    for step in steps:
        part = step.verifier.environment
        own = not settings.plain and part is not None and part.docker_image
        if not own and not any(task.has(f"{folder}/test.sh") for folder in task.tests_of(step)):
            found.append(f"{step.name or 'it'} has no tests/test.sh")
    if settings.plain:
        for part in task_file.boxes(task.file):
            task_box.check_directory(part.workdir or task_box.WORKDIR, task.name)
    else:
        if not task.file.environment.docker_image and not task.has("environment/Dockerfile"):
            found.append(
                "it has neither a docker_image nor an environment/Dockerfile; ?image=none runs it in a "
                "sandbox with this machine's programs"
            )
    if settings.network == "task" and "public" in task_file.networks(task.file):
        if settings.plain:
            found.append("it asks for a network; without ?network=task it runs without one")
        elif settings.shared and len(task_file.networks(task.file)) > 1:
            found.append("its agent and its tests have different networks, and ?shared=true is one box")
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
            given = [step.verifier.env for step in task.file.all_steps]
            given += [task.file.solution.env, *(part.env for part in task_file.boxes(task.file))]
            for variables in given:
                task_file.resolved(variables, settings.known, f"task {task.name}")
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
        said = choices(error, Settings) or f"; settings are {names}"
        raise UsageError(f"harbor:{address}: {error}{said}") from error
    tasks = _supported(task_folder.find(Path(path), settings.dataset), settings, address)

    def generate(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
        for task in tasks[:size]:
            text = {"role": "user", "content": task.instruction}
            named = {"path": task.name, "digest": task.digest()}
            yield {"responses_create_params": {"input": [text]}, "harbor": named}

    longest_s = max(
        sum(settings.agent_s(step) + settings.verifier_s(step) for step in task.file.all_steps)
        for task in tasks
    )
    here = {"tasks": {task.name: task for task in tasks}, "settings": settings, "sound": set[str]()}
    return Environment(
        resource=type("HarborSession", (HarborSession,), here),
        description=f"Harbor's tasks at {path}",
        domain="coding",
        opens_first=True,
        timeout_s=longest_s * 2 + SETUP_S,
        generate=generate,
        gold_reward=settings.gold,
    )
