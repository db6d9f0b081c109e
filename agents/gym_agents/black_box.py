"""Any program as the agent: a harness that knows only OpenAI's, Anthropic's or Google's API.

The operator sets the program, never a dataset's row: the environment variable ``GYM_HARNESS`` of the
agent workers holds the command as a JSON list. ``{prompt}`` in one of its arguments stands for the task's
prompt; without it the prompt is the program's standard input. Relative paths of files start at the worker's
working directory. Or a module of yours sets it::

    from gym_agents.black_box import Agent as BlackBox

    class Agent(BlackBox):
        command = ("my-agent", "--task", "{prompt}")
        variables = {"MY_AGENT_LOG": "quiet"}

An argument with ``{images}`` is repeated for each image of the prompt, with a file's path in its place, and
left out for a prompt without images. Without such an argument, tasks with images are refused.

The task's function tools are offered to the program over MCP. The server's URL is in ``GYM_MCP_URL`` and
stands for ``{mcp_url}`` in an argument; ``{mcp_config}`` is a file that names the server in Claude Code's
form. For programs that know no MCP, the command ``gym-tool NAME JSON`` calls a tool, and ``{tools}`` is a
text that describes them all. In the transcript that is judged, a call over MCP has the tool's own name.

Each rollout gets its own process in its own empty folder, with a home directory beside it, and its own
gateway, whose URL is in ``OPENAI_BASE_URL``, ``ANTHROPIC_BASE_URL`` and ``GOOGLE_GEMINI_BASE_URL`` and which
accepts only this rollout's key. The process gets only those of this worker's environment variables that
programs need to run. Its calls are the rollout's turns: they count against ``max_turns`` and the deadline,
they carry the row's sampling settings, and the longest conversation among them is the transcript that is
judged; of several that are equally long, one that offers tools, as a question for a title does not. The
tokens of the other calls are in the row, too, for training: compactions, sub-agents, what was asked again.
When the rollout ends, so does the process, with its children.

A call that the model does not answer ends the rollout with that error. A program that fails, or that asks
the model nothing, is a failure and no reward; one that is killed is started again.

Each answer of the model is journaled. When the worker or the program is killed, the next attempt starts the
program again in an empty folder of the same path (`_harness_folder`), gives it the recorded answers until it
has caught up (`gym_faces.recordings.past_calls`), and asks the model from there on. The program does its own
work again. See `Options` for programs that must not repeat it, or that repeat it differently.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

import anyio
from gym_runtime import Image, ResourceError, TaskError
from gym_runtime.adapters import Rollout
from gym_sandbox.processes import Child, EndOfProcess

from gym_agents._harness_calls import HarnessCalls
from gym_agents._harness_calls import HarnessOptions as Options
from gym_agents._offered_tools import write_images
from gym_agents._workplace import SIGNALS, check_harness, command_of, filled, prompt_parts, workplace

LAST_WORDS_BYTES = 2000
LAST_WORDS_S = 0.5
_IMAGES = "{images}"


class Agent:
    """Runs a program, whose model calls become the rollout's transcript. See the module."""

    command: ClassVar[Sequence[str]] = ()
    variables: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[type[Options]] = Options

    def __init__(self) -> None:
        check_harness(self.command, self.variables)

    async def run(self, rollout: Rollout) -> None:
        calls = HarnessCalls(rollout, rollout.options(self.options))
        said = command_of(self.command)
        prompt, images = prompt_of(rollout)
        if images and not any(_IMAGES in part for part in said):
            raise TaskError(f"the task has images, and the harness's command has no {_IMAGES}", stage="agent")
        async with workplace(rollout, calls, calls.call_tool, self.variables) as place:
            fill = {"prompt": prompt, **place.fill}
            given = "" if any("{prompt}" in part for part in said) else prompt
            shown = [{**fill, "images": path} for path in write_images(place.folder.own, images)]
            forms = [(part, shown if _IMAGES in part else [fill]) for part in said]
            command = [filled(part, each) for part, fills in forms for each in fills]
            with calls.working():
                await _work(command, given, place.variables, place.folder.work)
        calls.end(said[0])


async def _work(command: Sequence[str], prompt: str, environment: Mapping[str, str], folder: str) -> None:
    """Run the program to its end.

    Raises:
        ResourceError: it cannot be started, or fails.
        TaskError: an argument holds a NUL.
    """
    try:
        child = Child(command, environment=environment, directory=folder, with_errors=True)
    except OSError as error:
        raise ResourceError(f"the harness {command[0]} cannot be started: {error}", stage="agent") from error
    except ValueError as error:  # NUL, which no argument of a program may hold
        why = f"the harness's command cannot hold the prompt: {error}; let it read its standard input"
        raise TaskError(why, stage="agent") from error
    code = 0
    words: dict[bool, bytes] = {False: b"", True: b""}

    async def listen(errors: bool) -> None:
        while piece := await child.read(errors=errors):
            words[errors] = (words[errors] + piece)[-LAST_WORDS_BYTES:]

    async def tell() -> None:
        with suppress(EndOfProcess):  # a program may exit without reading all of its input
            await child.write(prompt.encode())
        child.close_input()

    async with child, anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        async with anyio.create_task_group() as listening:
            listening.start_soon(listen, False)
            listening.start_soon(listen, True)
            code = await child.wait()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # its children keep the pipes open
            listening.cancel_scope.deadline = anyio.current_time() + LAST_WORDS_S
        tasks.cancel_scope.cancel()
    if code:
        *before, said = (words[True] or words[False]).decode(errors="replace").strip().splitlines() or [""]
        # The last line first: a summary shows the beginning, and a traceback's last line is the cause.
        said = "; before it: ".join(filter(None, (said, "\n".join(before)))) or "without a word"
        error = ResourceError(f"the harness {command[0]} ended with status {code}: {said}", stage="agent")
        # What was killed had no say in it; what fails by itself fails again with the same answers.
        error.retryable = code < 0 or code in SIGNALS
        raise error


def prompt_of(rollout: Rollout) -> tuple[str, list[Image]]:
    """The task's instructions and messages as one text, with empty lines between them; and their images.

    Raises:
        TaskError: the row's input holds anything but texts and images of the system and the user.
    """
    messages = prompt_parts(rollout.input)
    texts = ["".join(part for part in parts if isinstance(part, str)) for parts in messages]
    images = [part for parts in messages for part in parts if isinstance(part, Image)]
    return "\n\n".join(text for text in (rollout.params.instructions, *texts) if text), images
