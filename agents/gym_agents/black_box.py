"""Any program as the agent: a harness that knows only OpenAI's or Anthropic's API.

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
judged. The tokens of the other calls are in the row, too, for training: compactions, sub-agents, what was
asked again. When the rollout ends, so does the process, with its children.

A call that the model does not answer ends the rollout with that error. A program that fails, or that asks
the model nothing, is a failure and no reward; one that is killed is started again.

Each answer of the model is journaled. When the worker or the program is killed, the next attempt starts the
program again in an empty folder of the same path (`_harness_folder`), gives it the recorded answers until it
has caught up (`gym_faces.recordings.past_calls`), and asks the model from there on. The program does its own
work again. See `Options` for programs that must not repeat it, or that repeat it differently.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from gym_faces.recordings import Found, PastCall, PastCalls, Transcript, off_loop, tools_digest
from gym_runtime import GymError, Image, ResourceError, TaskError, UsageError, clock
from gym_runtime.adapters import ModelAnswer, Rollout
from gym_runtime.errors import UNREADABLE, JournalMismatch, ModelRefused
from gym_runtime.messages import (
    NULL,
    CreateParams,
    FunctionCall,
    FunctionCallOutput,
    Message,
    decode_items,
    lay_over,
)
from gym_sandbox.processes import Child, EndOfProcess
from msgspec import Raw

from gym_agents._harness_folder import MARK, HarnessFolder, harness_folder
from gym_agents._offered_tools import content_of, described, with_own_names, write_files, write_images

if TYPE_CHECKING:
    from gym_faces.gateway import Called, Question

VARIABLE = "GYM_HARNESS"
CALLS_AT_ONCE = 64
LAST_WORDS_BYTES = 2000
LAST_WORDS_S = 0.5
SETTLE_S = 5.0
"""How long a call that has no recorded answer waits for those that a program makes at the same time."""
LONG_BYTES = 1 << 16
"""Comparing so many bytes with a recorded call takes a few milliseconds."""
_SIGNALS = range(129, 129 + 64)
"""A shell's status for a program that was ended by a signal."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TERM", "USER", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLACEHOLDER = re.compile(r"\{(prompt|tools|images|mcp_url|mcp_config)\}")
_IMAGES = "{images}"
_DATA = re.compile("^data:image/[a-z]+;base64,")
_SAMPLING = ("temperature", "top_p", "max_output_tokens")
_SIDE_CHANNEL = ("extra_body", "chat_template_kwargs")

_encode = msgspec.json.Encoder().encode
_decode_params = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@lru_cache(64)
def _digest_of(tools: bytes) -> str:
    # A program offers the same tools with each call, and they may be 64 KB.
    return tools_digest(Raw(tools))


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's options.

    Attributes:
        resume: whether a program may do its work again, to continue after a loss. If not, its calls are not
            journaled, and a lost rollout starts again from the beginning.
        on_divergence: what becomes of a rollout whose program, run again, does not ask what it had asked. It
            starts again without the journal, as an attempt that failed; or it fails.
    """

    resume: bool = True
    on_divergence: Literal["restart", "fail"] = "restart"


class Agent:
    """Runs a program, whose model calls become the rollout's transcript. See the module."""

    command: ClassVar[Sequence[str]] = ()
    variables: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[type[Options]] = Options

    async def run(self, rollout: Rollout) -> None:
        calls = _Calls(rollout, rollout.options(self.options))
        said = [_in_full(part, program=place == 0) for place, part in enumerate(self._command())]
        async with anyio.create_task_group() as tasks:
            await self._work(rollout, calls, said, tasks)
            tasks.cancel_scope.cancel()  # calls of tools whose harness has ended
        if calls.failure is None:
            calls.end()
        if calls.failure is not None:
            raise calls.failure
        if not rollout.turns:
            raise ResourceError(
                f"{said[0]} asked the model nothing; does it know OPENAI_BASE_URL, ANTHROPIC_BASE_URL "
                "or GOOGLE_GEMINI_BASE_URL?",
                stage="agent",
            )
        if calls.incomplete is not None:
            rollout.truncate(calls.incomplete)

    async def _work(
        self, rollout: Rollout, calls: _Calls, said: Sequence[str], tasks: anyio.abc.TaskGroup
    ) -> None:
        # Here, because aiohttp is slow to import and no other agent needs it; in a thread first: on a busy
        # machine it takes seconds, in which the worker could not say that it has this rollout, and another
        # one would get it, too.
        await anyio.to_thread.run_sync(import_module, "gym_faces.gateway")
        from gym_faces.gateway import Admission, Gateway, ToolServer, serving

        prompt, images = prompt_of(rollout)
        if images and not any(_IMAGES in part for part in said):
            raise TaskError(f"the task has images, and the harness's command has no {_IMAGES}", stage="agent")
        offered = rollout.params.tools
        tools = ToolServer(offered, calls.call_tool, tasks)
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
            environment = {**_environment(rollout, url, f"gym-{name}", folder), **self.variables}
            # In the URL, because some harnesses lose a header.
            files = write_files(folder.own, f"{url}/rollouts/{name}/mcp")
            path = os.pathsep.join((folder.own, environment.get("PATH", os.defpath)))
            environment |= {"GYM_MCP_URL": files["mcp_url"], "PATH": path}
            fill = {"prompt": prompt, "tools": described(offered), **files}
            given = "" if any("{prompt}" in part for part in said) else prompt
            shown = [{**fill, "images": path} for path in write_images(folder.own, images)]
            forms = [(part, shown if _IMAGES in part else [fill]) for part in said]
            command = [_filled(part, each) for part, fills in forms for each in fills]
            with calls.scope:
                await _work(command, given, environment, folder.work)
        if tools.names:
            rollout.output = with_own_names(rollout.output, tools.names)

    def _command(self) -> Sequence[str]:
        if self.command:
            return self.command
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


def _filled(part: str, fill: Mapping[str, str]) -> str:
    # In one pass: a prompt may hold what looks like another placeholder.
    return _PLACEHOLDER.sub(lambda found: fill[found[1]], part)


class _Known(NamedTuple):
    """A call: its items, its name, what is stored with it, or the place of the recorded one."""

    items: list[Raw]
    name: str
    note: Raw | None = None
    past: int | None = None


class _Calls:
    """The harness's calls, as turns of the rollout.

    Attributes:
        scope: ends when the rollout is over before the harness is.
        failure: what ended it, if that was an error.
        incomplete: why the last answer stops short, or None.
    """

    def __init__(self, rollout: Rollout, options: Options) -> None:
        self.scope = anyio.CancelScope()
        self.failure: GymError | None = None
        self.incomplete: str | None = None
        self._rollout = rollout
        self._transcript = Transcript()
        rollout.branches = self._transcript.branches
        self._asked = 0
        self._options = options
        resume = options.resume and rollout.task.durability == "turn"
        self._past = PastCalls(rollout.past_calls()) if resume else None
        self._name = secrets.token_hex(4)
        self._found = anyio.Event()
        self._tool_turn = anyio.Lock()  # a session's calls do not overlap
        self._instructions: str | None = None
        self._sampling = _sampling(rollout.params)
        metadata = rollout.params.metadata or {}
        self._metadata = {name: text for name, text in metadata.items() if name not in _SIDE_CHANNEL}

    async def ask(self, question: Question) -> ModelAnswer:
        """One turn."""
        rollout = self._rollout
        if rollout.max_turns is not None and self._asked >= rollout.max_turns:
            rollout.truncate("max_turns")
            self.scope.cancel()
            raise ModelRefused(f"the rollout is over after its {rollout.max_turns} turns")
        self._asked += 1
        asked, transcript, before = question.call.input, self._transcript, self._transcript.answered
        written = await off_loop(len(asked), lambda: transcript.restore(asked))
        params = self._params(question.call.params)
        try:
            known = await self._recognised(f"{self._name}.{self._asked}", written, params)
            items = known.items
            prefix = await off_loop(len(items), lambda: transcript.prefix(items))
            turn = await rollout.respond_to(
                items, Raw(_encode(params)), prefix, note=known.note, past=known.past
            )
        except TaskError:
            raise  # the harness sent a request that no model can answer; its next one may be valid
        except GymError as error:
            self._fail(error)
            raise
        answer = turn.response.output
        count = len(items) + len(answer)
        other = None if items == written else written
        if await off_loop(
            count,
            lambda: transcript.add(items, answer, turn.tokens, before, name=known.name, written=other),
        ):
            self.incomplete = turn.incomplete
            self._instructions = msgspec.json.decode(params.get("instructions", b"null"), type=str | None)
        self._show()
        return ModelAnswer(response=Raw(_encode(turn.response)))

    async def _recognised(self, name: str, written: list[Raw], params: dict[str, Raw]) -> _Known:
        """A call, as it is recorded or will be. Instructions in ``params`` become those of the past, too."""
        past, transcript = self._past, self._transcript
        if past is None:
            return _Known(written, name)
        items = await off_loop(len(written), lambda: transcript.recorded(written))
        after, known = await off_loop(len(items), lambda: transcript.continued(items))
        added = items[known:]
        tools = _digest_of(bytes(params.get("tools", NULL)))
        instructions = params.get("instructions", NULL)
        found = await self._earlier(past, after, added, tools, instructions)
        told = past.put_back(instructions)
        if found is not None:
            told = past.instructions_of(found.call.name)
        if told is not instructions:
            params["instructions"] = told
        if found is not None:
            self._rollout.drifted_calls += found.drifted
            return _Known([*items[:known], *found.call.added], found.call.name, past=found.place)
        call = PastCall(
            name=name,
            after=after,
            added=added,
            tools=tools,
            instructions="" if told == past.instructions_of(after) else bytes(told).decode(),
        )
        past.begin(call)
        return _Known(items, name, Raw(_encode(call)))

    async def _earlier(
        self, past: PastCalls, after: str, added: Sequence[Raw], tools: str, instructions: Raw
    ) -> Found | None:
        """The recorded call that a call repeats.

        Raises:
            JournalMismatch: as `PastCalls.find`, and no call that is made at the same time explains it.
        """

        async def find() -> Found | None:
            if past.over or sum(map(len, map(bytes, added))) < LONG_BYTES:
                return past.find(after, added, tools, instructions)
            return await anyio.to_thread.run_sync(past.find, after, added, tools, instructions)

        with anyio.move_on_after(SETTLE_S):
            while True:
                found_one = self._found
                with suppress(JournalMismatch):
                    found = await find()
                    self._found.set()
                    self._found = anyio.Event()
                    return found
                await found_one.wait()
        return await find()

    def end(self) -> None:
        """The program has ended by itself."""
        try:
            if self._past is not None and self._rollout.truncated is None:
                self._past.require_caught_up()
        except JournalMismatch as error:
            self._fail(error)

    def _fail(self, error: GymError) -> None:
        if isinstance(error, JournalMismatch):
            error.retryable = self._options.on_divergence == "restart"
        self.failure = self.failure or error
        self.scope.cancel()

    async def call_tool(self, name: str, arguments: str) -> Called:
        """One call of a tool of the environment."""
        from gym_faces.gateway import Called

        rollout = self._rollout
        try:
            async with self._tool_turn:
                call = FunctionCall(call_id="", name=name, arguments=arguments)
                (failure,) = await rollout.call_tools([call])
                # The transcript has the call and its output when the harness tells its model.
                (said,) = decode_items([rollout.output.pop()])
        except GymError as error:
            self._fail(error)
            raise
        return Called(content_of(cast("FunctionCallOutput", said)), failed=failure is not None)

    def _show(self) -> None:
        """Copy the transcript so far into the rollout, which appends to its own copy."""
        rollout, transcript = self._rollout, self._transcript
        rollout.input, rollout.output = [*transcript.input], [*transcript.output]
        rollout.tokens = dict(transcript.tokens)
        rollout.params = msgspec.structs.replace(
            rollout.params, input=Raw(_encode(rollout.input)), instructions=self._instructions
        )

    def _params(self, asked: Raw) -> dict[str, Raw]:
        """The harness's request with the row's sampling settings."""
        fields = _decode_params(asked)
        if self._metadata:
            said = _decode_object(fields["metadata"]) if "metadata" in fields else {}
            fields["metadata"] = Raw(_encode({**said, **self._metadata}))
        return _decode_params(_encode(lay_over(fields, self._sampling)))


def _sampling(params: CreateParams) -> dict[str, Any]:
    """A row's sampling settings, which replace those of a harness's request."""
    row = msgspec.structs.asdict(params)
    found: dict[str, Any] = {name: row[name] for name in _SAMPLING if row[name] is not None}
    if isinstance(reasoning := msgspec.json.decode(params.reasoning), dict):
        found["reasoning"] = reasoning
    metadata = params.metadata or {}
    extra = _decode_object(metadata.get("extra_body", "{}"))
    kwargs = _decode_object(metadata.get("chat_template_kwargs", "{}"))
    if kwargs:
        extra["chat_template_kwargs"] = {**extra.get("chat_template_kwargs", {}), **kwargs}
    return {**found, "extra_body": extra}


async def _work(command: Sequence[str], prompt: str, environment: Mapping[str, str], folder: str) -> None:
    """Run the program to its end.

    Raises:
        ResourceError: it cannot be started, or fails.
    """
    try:
        child = Child(command, environment=environment, directory=folder, with_errors=True)
    except OSError as error:
        raise ResourceError(f"the harness {command[0]} cannot be started: {error}", stage="agent") from error
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
        said = (words[True] or words[False]).decode(errors="replace").strip() or "without a word"
        error = ResourceError(f"the harness {command[0]} ended with status {code}: {said}", stage="agent")
        # What was killed had no say in it; what fails by itself fails again with the same answers.
        error.retryable = code < 0 or code in _SIGNALS
        raise error


def prompt_of(rollout: Rollout) -> tuple[str, list[Image]]:
    """The task's instructions and messages as one text, with empty lines between them; and their images.

    Raises:
        TaskError: the row's input holds anything but texts and images of the system and the user.
    """
    images: list[Image] = []
    texts = [rollout.params.instructions] if rollout.params.instructions else []
    for one in decode_items(rollout.input):
        if not isinstance(one, Message) or one.role == "assistant":
            raise TaskError("a harness takes a prompt, not a conversation that has begun", stage="agent")
        for part in one.parts:
            if part.image_url is not None:
                images.append(_image(part.image_url))
            elif part.text is None:
                raise TaskError("a harness takes a prompt of texts and images only", stage="agent")
        texts.append(one.text)
    return "\n\n".join(text for text in texts if text), images


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
