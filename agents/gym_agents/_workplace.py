"""Where a program that is the agent plays its rollout: a folder, a gateway with the task's tools, variables.

The program is told by its environment where they are, and gets of the worker's own environment only what
programs need to run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from gym_runtime import Image, TaskError, UsageError, clock
from gym_runtime.adapters import Rollout
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import Message, decode_items
from msgspec import Raw

from gym_agents._harness_calls import HarnessCalls
from gym_agents._harness_folder import MARK, HarnessFolder, harness_folder
from gym_agents._offered_tools import described, with_own_names, write_files

if TYPE_CHECKING:
    from gym_faces.gateway import Called

VARIABLE = "GYM_HARNESS"
CALLS_AT_ONCE = 64
SIGNALS = range(129, 129 + 64)
"""A shell's status for a program that was ended by a signal."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TERM", "USER", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLACEHOLDER = re.compile(r"\{(prompt|tools|images|mcp_url|mcp_config)\}")
_DATA = re.compile("^data:image/[a-z]+;base64,")


class Workplace(NamedTuple):
    """What a program is started with.

    Attributes:
        variables: its environment.
        fill: what stands for ``{mcp_url}``, ``{mcp_config}`` and ``{tools}`` in its command.
        has_tools: whether the task begins with function tools.
    """

    folder: HarnessFolder
    variables: dict[str, str]
    fill: dict[str, str]
    has_tools: bool


@asynccontextmanager
async def workplace(
    rollout: Rollout,
    calls: HarnessCalls,
    call_tool: Callable[[str, str], Awaitable[Called]],
    variables: Mapping[str, str],
) -> AsyncGenerator[Workplace]:
    """A rollout's workplace, until the context ends; then calls in the transcript get the tools' own names.

    Args:
        call_tool: as `HarnessCalls.call_tool`.
        variables: further ones, which come before those set here.
    """
    # Here, because aiohttp is slow to import and no other agent needs it; in a thread first: on a busy
    # machine it takes seconds, in which the worker could not say that it has this rollout, and another
    # one would get it, too.
    await anyio.to_thread.run_sync(import_module, "gym_faces.gateway")
    from gym_faces.gateway import Admission, Gateway, ToolServer, serving

    async with anyio.create_task_group() as tasks:
        tools = ToolServer(lambda: rollout.params.tools, call_tool, tasks)
        gateway = Gateway(
            calls.ask,
            models=(rollout.task.model,),
            anonymous=False,  # harnesses of other rollouts run on this machine, too
            admission=Admission(CALLS_AT_ONCE),
            tools=tools,
            timeout_s=max(1.0, rollout.deadline_s - clock.monotonic()),
        )
        async with harness_folder(rollout.task.rollout_id) as folder, serving(gateway) as url:
            name = gateway.names.of(rollout.task.rollout_id)
            environment = {**_environment(rollout, url, f"gym-{name}", folder), **variables_of(variables)}
            # In the URL, because some harnesses lose a header.
            files = write_files(folder.own, f"{url}/rollouts/{name}/mcp")
            path = os.pathsep.join((folder.own, environment.get("PATH", os.defpath)))
            environment |= {"GYM_MCP_URL": files["mcp_url"], "PATH": path}
            yield Workplace(
                folder, environment, {"tools": described(rollout.params.tools), **files}, bool(tools.names)
            )
        if tools.names:
            rollout.output = with_own_names(rollout.output, tools.names)
        tasks.cancel_scope.cancel()  # calls of tools whose harness has ended


def check_harness(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Refuse what would fail each rollout, where an agent is made: once, and before any rollout.

    No command at all is refused only by a rollout: a worker may have agents that it is never asked for.

    Raises:
        UsageError: as `command_of` and `variables_of`; or there is no such program.
    """
    path = variables_of(variables).get("PATH")
    if not command and not os.environ.get(VARIABLE):
        return
    program = command_of(command)[0]
    if shutil.which(program, path=path) is None:
        where = f"in {os.getcwd()}" if os.sep in program else "in PATH"
        raise UsageError(
            f"there is no executable program {program!r} {where}: install it there, or correct the agent's "
            f"command ({VARIABLE}, or 'command' of its class)"
        )


def variables_of(own: Mapping[str, str]) -> Mapping[str, str]:
    """An agent's own variables.

    Raises:
        UsageError: one is no string.
    """
    for name, value in dict[str, object](own).items():
        if not isinstance(value, str):
            kind = type(value).__name__
            raise UsageError(f"the agent's variable {name} must be a string, and it is of type {kind}")
    return own


def command_of(own: Sequence[str]) -> list[str]:
    """A program's command, by default the operator's; with absolute paths of files.

    Raises:
        UsageError: no command is set, or it is no list of texts.
    """
    try:
        command = msgspec.convert(own, list[str]) or _operators()
    except msgspec.ValidationError as error:
        what = f"the agent's command must be a list of strings, not {own!r}: {error}"
        raise UsageError(what) from error
    return [_in_full(part, program=place == 0) for place, part in enumerate(command)]


def _operators() -> list[str]:
    said = os.environ.get(VARIABLE, "")
    try:
        command = msgspec.json.decode(said, type=list[str]) if said else []
    except UNREADABLE as error:
        raise UsageError(f"{VARIABLE} must be a JSON list of strings, not {said!r}: {error}") from error
    if not command:
        example = json.dumps(["python3", "/path/to/agent.py"])
        raise UsageError(f"no harness is set: start the agent workers with {VARIABLE}='{example}'")
    return command


def _in_full(part: str, *, program: bool) -> str:
    """A part of the command; a file's path is made absolute, since the harness runs in another folder.

    A program without a slash is looked up in PATH, as by a shell.
    """
    if program and os.sep not in part:
        return part
    return os.path.abspath(part) if os.path.isfile(part) else part


def filled(part: str, fill: Mapping[str, str]) -> str:
    """A part of the command with what its placeholders stand for."""
    # In one pass: a prompt may hold what looks like another placeholder.
    return _PLACEHOLDER.sub(lambda found: fill.get(found[1], found[0]), part)


def prompt_parts(items: Sequence[Raw]) -> list[list[str | Image]]:
    """The texts and images of each message of a prompt, in order.

    Raises:
        TaskError: it holds anything but texts and images of the system and the user.
    """
    return [_parts(one) for one in decode_items(list(items))]


def _parts(one: object) -> list[str | Image]:
    if not isinstance(one, Message) or one.role == "assistant":
        raise TaskError("a harness takes a prompt, not a conversation that has begun", stage="agent")
    found: list[str | Image] = [] if one.parts else [one.text]
    for part in one.parts:
        if part.image_url is not None:
            found.append(_image(part.image_url))
        elif part.text is not None:
            found.append(part.text)
        else:
            raise TaskError("a harness takes a prompt of texts and images only", stage="agent")
    return found


def _image(url: str) -> Image:
    try:
        # An address would have to be fetched, and a row must not choose what a worker asks for.
        return Image(b64decode(_DATA.sub("", url, count=1), validate=True))
    except ValueError as error:
        raise TaskError(f"a harness takes images that are in the row: {error}", stage="agent") from None


def _environment(rollout: Rollout, url: str, key: str, folder: HarnessFolder) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "HOME": folder.home,
        "TMPDIR": folder.temp,
        MARK: folder.path,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": rollout.task.model,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": rollout.task.model,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
        "GYM_ROLLOUT_ID": rollout.task.rollout_id,
        "NO_PROXY": "127.0.0.1",
        **{name.upper(): value for name, value in rollout.trace_context.items()},
    }
