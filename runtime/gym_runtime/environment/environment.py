"""Environments: each ties a resource, an agent, limits and datasets together under one name.

An environment is one module with one global called ``environment``, and one JSONL file of example rows
beside it with the same stem. The module's name is the environment's name.
"""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from gym_runtime import assets
from gym_runtime.assets import Asset
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Role
from gym_runtime.environment.shapes import CompareFunction, Episode, ReviewFunction, Session, VerifyFunction
from gym_runtime.environment.tools import ToolPack
from gym_runtime.errors import UsageError
from gym_runtime.messages.choices import choices

T = TypeVar("T")


class AgentChoice(msgspec.Struct, frozen=True):
    """An agent by its name, with options that it is given."""

    name: str
    options: dict[str, Any] = {}

    def overridden(self, name: str | None, options: Mapping[str, Any]) -> AgentChoice:
        """This choice with what a run says: another agent, or options on top."""
        if name not in (None, self.name):
            return AgentChoice(name, {**options})
        return AgentChoice(self.name, {**self.options, **options}) if options else self


def fitting(known: Mapping[str, T], ref: str) -> T | None:
    """The value of the longest key that an agent's name begins with, in whole words; None if none does.

    >>> fitting({"sums": 1, "sums_hard": 2}, "sums_hard_agent"), fitting({"sums": 1}, "sumsy_agent")
    (2, None)
    """
    prefixes = [prefix for prefix in known if f"{ref}_".startswith(f"{prefix}_")]
    return known[max(prefixes, key=len)] if prefixes else None


_HARNESS = re.compile(
    r"(?:^|_)(claude_code|cline|codex|hermes|kilocode|openclaw|opencode|pi|prime)_agent(?:_model_server)?$"
)


def harness(ref: str) -> str:
    """The harness, another project's agent program, that an agent's name asks for; empty if it asks for none.

    >>> harness("math_with_judge_hermes_agent"), harness("mcqa_simple_agent")
    ('hermes', '')
    """
    found = _HARNESS.search(ref)
    return found[1] if found else ""


class ScoredRollout(msgspec.Struct, frozen=True):
    """A rollout that has a verdict, as a score sees it.

    Attributes:
        task_index: the rollouts of one row have the same.
        fields: the fields of its result row that `Benchmark.fields` names; None for a missing field.
        rollout_index: its number among those of its row.
    """

    task_index: int
    reward: float
    fields: dict[str, Any] = {}
    rollout_index: int = 0


Score = Callable[[Sequence[ScoredRollout]], Mapping[str, float]]
"""Figures by their names, in percent unless the name says otherwise; the first is the one to report."""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """How an environment is run as a published benchmark. Its rows are the source of the split ``benchmark``.

    Attributes:
        prompt: the user's message; ``{field}`` stands for a field of the row, braces are written twice. Empty
            where the rows bring their input.
        system: the system message, in the same way; none if it is empty.
        prompts: other prompts by their names, such as ``nemo-gym``, each a user's message without a system
            message; ``--prompt`` takes them.
        image: the field of the row whose image, a ``data:`` URL or the address of a file, follows the user's
            message, also that of another prompt (``--prompt``); rows in which it is empty have none.
        score: what the authors report of a run, from its rollouts that have a verdict, of which there is at
            least one.
        fields: the fields of result rows that the score reads.
    """

    prompt: str = ""
    system: str = ""
    prompts: dict[str, str] = {}
    image: str = ""
    score: Score
    fields: tuple[str, ...] = ()


Split = Literal["train", "validation", "example", "benchmark"]
Records = Iterator[dict[str, Any]]
RowMaker = Callable[..., Records]
"""``rows(records, ...)``: rows made of the records of a source's files, one iterator for each file."""


class DatasetSource(msgspec.Struct, frozen=True, kw_only=True):
    """A public file of rows for an environment: in a repository on the Hugging Face hub, of an asset, or of
    an installed Python package.

    Attributes:
        repo_id: ``owner/name`` on the hub; with ``installed``, the name of the package as pip knows it; empty
            for a file of ``asset``.
        asset: what is not on the hub; ``file`` is a path below its folder, and ``revision`` says nothing.
        installed: the files are the package's; their paths begin with the name that is imported.
        file: its path in the repository.
        further_files: of the same repository, where the rows are made of several.
        further_sources: files of other repositories, whose records come after those of ``further_files``.
        revision: a branch, tag or commit; ``prepare`` records the commit that it resolved to.
        license: of this file.
        name: distinguishes several sources of one split, as in ``prepare math_with_judge:stack_overflow``;
            the source without a name is the default.
        rows: makes rows of the files' records (JSON lines, a JSON list, CSV, Parquet or text, by the ending
            of the name; ``.gz`` may follow); by default the file holds rows as JSON lines. These rows have no
            ``input`` where the environment's benchmark has a prompt.
    """

    repo_id: str = ""
    asset: Asset | None = None
    file: str
    further_files: tuple[str, ...] = ()
    further_sources: tuple[DatasetSource, ...] = ()
    split: Split = "train"
    revision: str = "main"
    installed: bool = False
    license: str
    name: str = ""
    rows: RowMaker | None = None

    @property
    def origin(self) -> str:
        """The repository's or the asset's name."""
        return self.asset.name if self.asset else self.repo_id


def published(
    repo_id: str,
    data_license: str,
    *,
    train: str = "train.jsonl",
    validation: str = "validation.jsonl",
    name: str = "",
) -> tuple[DatasetSource, ...]:
    """The sources of a repository with one file per split; pass an empty name for a split that it lacks."""
    files: dict[Split, str] = {"train": train, "validation": validation}
    return tuple(
        DatasetSource(repo_id=repo_id, file=file, split=split, license=data_license, name=name)
        for split, file in files.items()
        if file
    )


Domain = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]{0,63}\Z")]
DOMAINS = (
    "agent",
    "coding",
    "e2e",
    "games",
    "instruction_following",
    "knowledge",
    "long_context",
    "math",
    "other",
    "rlhf",
    "safety",
    "translation",
)
"""The domains of the catalogue's environments. An environment may name another one."""


AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Duration = Annotated[float, msgspec.Meta(gt=0)]
RowGenerator = Callable[..., Iterator[dict[str, Any]]]
"""``generate(size, seed, **settings)``: ``size`` rows, the same ones for the same seed and settings.

That of a guest may have fewer, and also gets None for all its rows.
"""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of an environment, in its module. Wrong values are refused with their file and line.

    Attributes:
        resource: a verify function, or a `Session` (or `Episode`) class.
        description: one line.
        domain: for listings and metrics: ``math``, ``agent``, ``games`` … (`DOMAINS`), or a word of your own.
        agent: the agent that runs its rollouts unless the run names another; by default ``step_loop`` for an
            `Episode` and ``tool_loop`` for all others.
        agent_options: options of this agent.
        agents: other agents that rows may ask for, by the beginning, in whole words, of the name in a row's
            ``agent_ref``; the longest matching key is used, unless the run names an agent.
        max_turns: model calls per attempt at most; None for no limit.
        timeout_s: how many seconds all attempts of a rollout together may take.
        repeats: rollouts per row where the run does not say.
        parallel_tools: tool calls of one turn may run concurrently on one session.
        replayable: a session that was lost with its worker may be rebuilt by repeating its calls. So a
            session must depend only on the task and the calls, and calls must have no effects elsewhere.
        reads_input: set it to False if no code here reads the input of ``task.responses_create_params``: then
            long rows are sent without it, and it is empty.
        isolated: verification evaluates the model's text or may hang, so it runs in a sandboxed process that
            can be killed: without network, environment variables, or files except the code and its
            ``assets``.
        shares_process: isolated verdicts may share a process, one after the other, which costs a fraction.
            Only where nothing in a row or a reply can be executed: a reply may make its own verification hang
            or crash, and must not be able to change another one.
        verify_timeout_s: the processor time that an isolated verification may take, in seconds.
        roles: models that it asks besides the policy, each a name or a `Role`. Those that verify asks are its
            parameters after the first two, a session's are ``self.models``.
        tool_packs: names of tool packs whose tools the model gets besides the environment's own.
        review: a second look at the verdict of an isolated verification, by models in roles:
            ``async def review(task, reply, verdict, judge) -> Verdict``. It runs outside of the process,
            where models can be asked.
        compare: judges the rollouts of a group together, for those whose ``verify`` returned `Pending`:
            ``async def compare(candidates, judge) -> list[Verdict]``. Its parameters after the first are
            models in roles. It runs outside of an isolated verification's process.
        data_license: licence of the data it is meant for.
        extra: the extra of the distribution that its imports need, if any.
        datasets: where its rows are published.
        benchmark: prompt and score, if it is a published benchmark.
        generate: makes rows, for environments whose rows need no download.
        assets: files that rows may need and that are not shipped. If there are any, a rollout opens its
            session (and so runs its task's ``check_assets``) before the first model call.
        opens_first: a rollout opens its session before the first model call, as it does where there are
            assets: opening may refuse, because a service is not configured for example.
        agent_refs: further names under which datasets refer to it, alone or as a beginning in whole words.
            Where several environments have the name, a row belongs to the first whose task it fits.
        agent_settings: defaults of row fields (`environment.settings`), by the beginning, in whole words, of
            the agent's name in a row's ``agent_ref``; the longest matching key is used.
        agent_sampling: how the model samples, by the same beginnings: settings of `Sampling`, over the row's
            and under the run's.
        imports: modules that an isolated verification needs and that are slow to import: a process imports
            them before the time of its first verification begins.
        require: raises a `UsageError` with the remedy if this machine lacks what every row needs.
        gold_reward: the reward of the perfect rollouts of its example rows.
        silence_reward: the reward of an empty answer; above 0 only if the environment's rule demands it.

    Raises:
        UsageError: a value has a wrong type or is out of its bounds; with the file and line of the call.
    """

    resource: type[Session[Any]] | VerifyFunction
    description: str
    domain: Domain = "other"
    agent: str = ""
    agent_options: dict[str, Any] = {}
    agents: dict[str, AgentChoice] = {}
    max_turns: AtLeastOne | None = None
    timeout_s: Duration = 1800.0
    repeats: AtLeastOne = 1
    parallel_tools: bool = False
    replayable: bool = True
    reads_input: bool = True
    isolated: bool = False
    shares_process: bool = False
    verify_timeout_s: Duration = 30.0
    roles: tuple[Role | str, ...] = ()
    tool_packs: tuple[str, ...] = ()
    review: ReviewFunction | None = None
    compare: CompareFunction | None = None
    data_license: str = ""
    extra: str = ""
    datasets: tuple[DatasetSource, ...] = ()
    benchmark: Benchmark | None = None
    generate: RowGenerator | None = None
    assets: tuple[Asset, ...] = ()
    opens_first: bool = False
    agent_refs: tuple[str, ...] = ()
    agent_settings: dict[str, dict[str, Any]] = {}
    agent_sampling: dict[str, dict[str, Any]] = {}
    imports: tuple[str, ...] = ()
    require: Callable[[], None] | None = None
    gold_reward: float = 1.0
    silence_reward: float = 0.0

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            call = traceback.extract_stack(limit=2)[0]  # msgspec's own constructor has no frame
            raise UsageError(f"{call.filename}:{call.lineno}: Environment({problem}")
        named = tuple(Role(name=role) if isinstance(role, str) else role for role in self.roles)
        msgspec.structs.force_setattr(self, "roles", named)
        agent = self.agent or ("step_loop" if self.shape == "episode" else "tool_loop")
        msgspec.structs.force_setattr(self, "agent", agent)

    @property
    def shape(self) -> str:
        """``verify``, ``session`` or ``episode``."""
        if not isinstance(self.resource, type):
            return "verify"
        return "episode" if issubclass(self.resource, Episode) else "session"

    @property
    def declared_roles(self) -> tuple[Role, ...]:
        """The roles, each a `Role`."""
        return tuple(role for role in self.roles if isinstance(role, Role))

    def agent_of(self, ref: str) -> AgentChoice:
        """The agent that runs a row whose ``agent_ref`` has this name; empty for a row without one.

        A name that asks for a `harness` gets the agent of the harness's name, unless ``agents`` has another.
        """
        chosen, other = fitting(self.agents, ref), harness(ref)
        return chosen or (AgentChoice(other) if other else AgentChoice(self.agent, self.agent_options))

    @property
    def agent_names(self) -> set[str]:
        """The agents that its rows may ask for."""
        return {self.agent, *(choice.name for choice in self.agents.values())}

    def build(self, packs: Mapping[str, type[ToolPack]] | None = None) -> Resource:
        """The resource, ready to open sessions.

        Args:
            packs: its tool packs, by name.

        Raises:
            UsageError: its parts do not fit together; the message names file and line.
        """
        return Resource(
            self.resource,
            self.declared_roles,
            isolated=self.isolated,
            review=self.review,
            compare=self.compare,
            packs=packs,
        )


@cache
def _checked_types() -> dict[str, Any]:
    """The types of the fields that hold data rather than code."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(Environment)
        if field.name not in ("resource", "generate", "review", "compare", "require")
    }


def _problem(environment: Environment) -> str:
    """The first wrong value, as ``field=value): expectation``; empty if all are right."""
    resource = environment.resource
    if not (issubclass(resource, Session) if isinstance(resource, type) else inspect.isroutine(resource)):
        wanted = "a function verify(task, reply), or a class that derives from Session or Episode"
        return f"resource={resource!r}): it must be {wanted}"
    for name, parameters in (("generate", "size, seed"), ("compare", "candidates")):
        function = getattr(environment, name)
        if function is not None and not callable(function):
            return f"{name}={function!r}): it must be a function {name}({parameters})"
    for name, kind in _checked_types().items():
        value = getattr(environment, name)
        shown = f"{name}={value!r})"
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if name == "domain":
                return f"{shown}: it must be a word in small letters, such as {', '.join(DOMAINS)}"
            return f"{shown}: {error}".replace("null`", "None`")
        if isinstance(value, float) and not math.isfinite(value):
            return f"{shown}: it must be a finite number"
    return _role_problem(environment)


def _role_problem(environment: Environment) -> str:
    names: set[str] = set()
    for role in environment.roles:
        declared = Role(name=role) if isinstance(role, str) else role
        problem = declared.problem()
        if not problem and declared.name in names:
            problem = f"there are two roles {declared.name!r}"
        if problem:
            return f"roles={environment.roles!r}): {problem}"
        names.add(declared.name)
    if environment.review is not None and not (environment.isolated and callable(environment.review)):
        return "review=…): it is a function, and the second look at an isolated verification: isolated=True"
    if environment.shares_process and not environment.isolated:
        return "shares_process=True): it is about the processes of isolated verifications: isolated=True"
    return ""


class LoadedEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment with its name and where it came from.

    Attributes:
        settings: defaults of row fields, of the run or of a file that serves it under another name;
            `environment.settings.filled` applies them.
        packs: its tool packs.
        guest: it stands for another project's environment, to which all rows of a run belong that names it.
    """

    name: str
    definition: Environment
    resource: Resource
    source: Path
    settings: dict[str, Any] = {}
    packs: dict[str, type[ToolPack]] = {}
    guest: bool = False

    @property
    def asset_folders(self) -> dict[str, str]:
        """The folders of its assets, by the environment variables that name them."""
        return {asset.setting: str(assets.folder(asset)) for asset in self.definition.assets if asset.setting}

    @property
    def examples(self) -> Path:
        """The JSONL of example rows."""
        return self.source.with_suffix(".jsonl")

    @property
    def row_fields(self) -> dict[str, Any]:
        """The fields of its rows, by their names in the rows, with their types."""
        fields = msgspec.structs.fields(self.resource.task_type)
        return {field.encode_name: field.type for field in fields if field.name != "responses_create_params"}


def with_settings(environment: LoadedEnvironment, settings: Mapping[str, Any]) -> LoadedEnvironment:
    """The environment with those of the settings that are fields of its rows.

    Raises:
        UsageError: a value has not the type of its field.
    """
    if not settings:
        return environment
    kinds = environment.row_fields
    own = {name: value for name, value in settings.items() if name in kinds}
    for name, value in own.items():
        text = msgspec.json.encode(value)
        try:
            msgspec.json.decode(text, type=kinds[name], strict=False)
        except msgspec.ValidationError as error:
            said = f"{error}{choices(error, kinds[name])}"
            raise UsageError(f"setting {name}={text.decode()} of '{environment.name}': {said}") from error
    return msgspec.structs.replace(environment, settings={**environment.settings, **own})
