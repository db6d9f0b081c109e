"""``ls``: which environments, agents, models, tool packs, recipes and runs there are.

Only the listing of runs asks a running system; the others import nothing that it needs.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from gym_runtime.cli import BROKER, AsJson, Broker, terminal
from gym_runtime.environment import catalogue, requirements, tools_of
from gym_runtime.errors import UsageError
from gym_runtime.messages import as_object, as_text
from msgspec.structs import replace
from rich.cells import set_cell_size
from rich.text import Text

from gym_view import recipes, system_tables
from gym_view.badges import Badge, badge

if TYPE_CHECKING:
    from gym_runtime import Client
    from gym_runtime.client import RunProgress
    from gym_runtime.training import RunInfo

    from gym_view.live import RunView
    from gym_view.run_files import Run

DESCRIPTION_CHARS = 44
"""The least width of a description; columns that leave it less room are left out."""


def ls(
    what: Literal["environments", "agents", "models", "tools", "recipes", "runs"] = "environments",
    /,
    *,
    json: AsJson = False,
    markdown: bool = False,
    search: str = "",
    domain: str = "",
    modality: Literal["", "text", "image", "audio"] = "",
    licence: str = "",
    needs: str = "",
    recipe: str = "",
    benchmarks: Annotated[bool, Parameter(negative="")] = False,
    broker: Broker = BROKER,
) -> None:
    """List environments (by default), agents, model providers, tool packs, recipes or runs.

    Recipes are the published training blends of NeMo RL, with what of each runs here and what its parts need.

    Args:
        what: What to list. Runs are those of a running system; where none is named, those in results/.
        markdown: Print the environments as a Markdown table.
        search: Those whose name, description or domain has each of these words, in any case.
        domain: Those of this domain, such as math.
        modality: Those whose example rows have images, or sound, or neither.
        licence: Those whose data has a licence that begins so, such as CC-BY.
        needs: Those that need this: a role such as judge, or an extra such as sandbox; or 'nothing' for those
            that need neither and run here.
        recipe: Those of this recipe ('gym-runtime ls recipes').
        benchmarks: Published benchmarks only.
    """
    asked = (search, domain, modality, licence, needs, recipe, benchmarks)
    if any(asked) and what != "environments":
        raise UsageError(f"only environments are filtered: gym-runtime ls, without '{what}'")
    if what == "runs":
        _list_runs(broker, as_json=json)
    elif what == "environments":
        of_recipe = _of_recipe(recipe) if recipe else None
        entries = [describe_environment(name) for name in catalogue.names("environments")]
        domains = sorted({entry.domain for entry in entries} - {""})
        if domain and domain.casefold() not in map(str.casefold, domains):
            raise UsageError(f"there is no domain '{domain}'{catalogue.unknown(domain, domains)}")
        needed = sorted({need for entry in entries for need in (entry.extra, *entry.roles)} - {""})
        if needs and needs != "nothing" and needs not in needed:
            known = catalogue.unknown(needs, [*needed, "nothing"])
            raise UsageError(f"no environment needs '{needs}'{known}")
        environments = [
            entry
            for entry in entries
            if (of_recipe is None or entry.name in of_recipe)
            and entry.fits(search, domain, modality, licence, needs)
            and (entry.benchmark or not benchmarks)
        ]
        if not environments and not json:
            raise UsageError("no environment is like that; 'gym-runtime ls' lists all of them")
        if json:
            terminal.print_json(environments)
        elif markdown:
            _print_markdown(environments)
        else:
            _show_environments(environments)
    elif what == "tools":
        packs = [describe_pack(name) for name in catalogue.names("tools")]
        terminal.print_json(packs) if json else _show_packs(packs)
    elif what == "recipes":
        listed = recipes.recipes()
        terminal.print_json(listed) if json else _show_recipes(listed)
    else:
        modules = [describe_module(what, name) for name in catalogue.names(what)]
        terminal.print_json(modules) if json else _show_modules(modules)


# -- what is said of each -----------------------------------------------------------------------------


class EnvironmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An environment in a listing. ``needs`` is what must be done before it runs; empty if nothing.

    ``audit`` says how often its verifier is wrong.
    """

    name: str
    domain: str = ""
    shape: str = ""
    agent: str = ""
    runnable: bool = True
    needs: str = ""
    extra: str = ""
    data_license: str = ""
    description: str = ""
    source: str = ""
    audit: Badge = Badge()
    roles: list[str] = []
    modality: str = "text"
    benchmark: bool = False

    def fits(self, search: str, domain: str, modality: str, licence: str, needs: str) -> bool:
        """Whether it is what a listing is asked for; an empty text asks for nothing."""
        about = f"{self.name} {self.domain} {self.description}".casefold()
        needed = {self.extra, *self.roles} - {""}
        return (
            all(word in about for word in search.casefold().split())
            and domain.casefold() in ("", self.domain.casefold())
            and modality in ("", self.modality)
            and self.data_license.casefold().startswith(licence.casefold())
            and (not needs or (self.runnable and not needed if needs == "nothing" else needs in needed))
        )


class ModuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent or a model provider in a listing. ``key_variable`` is empty where no key is needed."""

    name: str
    runnable: bool = True
    needs: str = ""
    description: str = ""
    key_variable: str = ""
    key_set: bool = False


class PackEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A tool pack in a listing; its tools as rows offer them in ``responses_create_params.tools``."""

    name: str
    runnable: bool = True
    needs: str = ""
    extra: str = ""
    data_license: str = ""
    description: str = ""
    tools: list[dict[str, Any]] = []


def describe_environment(name: str) -> EnvironmentEntry:
    """An environment's entry, also if it cannot be imported."""
    try:
        definition, source = catalogue.definition(name)
        packs = {pack: catalogue.tool_pack(pack) for pack in definition.tool_packs}
    except UsageError as error:
        return EnvironmentEntry(name=name, runnable=False, needs=_remedy(error))
    needs = ""
    try:
        requirements.require_defined(name, definition, packs)
    except UsageError as error:
        needs = _remedy(error)
    return EnvironmentEntry(
        name=name,
        domain=definition.domain,
        shape=definition.shape,
        agent=definition.agent,
        runnable=not needs,
        needs=needs,
        extra=definition.extra,
        data_license=definition.data_license
        or ", ".join(dict.fromkeys(d.license for d in definition.datasets)),
        description=definition.description,
        source=str(source),
        audit=badge(name, source),
        roles=[role.name for role in definition.declared_roles],
        modality=_modality(source.with_suffix(".jsonl")),
        benchmark=definition.benchmark is not None,
    )


def _modality(examples: Path) -> str:
    rows = examples.read_bytes() if examples.is_file() else b""
    return "image" if b'"input_image"' in rows else "audio" if b'"input_audio"' in rows else "text"


def _of_recipe(name: str) -> set[str]:
    """The environments of a recipe.

    Raises:
        UsageError: there is no recipe of this name.
    """
    listed = {one.name: one for one in recipes.recipes()}
    if name not in listed:
        raise UsageError(f"there is no recipe '{name}'{catalogue.unknown(name, sorted(listed))}")
    return {part.environment for part in listed[name].parts}


def describe_module(kind: Literal["agents", "models"], name: str) -> ModuleEntry:
    """An agent's or a model provider's entry, also if it cannot be imported."""
    try:
        module = catalogue.load(kind, name)
    except UsageError as error:
        return ModuleEntry(name=name, runnable=False, needs=_remedy(error))
    key_variable = getattr(module, "key_variable", None)
    about = getattr(module, "about", None)
    variable = key_variable(name) if key_variable else ""
    return ModuleEntry(
        name=name,
        description=about(name) if about else (inspect.getdoc(module) or "").partition("\n")[0],
        key_variable=variable,
        key_set=bool(os.environ.get(variable)),
    )


def describe_pack(name: str) -> PackEntry:
    """A tool pack's entry, also if its packages are missing."""
    pack, needs = catalogue.tool_pack(name), ""
    try:
        requirements.require_pack(name, pack)
    except UsageError as error:
        needs = _remedy(error)
    module = inspect.getmodule(pack)
    return PackEntry(
        name=name,
        runnable=not needs,
        needs=needs,
        extra=pack.extra,
        data_license=pack.data_license,
        description=(inspect.getdoc(module) or "").partition("\n")[0],
        tools=[tool.definition() for tool in tools_of(pack).values()],
    )


def _remedy(error: UsageError) -> str:
    """The command that installs what is missing, or else all that is known."""
    _, found, command = error.message.partition(" not installed: ")
    return command if found else error.message


# -- as tables ----------------------------------------------------------------------------------------


def _show_environments(entries: list[EnvironmentEntry]) -> None:
    """A line each, and more for a long description; on a narrow terminal it stands below the name."""
    console = terminal.output()
    cells = [
        {
            "name": entry.name,
            "domain": entry.domain,
            "shape": entry.shape,
            "licence": entry.data_license,
            "audit": entry.audit.text,
            "needs": entry.extra if entry.runnable else f"{entry.extra} (missing)".strip(),
        }
        for entry in entries
    ]
    widths = {name: max(len(cell[name]) for cell in (*cells, {name: name})) + 2 for name in cells[0]}
    for name in ("licence", "audit", "needs", "shape", "domain"):
        if sum(widths.values()) + DESCRIPTION_CHARS > console.width:
            del widths[name]
    indent = sum(widths.values())
    beside = indent + DESCRIPTION_CHARS // 2 <= console.width
    if not beside:
        indent, widths["name"] = 2, console.width
    # Not a table of rich's, which takes 70 ms for 133 rows.
    lines = Text("".join(set_cell_size(name, width) for name, width in widths.items()), "bold")
    lines.append("description" if beside else "", "bold")
    for entry, cell in zip(entries, cells, strict=True):
        line = Text("\n", "" if entry.runnable else "dim")
        for name, width in widths.items():
            shown = set_cell_size(cell[name], width)
            line.append(shown, "dim" if name == "audit" and entry.audit.outdated else None)
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        folded = textwrap.wrap(about, console.width - indent)
        lines.append(line.append(f"\n{' ' * indent}".join(folded if beside else ("", *folded))))
    console.print(lines, no_wrap=True, overflow="ignore", crop=False)


def _print_markdown(entries: list[EnvironmentEntry]) -> None:
    """The README's table; it does not depend on what is installed."""
    print("| name | domain | shape | extra | licence of the data | what it is |")
    print("|---|---|---|---|---|---|")
    for entry in entries:
        cells = (
            f"`{entry.name}`",
            entry.domain,
            entry.shape,
            entry.extra,
            entry.data_license,
            entry.description,
        )
        print(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")


def _show_modules(entries: list[ModuleEntry]) -> None:
    keys = any(entry.key_variable for entry in entries)
    table = system_tables.drawn(("name", *(["key"] if keys else []), "description"), ())
    for entry in entries:
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        key = f"{entry.key_variable}{' (set)' if entry.key_set else ''}"
        table.add_row(entry.name, *([key] if keys else []), about, style="" if entry.runnable else "dim")
    terminal.output().print(table)


def _show_packs(entries: list[PackEntry]) -> None:
    table = system_tables.drawn(("name", "tools", "licence", "description"), ())
    for entry in entries:
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        tools = "\n".join(tool["name"] for tool in entry.tools)
        style = "" if entry.runnable else "dim"
        table.add_row(entry.name, tools, entry.data_license, about, style=style)
    terminal.output().print(table)


def _show_recipes(listed: list[recipes.RecipeEntry]) -> None:
    """Each recipe with what it lacks, then each part of any of them."""
    table = system_tables.drawn(("recipe", "parts", "here", "runnable", "not here"), ())
    for recipe in listed:
        missing = ", ".join(part.name for part in recipe.parts if not part.environment)
        here = sum(bool(part.environment) for part in recipe.parts)
        runnable = sum(part.runnable for part in recipe.parts)
        table.add_row(recipe.name, *map(str, (len(recipe.parts), here, runnable)), missing)
    terminal.output().print(table)
    parts = system_tables.drawn(("part", "environment", "needs"), ())
    for part in {part.name: part for recipe in listed for part in recipe.parts}.values():
        parts.add_row(part.name, part.environment, part.needs, style="" if part.runnable else "dim")
    terminal.output().print(parts)


# -- runs ---------------------------------------------------------------------------------------------


def _list_runs(broker: Broker, *, as_json: bool) -> None:
    import anyio
    from gym_runtime.cli import ask

    from gym_view.commands.status import COUNTING_S, counted
    from gym_view.state_json import full_run

    if not broker.urls:
        _list_results(as_json=as_json)
        return

    async def look(gym: Client) -> tuple[list[RunInfo], dict[str, RunProgress]]:
        runs = await gym.runs()
        progress = await gym.progress(runs)
        with anyio.move_on_after(COUNTING_S):
            for run in runs:
                known = progress.get(run.run)
                counter = await counted(gym, run, known) if known else None
                # Figures of a part would look like those of the run.
                if known and counter and counter.done == known.done:
                    progress[run.run] = replace(known, figures=counter.figures(), failed=counter.failed)
        return runs, progress

    runs, progress = ask(broker, look)
    if as_json:
        terminal.print_json([full_run(run, progress) for run in runs])
    elif runs:
        terminal.output().print(system_tables.drawn_runs(runs, progress))
    else:
        terminal.say("the system knows of no runs")


def _list_results(*, as_json: bool) -> None:
    """The runs in the files of this folder, as no system is named."""
    from gym_view.run_files import DEFAULT_FOLDER, find_runs

    if not DEFAULT_FOLDER.is_dir():
        raise UsageError(
            f"there is no folder {DEFAULT_FOLDER}/ here; for the runs of a system, name it with --nats URL "
            "or the environment variable GYM_NATS_URL"
        )
    found = [_result(run) for run in find_runs([DEFAULT_FOLDER])]
    if as_json:
        terminal.print_json([msgspec.structs.asdict(run) for run in found])
        return
    rows = system_tables.runs(found)
    without = ("state", "rate", "left", *system_tables.without_useful(found))
    terminal.output().print(system_tables.drawn(system_tables.RUNS, rows, without=without))
    terminal.note(f"the runs in {DEFAULT_FOLDER}/; those of a running system: --nats URL or GYM_NATS_URL")


def _result(run: Run) -> RunView:
    """The figures of a run in files; its name is the path of its rollouts."""
    from gym_view.live import RunView
    from gym_view.run_figures import figures_of, rows_of
    from gym_view.run_files import describe

    figures, groups = figures_of((row for _, row in rows_of(run)), failures_as_zero=run.failures_as_zero)
    about = describe(run)
    manifest = as_object(about["manifest"])
    total, started_s = manifest.get("rollouts"), manifest.get("started_s")
    return RunView(
        run=str(run.rollouts),
        state="stored",
        total=total if isinstance(total, int) else figures.rollouts,
        model=as_text(as_object(manifest.get("settings")).get("model") or ""),
        environments=sorted({environment for environment, _ in groups} - {""}),
        agents=[],
        created_s=started_s if isinstance(started_s, float) else about["modified_s"],
        done=figures.rollouts,
        failed=figures.outcomes.get("failed", 0),
        rate_per_s=None,
        left_s=None,
        mean_reward=figures.mean_reward,
        truncated=figures.outcomes.get("truncated", 0),
        useful=figures.useful,
    )
