"""Any program that speaks the Agent Client Protocol as the agent, over several turns of its user.

As `black_box`, with a program that is prompted rather than run once: Codex and Claude Code by their adapters,
Gemini CLI, OpenCode, Goose. The operator sets it by ``GYM_HARNESS``, or a module of yours::

    from gym_agents.acp import Agent as Acp

    class Agent(Acp):
        command = ("opencode", "acp")

Each rollout has one process and one session. The task's instructions and messages are the first prompt, with
its images if the program takes any. What follows depends on the environment:

- one that goes step by step gets the last answer of the model, and its observation is the next prompt. A tool
  that it offers is a step of its own, with the call as the answer;
- a row with a ``simulated_user`` has that user answer (see `dialogue`);
- else the first turn is the only one.

The task's function tools are offered over MCP, by the protocol itself; a program that listens is told when
a step offers further ones (`gym_faces.gateway.mcp_api`). The gateway, the folder, the variables
and the transcript are those of `black_box`, and so is what happens after a loss: a new process gets the same
prompts, and the recorded answers until it has caught up. Files and terminals are not offered to the program,
which has its own folder.

A turn that ends with an error, also with one that stands only in its metadata, that asked the model nothing,
or whose last request no model could answer is a failure and no reward. When a limit ends the rollout, the
turn is cancelled, and the program killed if it does not end.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

import anyio
import msgspec
from gym_runtime import GymError, Image, ResourceError, TaskError
from gym_runtime.adapters import Rollout, Turn
from gym_runtime.escapes import shown
from gym_runtime.messages import (
    FunctionCall,
    FunctionCallOutput,
    Message,
    Response,
    decode_items,
    user_message,
)
from gym_runtime.version import VERSION
from msgspec import Raw

from gym_agents._acp_connection import SAID_CHARS, AcpConnection, acp_connection
from gym_agents._harness_calls import HarnessCalls, HarnessOptions
from gym_agents._offered_tools import SERVER
from gym_agents._workplace import Workplace, check_harness, command_of, filled, prompt_parts, workplace
from gym_agents.dialogue import Person

if TYPE_CHECKING:
    from gym_faces.gateway import Called

PROTOCOL = 1
START_S = 120.0
"""How long a program may take to begin a session."""
_CUT = {"max_tokens": "max_output_tokens", "max_turn_requests": "max_turn_requests", "refusal": "refusal"}
"""Reasons for the end of a turn after which a rollout is judged as it stands."""
_FAILURES = ("error", "failure", "sessionFailure")
_FLAGS = ("failed", "isError", "is_error")
_NO_ERRORS = ("warning", "info")
_DEPTH = 6
# codex-acp tells of a turn that failed only to clients that know this.
_OUR_META = {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}}}

_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class Options(HarnessOptions, frozen=True, forbid_unknown_fields=True):
    """The agent's options, besides those of `black_box`.

    Attributes:
        permissions: what the program is told when it asks for one.
        mcp: ``offer`` offers the task's tools by the protocol, and fails where the program takes no MCP
            server over HTTP; ``own`` offers nothing, for a program that finds them by its own configuration.
        authenticate: the id of a method of the program's, by which it is asked to log in first.
    """

    permissions: Literal["allow", "refuse"] = "allow"
    mcp: Literal["offer", "own"] = "offer"
    authenticate: str = ""


class _Media(msgspec.Struct):
    image: bool | None = False


class _Servers(msgspec.Struct):
    http: bool | None = False


class _Capabilities(msgspec.Struct, rename="camel"):
    prompt_capabilities: _Media | None = None
    mcp_capabilities: _Servers | None = None


class _Program(msgspec.Struct):
    name: str = ""
    version: str = ""


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: int
    agent_capabilities: _Capabilities | None = None
    agent_info: _Program | None = None


class _Opened(msgspec.Struct, rename="camel"):
    session_id: str


class _Prompted(msgspec.Struct):
    stop_reason: str = msgspec.field(name="stopReason")
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class Agent:
    """Prompts a program, whose model calls become the rollout's transcript. See the module.

    Attributes:
        session_meta: ``_meta`` of the session, where programs read settings of their own.
    """

    command: ClassVar[Sequence[str]] = ()
    variables: ClassVar[Mapping[str, str]] = {}
    session_meta: ClassVar[Mapping[str, Any]] = {"claudeCode": {"options": {"strictMcpConfig": True}}}
    options: ClassVar[type[Options]] = Options

    def __init__(self) -> None:
        check_harness(self.command, self.variables)

    async def run(self, rollout: Rollout) -> None:
        options = rollout.options(self.options)
        calls = HarnessCalls(rollout, options)
        said = command_of(self.command)
        partner = _partner(rollout, calls)
        items = await partner.begin()
        first = prompt_parts([Raw(_encode(user_message(rollout.params.instructions or ""))), *items])
        async with workplace(rollout, calls, partner.call_tool, self.variables) as place:
            command = [filled(part, place.fill) for part in said]
            with calls.working():
                variables, allow = place.variables, options.permissions == "allow"
                async with acp_connection(command, variables, place.folder.work, allow=allow) as program:
                    session: _Session | None = None
                    with anyio.move_on_after(START_S):
                        session = await self._begin(rollout, program, place, options)
                    if session is None:
                        raise _failed(f"has not begun a session within {START_S:g} s", retryable=True)
                    await session.play(partner, first)
        calls.end(said[0])

    async def _begin(
        self, rollout: Rollout, program: AcpConnection, place: Workplace, options: Options
    ) -> _Session:
        asked = {
            "protocolVersion": PROTOCOL,
            "clientInfo": {"name": "gym-runtime", "version": VERSION},
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
                "_meta": _OUR_META,
            },
        }
        about = await program.call("initialize", asked, _Initialized)
        if about.protocol_version != PROTOCOL:
            raise _failed(
                f"speaks version {about.protocol_version} of the Agent Client Protocol, and not {PROTOCOL}"
            )
        if options.authenticate:
            await program.call("authenticate", {"methodId": options.authenticate}, Raw)
        can = about.agent_capabilities or _Capabilities()
        servers: list[dict[str, Any]] = []
        http = can.mcp_capabilities is not None and can.mcp_capabilities.http
        # A step-by-step environment may offer some later.
        if options.mcp == "offer" and (place.has_tools or (rollout.task.steps and http)):
            if not http:
                raise _failed(
                    "takes no MCP server over HTTP, and the task has tools; if it finds them by a "
                    "configuration of its own (GYM_MCP_URL), set the option mcp=own"
                )
            servers = [{"type": "http", "name": SERVER, "url": place.fill["mcp_url"], "headers": []}]
        opening = {"cwd": place.folder.work, "mcpServers": servers, "_meta": self.session_meta}
        opened = await program.call("session/new", opening, _Opened)
        if about.agent_info is not None:
            name = f"{about.agent_info.name} {about.agent_info.version}".strip()
            rollout.notes["acp_agent"] = shown(name[:100])
        images = bool(can.prompt_capabilities and can.prompt_capabilities.image)
        return _Session(rollout, program, opened.session_id, images=images)


class _Session:
    """The session of one rollout."""

    def __init__(self, rollout: Rollout, program: AcpConnection, name: str, *, images: bool) -> None:
        self._rollout = rollout
        self._program = program
        self._name = name
        self._images = images

    async def play(self, partner: _Partner, parts: list[list[str | Image]]) -> None:
        """Prompt until the partner or a limit ends it."""
        rollout, calls = self._rollout, partner.calls
        while True:
            calls.begin_part()
            ended = await self._program.prompt(self._name, self._blocks(parts), _Prompted)
            rollout.notes["acp_stop_reason"] = reason = shown(ended.stop_reason[:100])
            turn = calls.end_part(self._program.said)
            if calls.overflowed:
                return None
            turn = self._checked(calls, ended, turn)
            if reason in _CUT:
                return rollout.truncate(turn.incomplete or _CUT[reason])
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
            items = await partner.answer(turn)
            if items is None:
                return None
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
            parts = prompt_parts(items)

    def _checked(self, calls: HarnessCalls, ended: _Prompted, turn: Turn | None) -> Turn:
        """The answer of the model with which the program has ended its turn.

        Raises:
            ResourceError: it has not, although the program says so.
        """
        if (words := failure_in(ended.meta)) is not None:
            raise _failed(f"ended its turn with an error: {words}")
        if ended.stop_reason != "end_turn" and ended.stop_reason not in _CUT:
            raise _failed(f"ended its turn by itself with '{ended.stop_reason[:100]}'")
        if turn is None:
            raise _failed(
                "ended its turn and asked the model nothing; does it know OPENAI_BASE_URL, "
                "ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL?"
            )
        if calls.refused is not None:
            raise _failed(f"ended its turn after a request that was refused: {calls.refused.message}")
        return turn

    def _blocks(self, parts: list[list[str | Image]]) -> list[dict[str, str]]:
        """
        Raises:
            TaskError: there are images, and the program takes none; or nothing at all.
        """
        blocks: list[dict[str, str]] = []
        for part in (one for message in parts for one in message if one):
            if isinstance(part, str):
                blocks.append({"type": "text", "text": part})
            elif self._images:
                data = b64encode(part.data).decode()
                blocks.append({"type": "image", "data": data, "mimeType": part.media_type})
            else:
                raise TaskError("the task has images, and the agent's program takes none", stage="agent")
        if not blocks:
            raise TaskError("there is nothing to prompt the agent's program with", stage="agent")
        return blocks


class _Partner(Protocol):
    """The other side of a session: what the program's user says."""

    calls: HarnessCalls

    async def begin(self) -> list[Raw]:
        """The items of the first prompt."""
        ...

    async def answer(self, turn: Turn) -> list[Raw] | None:
        """The items of the next prompt; None if it was the last one."""
        ...

    async def call_tool(self, name: str, arguments: str) -> Called:
        """As `HarnessCalls.call_tool`."""
        ...


def _partner(rollout: Rollout, calls: HarnessCalls) -> _Partner:
    if rollout.task.steps:
        return _Steps(rollout, calls)
    if "simulated_user" in _decode_fields(rollout.task.row):
        return _Conversation(rollout, calls)
    return _Prompt(rollout, calls)


class _Prompt:
    """A task of one prompt."""

    def __init__(self, rollout: Rollout, calls: HarnessCalls) -> None:
        self.rollout, self.calls = rollout, calls

    async def begin(self) -> list[Raw]:
        return self.rollout.input

    async def answer(self, turn: Turn) -> list[Raw] | None:
        return None

    async def call_tool(self, name: str, arguments: str) -> Called:
        return await self.calls.call_tool(name, arguments)


class _Conversation(_Prompt):
    """A simulated user, in the role ``user``."""

    def __init__(self, rollout: Rollout, calls: HarnessCalls) -> None:
        super().__init__(rollout, calls)
        self.user = Person(rollout)

    async def begin(self) -> list[Raw]:
        if not self.user.has_spoken:
            self.rollout.input.append(user_message(await self.user.opening()))
        return self.rollout.input

    async def answer(self, turn: Turn) -> list[Raw] | None:
        rollout, user = self.rollout, self.user
        user.hear(turn.messages)
        said = await user.reply()
        if user.has_stopped:
            rollout.notes["stop_reason"] = user.signal
        elif user.messages > user.scenario.max_messages:
            rollout.notes["stop_reason"] = "max_messages"
            rollout.truncate("max_messages")
        else:
            return [user_message(said)]
        return None


class _Steps:
    """An environment that goes step by step."""

    def __init__(self, rollout: Rollout, calls: HarnessCalls) -> None:
        self.calls = calls
        self._rollout = rollout

    async def begin(self) -> list[Raw]:
        await self._rollout.reset()
        return self._rollout.input

    async def answer(self, turn: Turn) -> list[Raw] | None:
        # Its calls were the program's, and are answered.
        said = [raw for raw, one in zip(turn.response.output, turn.items, strict=True) if not _is_call(one)]
        async with self.calls.tool_turn:
            items, over = await self._step(msgspec.structs.replace(turn.response, output=said))
        return None if over else items

    async def call_tool(self, name: str, arguments: str) -> Called:
        from gym_faces.gateway import Called, content_of

        call = {"type": "function_call", "call_id": "call", "name": name, "arguments": arguments}
        try:
            async with self.calls.tool_turn:
                items, over = await self._step(Response(id="call", output=[Raw(_encode(call))]))
                # The transcript has the output when the program tells its model.
                del self._rollout.output[len(self._rollout.output) - len(items) :]
        except GymError as error:
            self.calls.fail(error)
            raise
        if over:
            self.calls.scope.cancel()
        content: list[dict[str, Any]] = []
        for one in decode_items(items):
            if isinstance(one, FunctionCallOutput):
                content += content_of(one)
            elif isinstance(one, Message):
                content.append({"type": "text", "text": one.text})
        return Called(content, failed=False)

    async def _step(self, response: Response) -> tuple[list[Raw], bool]:
        """A step; what is observed, and whether the episode is over."""
        answer = await self._rollout.step(Turn(response, None))
        if answer.truncated:
            self._rollout.truncate("environment")
        return answer.items, answer.terminated or answer.truncated


def _is_call(item: object) -> bool:
    return isinstance(item, FunctionCall)


def failure_in(meta: object, depth: int = _DEPTH) -> str | None:
    """What a turn's metadata say of a failure, in any program's form; None if they say of none.

    >>> failure_in({"hermes": {"failed": True, "error": "HTTP 401"}}), failure_in({"codex": {"error": None}})
    ('HTTP 401', None)
    """
    if not isinstance(meta, dict) or not depth:
        return None
    fields = cast("dict[str, Any]", meta)
    for name in _FAILURES:
        if (value := fields.get(name)) and not _is_mild(value):
            return _words(value)
    if any(fields.get(name) is True for name in _FLAGS):
        return _words(fields)
    return next(filter(None, (failure_in(value, depth - 1) for value in fields.values())), None)


def _is_mild(value: Any) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get("severity") in _NO_ERRORS


def _words(value: Any) -> str:
    found = value
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        named = (fields.get(name) for name in ("message", "title", "error"))
        found = next((one for one in named if isinstance(one, str) and one), None)
    if not isinstance(found, str):
        with suppress(TypeError, ValueError, RecursionError):
            found = _encode(value).decode()
    return shown(str(found))[:SAID_CHARS]


def _failed(words: str, *, retryable: bool = False) -> ResourceError:
    error = ResourceError(f"the agent's program {words}", stage="agent")
    error.retryable = retryable
    return error
