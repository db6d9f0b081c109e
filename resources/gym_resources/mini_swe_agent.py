"""Software issues, solved with a shell: the model works in the container of the repository, step by step.

The model has one tool, ``bash``; an answer may also hold one block of bash instead. Each command runs in a
shell of its own in the repository's folder, for at most ``step_timeout`` seconds; the model reads its exit
code and output, of a long output the beginning and the end. It finishes with a command whose output begins
with the line ``COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT``. The container starts while the model thinks about its
first command; later commits in an image's repository are removed before (`gym_resources.swe.later_history`).

Its changes are collected as a patch, which is applied in a new container, where the tests run
(`gym_resources.swe.patch_evaluation`): changes of tests, and of what configures their runner, are not
applied. The reward is 1 if all of ``FAIL_TO_PASS`` and ``PASS_TO_PASS`` pass, else 0. With ``run_golden``,
the perfect patch is evaluated instead, which checks an installation.

The image follows from ``instance_id`` and ``subset``, or is the row's ``image_name``; a row with ``files``
needs none. After each step the container's files are saved: when a worker is lost, its rollouts continue with
these on another one. What a command has left running is not there any more.
Source: the rules of NeMo Gym's ``mini_swe_agent``, and of github.com/SWE-agent/mini-swe-agent (MIT); rows of
SWE-Gym and SWE-bench are used as they are; the example rows, and those that ``generate`` makes, are our own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Verdict
from gym_runtime.messages import CreateParams

from gym_resources.swe import local_rows, shell, specs
from gym_resources.swe.instances import Instance
from gym_resources.swe.patch_evaluation import Evaluation, evaluate

FORMAT_ERRORS = 3


class MiniSweTask(Instance, kw_only=True):
    responses_create_params: CreateParams  # pyright: ignore[reportGeneralTypeIssues] - required of a row
    subset: str = "gym"
    split: str = ""
    image_name: str = ""
    step_timeout: float = 600.0
    eval_timeout: float = 1800.0
    run_golden: bool = False

    @property
    def image(self) -> str:
        return self.image_name or specs.image(self.instance_id, self.subset)


class MiniSweSession(Episode[MiniSweTask]):
    async def open(self) -> None:
        self.offered_tools = [shell.TOOL]
        self.exit_status = "unfinished"
        self.mistakes = 0
        self.shell = shell.Shell(self.task, self.task.image, self.store)
        if not self.task.run_golden:
            await self.shell.start()

    async def reset(self) -> list[dict[str, Any]] | None:
        if self.task.responses_create_params.input_items():
            return None
        return shell.messages(self.task.problem_statement)

    async def step(self, reply: Reply) -> Step:
        if self.task.run_golden:
            return Step(terminated=True)
        commands = shell.commands(reply)
        self.mistakes = 0 if any(command.script for command in commands) else self.mistakes + 1
        outputs: dict[str, str] = {}
        said: str | None = None if commands else shell.NO_COMMAND
        for command in commands:
            done = await self.shell.execute(command, self.task.step_timeout)
            if command.call_id:
                outputs[command.call_id] = done.text
            else:
                said = done.text
            if done.submitted:
                self.exit_status = "submitted"
                break
        submitted = self.exit_status == "submitted"
        stuck = self.mistakes >= FORMAT_ERRORS
        return Step(
            observation=None if submitted else said,
            tool_outputs=outputs,
            terminated=submitted,
            truncated=stuck and not submitted,
        )

    async def verify(self, reply: Reply) -> Verdict:
        task = self.task
        patch = task.patch if task.run_golden else await self.shell.patch()
        await self.shell.close()
        found = Evaluation(problem="there is no patch")
        if patch.strip():
            found = await evaluate(task, task.image, patch, task.eval_timeout)
        report = {**msgspec.to_builtins(found), "resolved": found.resolution == "RESOLVED_FULL"}
        fields = {
            "instance_id": task.instance_id,
            "exit_status": "golden" if task.run_golden else self.exit_status,
            "model_patch": patch,
            **({"lost_processes": self.shell.lost} if self.shell.lost else {}),
            "metadata": {"eval_report": report},
        }
        return Verdict(float(report["resolved"]), fields=fields)

    async def save(self) -> Any:
        saved = await self.shell.save()
        return saved and {**saved, "exit_status": self.exit_status, "mistakes": self.mistakes}

    async def on_restore(self, saved: Any) -> None:
        await self.shell.restore(saved)
        self.exit_status, self.mistakes = saved["exit_status"], saved["mistakes"]

    async def close(self) -> None:
        await self.shell.close()


environment = Environment(
    resource=MiniSweSession,
    description="Solve a software issue with a shell in the repository's container, judged by its tests.",
    domain="coding",
    data_license="MIT",
    extra="sandbox",
    max_turns=250,
    timeout_s=7200.0,
    agent_refs=("mini_swe_simple_agent", "mini_swe_main", "mini_swe_agent_2"),
    generate=local_rows.agent_rows,
)
