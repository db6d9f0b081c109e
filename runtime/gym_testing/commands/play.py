"""``play``: a person is the model, in the terminal.

The person is the adapter of a small system (`gym_testing.small_system`). So the agent, the session, the
verdict and forks are those of every run. What comes from elsewhere is printed escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, cast

import anyio
import msgspec
from anyio import to_thread
from cyclopts import Parameter
from gym_runtime import RolloutRecord
from gym_runtime.adapters import Adapter, Agent, CallContext, ModelAnswer, ModelCall
from gym_runtime.cli import AT_LEAST_ONE, formatting, terminal
from gym_runtime.environment import LoadedEnvironment, catalogue, requirements
from gym_runtime.errors import UNREADABLE, ModelRefused, UsageError
from gym_runtime.escapes import shown
from gym_runtime.files import Dataset, Source, forked, generated_rows, lines_of, stored_rollout
from gym_runtime.messages import as_list, as_object, readable_items
from rich.text import Text

from gym_testing.checks import recorded_gold
from gym_testing.small_system import answer, function_call, small_system

DAY_S = 86_400.0
"""A person may think for so long."""
HOW = "Type your answer, or a call: /TOOL {JSON}. A line that ends with \\ goes on. Ctrl-D ends it."

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def play(
    what: str,
    /,
    *,
    row: Annotated[int, AT_LEAST_ONE] = 1,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,  # noqa: A002
    record: Path | None = None,
    environment: str | None = None,
) -> int:
    """Be the model yourself: see the conversation and the tools, answer or call, and get the verdict.

    Args:
        what: An environment; or a stored rollout and how many of its turns are shared, FILE:TASK@TURN.
        row: Which row, by its line; of the environment's examples, a guest's own rows or the input.
        input: Rows, JSONL.
        record: Put the row with what you did as its gold into this file, if it scores what a gold scores.
            A row that is there already gets this gold in place of its own.
        environment: Of a stored rollout, if it is not installed here: a module's path, or a guest's
            SCHEME:ADDRESS.
    """
    if record is not None:
        _require_writable(record)
    if _is_stored(what):
        stored = stored_rollout(what, environment)
        found, chosen = stored.environment, forked(stored.line, stored.turn)
        agent, options = stored.agent()
    else:
        if environment is not None:
            raise UsageError("--environment is for a stored rollout, FILE:TASK@TURN")
        found = catalogue.environment(what)
        own = generated_rows(found, what, row) if input is None and found.guest else found.examples
        chosen = _row(what, input or own, row)
        agent, options = None, dict[str, Any]()
    requirements.require(found)
    agent = agent or found.definition.agent_of("").name
    try:
        played = anyio.run(_played, found, agent, options, chosen, backend_options={"use_uvloop": False})
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    terminal.output().print(_verdict(played), soft_wrap=True)
    if record is not None and played.reward is not None:
        number = anyio.run(recorded_gold.take_line, found, bytes(played.row), "what you did", record)
        terminal.note(f"{record}:{number} has the row and its gold")
    return 0 if played.reward is not None else 1


def _is_stored(what: str) -> bool:
    """Whether a file of rollouts is meant: there is one, or nothing else has such a name."""
    file = Path(what.rpartition(":")[0])
    if catalogue.exists("environments", what):
        return False
    return ".jsonl" in what or ("@" in what and file.is_file())


def _require_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    usable = not path.exists() or (path.is_file() and os.access(path, os.W_OK))
    if not usable or not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {path}: choose another --record")


def _row(environment: str, path: Path, number: int) -> bytes:
    source = Source(str(path), environment)
    source.require()
    try:
        found = next((line for at, line in lines_of(path) if at == number), None)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if found is None:
        raise UsageError(f"{path} has no row {number}")
    # The other lines are left out, not checked; blank ones in their place keep the line's number.
    content = b"\n" * (number - 1) + found
    with Dataset(msgspec.structs.replace(source, content=content), adopt=True, prompt=None) as dataset:
        (named,) = dataset.environments
    if named != catalogue.environment(environment).name:
        raise UsageError(f"{path}:{number}: the row is of '{named}', not of '{environment}'; play that one")
    return found


async def _played(
    environment: LoadedEnvironment, name: str, options: Mapping[str, Any], row: bytes
) -> RolloutRecord:
    agent = cast("Agent", catalogue.load_class("agents", name)())
    roles = {role.name: role.name for role in environment.definition.declared_roles}
    async with small_system() as system:
        await system.add_resource(environment)
        await system.add_agent({name: agent})
        await system.add_model(cast("Adapter", Person()))  # but for how it is made, it is one
        for role in roles:
            await system.add_model(cast("Adapter", Person(role)), name=f"model-{role}", pool=role)
        records = system.client.rollouts(
            [row],
            environment=environment.name,
            agent=name,
            agent_options=options,
            repeats=1,
            timeout_s=DAY_S,
            call_timeout_s=0.0,
            max_attempts=1,
            roles=roles,
        )
        (record,) = [one async for one in records]
        return record


class Person:
    """A model adapter that asks the person at the terminal.

    Args:
        role: the role in which the person answers; empty for the policy.
    """

    def __init__(self, role: str = "") -> None:
        self._role = role
        self._shown = 0
        self._calls = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Show what is new of the conversation, and read the answer.

        Raises:
            ModelRefused: the person left.
        """
        params = _decode(call.params)
        if self._role or len(call.input) < self._shown:
            self._shown = 0
        fresh = [msgspec.json.decode(item) for item in call.input[self._shown :]]
        tools = [as_object(tool) for tool in as_list(params.get("tools"))]
        console = terminal.output()
        about = {**params, "input": fresh} if not self._shown else {"input": fresh}
        for item in readable_items({"responses_create_params": about}):
            console.print(Text(shown(item.who), style="bold"), Text(shown(item.text)), sep="\n")
        if not self._shown:
            console.print(Text(HOW, style="dim"))
            for tool in tools:
                console.print(Text(shown(_about(tool))))
        names = {str(tool.get("name")) for tool in tools}
        while True:
            said = await to_thread.run_sync(_read, self._role or "you", abandon_on_cancel=True)
            if said is None:
                raise ModelRefused("the person left before the rollout ended", stage="model")
            try:
                made = self._answer(said, names)
            except UsageError as error:
                console.print(Text(shown(error.message), style="red"))
                continue
            self._shown = len(call.input) + 1
            return made

    def _answer(self, said: str, tools: set[str]) -> ModelAnswer:
        """
        Raises:
            UsageError: a call is not of its form.
        """
        if not said.startswith("/"):
            return answer(said)
        name, _, arguments = said[1:].partition(" ")
        if name not in tools:
            raise UsageError(f"there is no tool {name}; there are: {', '.join(sorted(tools)) or 'none'}")
        try:
            _decode(arguments or "{}")
        except UNREADABLE as error:
            raise UsageError(
                f'the arguments are a JSON object, such as {{"city": "Oslo"}}: {error}'
            ) from None
        self._calls += 1
        return answer(function_call(name, arguments or "{}", f"call_{self._calls}"))


def _read(who: str) -> str | None:
    """What was typed; None at the end of the input."""
    lines: list[str] = []
    while True:
        print(f"{who}> " if not lines else "… ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return "\n".join(lines) if lines else None
        # Where the terminal sends what is no UTF-8, Python has a surrogate, which no JSON can hold.
        line = line.rstrip("\n").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _about(tool: Mapping[str, Any]) -> str:
    fields = as_object(as_object(tool.get("parameters")).get("properties"))
    return f"/{tool.get('name')} {{{', '.join(fields)}}}  {tool.get('description') or ''}"


def _verdict(record: RolloutRecord) -> Text:
    return Text(f"reward {formatting.reward(record.reward)}  {shown(record.ending)}", style="bold")
