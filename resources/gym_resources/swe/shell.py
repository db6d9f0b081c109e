"""The model's shell: what it is told, the commands in its answers, and how they run in its container."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from gym_runtime import Reply, ResourceError, SessionLost
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Container, Interrupted, Result, StartError
from gym_sandbox.left_running import left_running
from gym_sandbox.saved_files import SavedFiles, Store

from gym_resources.swe.instances import Instance
from gym_resources.swe.later_history import remove_later_history
from gym_resources.swe.patch_evaluation import DIFF, GIT_LIMIT_S, prepare
from gym_resources.swe.patches import MAX_BYTES

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SHOWN_CHARS = 10_000
STARTS = re.compile(r"(?<![&>])&(?![&>0-9])|\b(nohup|setsid|disown|daemon\w*|start|serve\w*)\b")
"""What a command says that may leave processes running: to look for them costs as much as a command."""
CONTAINERS = 3
"""How many are tried where something else than the model ends them."""
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "bash",
    "description": "Run a bash script in the repository's folder; each call is a new shell.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The script."}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "strict": True,
}
SYSTEM = (
    "You are a software engineer who works in a shell. Every answer calls the tool bash once, or holds one "
    "block of bash, after a short reason for this command."
)
ISSUE = """\
Solve this issue by changing the source code of the repository in your working directory:

<issue>
{statement}
</issue>

- Look at the code first, reproduce the issue, change the code, and try it again.
- Solve the issue in general, not only for its example. Tests, and what configures them, stay as they are.
- Each command starts in a new shell in the repository's folder: variables and folders are not remembered.
- Nothing can be asked, and there is no network. Use commands that need no terminal.
- When you have finished, run this command alone: echo {submit}
"""
NO_COMMAND = (
    "Your answer has no command. Call the tool bash, or write one block that begins with ```bash. When you "
    f"have finished: echo {SUBMIT}"
)
BAD_ARGUMENTS = 'The arguments must be a JSON object with one text: {"command": "ls"}'
NOT_BASH = "There is one tool: bash."


class Command(msgspec.Struct, frozen=True):
    """A command of the model: its script, or the ``problem`` with it; ``call_id`` is "" for a block."""

    script: str
    call_id: str = ""
    problem: str = ""


class Executed(msgspec.Struct, frozen=True):
    """What the model reads of a command, and whether the command said that the work is finished."""

    text: str
    submitted: bool = False


class _Arguments(msgspec.Struct):
    command: str


_decode = msgspec.json.Decoder(_Arguments).decode


def messages(statement: str) -> list[dict[str, Any]]:
    """The first messages of a rollout."""
    issue = ISSUE.replace("{submit}", SUBMIT).replace("{statement}", statement)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": issue}]


def commands(reply: Reply) -> list[Command]:
    """The commands of an answer, in order: its calls, or else its last block of bash."""
    found: list[Command] = []
    for call in reply.function_calls:
        problem, script = "", ""
        try:
            script = _decode(call.arguments).command
        except UNREADABLE:
            problem = BAD_ARGUMENTS
        if call.name != "bash":
            problem, script = NOT_BASH, ""
        found.append(Command(script, call.call_id, problem))
    if found:
        return found
    block = _block(reply.text)
    return [Command(block)] if block else []


def _block(text: str) -> str:
    for mark in ("```bash\n", "```sh\n", "```mswea_bash_command\n"):
        _, opened, rest = text.rpartition(mark)
        inside, closed, _ = rest.partition("\n```")
        if opened and closed:
            return inside
    return ""


class Shell:
    """The container in which the model works; `start` does not wait for it.

    Args:
        store: where the container's files are saved; None saves nothing.

    Attributes:
        lost: the names of the processes that ran when a container was lost, and do not run in the later one.
    """

    def __init__(self, instance: Instance, image: str, store: Store | None = None) -> None:
        self._instance, self._image, self._store = instance, image, store
        self._container: Container = instance.container(image)
        self._files = SavedFiles(self._container, store)
        self._base = ""
        self._state: dict[str, Any] | None = None
        self._unsaved = 0
        self._ended_by_command = False
        self._may_run = False
        self.lost: list[str] = []

    async def start(self) -> None:
        """Begin to start the container.

        Raises:
            StartError: it cannot be started.
        """
        await self._container.start()

    async def execute(self, command: Command, timeout_s: float) -> Executed:
        """Run a command of the model.

        If the container ends meanwhile, a new one gets the files as they were before the command, and runs it
        again. If that one ends, too, it is the command's doing, and the model reads so.

        Raises:
            StartError: the container could not be started.
            SessionLost: it ended before, and its files are not saved.
        """
        if command.problem:
            return Executed(command.problem)
        await self._prepare()
        if "\0" in command.script:
            return Executed("A command must not hold NUL characters.")
        self._require_its_files()
        self._may_run |= bool(STARTS.search(command.script))
        done = await self._run(command.script, timeout_s)
        self._unsaved += 1
        submitted = done.exit_code == 0 and done.stdout.lstrip().startswith(SUBMIT.encode())
        return Executed(shown(done, timeout_s), submitted)

    async def patch(self) -> str:
        """The changes since the container started; "" without changes, or if they cannot be read.

        Raises:
            SessionLost: no command of the model's has ended the container, and what was done there is gone.
        """
        if not self._base or self._ended_by_command:
            return ""
        self._require_its_files()
        done = await self._run(f"{DIFF} {self._base} -- .", GIT_LIMIT_S)
        if self._container.ended and self._unsaved:
            raise SessionLost(self._container.ended, stage="sandbox")
        if done.exit_code != 0 or done.truncated or len(done.stdout) > MAX_BYTES:
            return ""
        return done.stdout.decode(errors="replace")

    async def save(self) -> dict[str, Any] | None:
        """The state of its files; None if they are not saved.

        Raises:
            SessionLost: the container has ended, and what was done since the last state is gone.
        """
        try:
            files = await self._files.save() if self._base else None
            look = files and self._may_run and not self._container.ended
            running = await left_running(self._container) if look else []
        except Interrupted as error:
            raise SessionLost(str(error), stage="sandbox") from error
        self._require_its_files()
        self._may_run = bool(running) or (not files and self._may_run)
        self._state = files and {"files": files, "base": self._base, "running": running, "lost": self.lost}
        self._unsaved = 0 if files else self._unsaved
        return self._state

    async def restore(self, saved: dict[str, Any]) -> None:
        """Continue, in a new container, with files that `save` has saved.

        Raises:
            StartError: the container cannot be started, or not with these files.
        """
        await self._whatever_ends(lambda: self._files.begin(saved["files"]))
        self._base, self._state = saved["base"], saved
        # For the row. The model is not told: a call that is repeated now must answer as it did.
        self.lost = sorted({*saved.get("lost", ()), *saved.get("running", ())})

    async def close(self) -> None:
        """Remove the container."""
        await self._container.close()

    async def _run(self, script: str, timeout_s: float) -> Result:
        """As `Container.run`, again in a new container with the same files if this one ends.

        Raises:
            Interrupted: something outside has ended it, and its files are not saved.
        """
        killed, again = 0, self._ended_by_command
        while True:
            try:
                done = await self._container.run(script, timeout_s=timeout_s)
            except Interrupted:
                killed += 1
                if killed == CONTAINERS or not await self._replaced():
                    raise
                continue
            if again or not self._container.ended or not await self._replaced():
                break
            again = True
        self._ended_by_command = bool(self._container.ended)
        return done

    def _require_its_files(self) -> None:
        if self._container.ended and not self._ended_by_command:
            raise SessionLost(self._container.ended, stage="sandbox")

    async def _replaced(self) -> bool:
        """Whether a new container has the files that the ended one had before its last command."""
        if self._unsaved:
            return False
        await self._renew()
        await (self.restore(self._state) if self._state else self._prepare())
        return True

    async def _renew(self) -> None:
        await self._container.close()
        self._container = self._instance.container(self._image)
        self._files, self._base = SavedFiles(self._container, self._store), ""

    async def _whatever_ends(self, steps: Callable[[], Awaitable[None]]) -> None:
        """Do what no command of the model's has a part in; again in a new container if this one ends."""
        for left in reversed(range(CONTAINERS)):
            try:
                await steps()
                break
            except (StartError, ResourceError, Interrupted):
                if not left or not self._container.ended:
                    raise
                await self._renew()

    async def _prepare(self) -> None:
        """Before the model's first command: write a local repository, or remove what an image's repository
        knows of later commits; and note the commit.
        """
        if self._base:
            return

        async def steps() -> None:
            await self._files.begin()
            if not self._instance.local:
                await remove_later_history(self._container, self._instance.instance_id)
            self._base = await prepare(self._container, self._instance, history=True)

        await self._whatever_ends(steps)


def shown(done: Result, timeout_s: float) -> str:
    """What the model reads of a command's result."""
    output = (done.stdout + done.stderr).decode(errors="replace")
    if len(output) > SHOWN_CHARS:
        half = SHOWN_CHARS // 2
        left = len(output) - 2 * half
        output = f"{output[:half]}\n[{left} characters left out]\n{output[-half:]}"
    code = f"killed after {timeout_s:g} s" if done.timed_out else str(done.exit_code)
    return f"<returncode>{code}</returncode>\n<output>\n{output}</output>"
