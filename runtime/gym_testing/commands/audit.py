"""``audit``: how often a verifier pays for wrong replies, and refuses right ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import msgspec
from cyclopts import Parameter
from gym_runtime import Verdict
from gym_runtime.adapters import ModelSettings
from gym_runtime.cli import (
    AT_LEAST_ONE,
    DATA,
    POSITIVE,
    ROLES,
    AsJson,
    Everything,
    Output,
    RoleOptions,
    Roles,
    RowFields,
    fetch_weights,
    formatting,
    parse_roles,
    parse_row_fields,
    run_async,
    terminal,
)
from gym_runtime.environment import (
    LoadedEnvironment,
    catalogue,
    examples,
    require_known,
    requirements,
    with_settings,
)
from gym_runtime.errors import GymError, UsageError
from gym_runtime.messages import Message, decode_items, decode_response
from rich.table import Table

from gym_testing.audit import artifact as artifacts
from gym_testing.audit import kept_rates, lint
from gym_testing.audit.artifact import CLASSES, Artifact, Rate
from gym_testing.audit.difficulty import Difficulty, difficulty
from gym_testing.audit.judges import NamedJudge
from gym_testing.audit.measuring import Auditor, Plan
from gym_testing.audit.notes import notes
from gym_testing.audit.rows import read
from gym_testing.checks.reverification import asked_models
from gym_testing.checks.subject import Subject

LONGEST_S = 1e6
SHOWN_FINDINGS = 20
SHOWN_CHARS = 160
COLUMNS = {
    "gold fails": "gold_fails",
    "nop paid": "nop",
    "false positive": "false_positive",
    "false negative": "false_negative",
    "unstable": "unstable",
}


KeepRates = Annotated[bool, Parameter(negative="")]


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one environment; ``problem`` is why nothing was measured."""

    environment: str
    artifact: Artifact | None = None
    problem: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding's reply, judged again; ``problem`` is the error in place of a reward."""

    id: str
    source: str
    expected: str
    recorded: float | None
    reward: float | None
    problem: str = ""
    reply: str


def audit(
    *names: str,
    everything: Everything = False,
    input: Path | None = None,  # noqa: A002 - the flag's name
    against: tuple[Path, ...] = (),
    output: Output = None,
    replay: str | None = None,
    rows: Annotated[int, AT_LEAST_ONE] = 200,
    seconds: Annotated[float, POSITIVE] = 60.0,
    repeats: Annotated[int, AT_LEAST_ONE] = 20,
    seed: int = 0,
    row_fields: RowFields = (),
    model: str | None = None,
    model_url: tuple[str, ...] = (),
    tries: Annotated[int, AT_LEAST_ONE] = 8,
    roles: Roles = ROLES,
    strict: bool = False,
    keep_rates: KeepRates = False,
    json: AsJson = False,
) -> int:
    """Measure how often a verifier pays for wrong replies and refuses right ones, and how hard rows are.

    It judges perfect rollouts, empty replies, exploits, near misses and other forms of right answers, and the
    same replies many times. It writes NAME.audit.json with the rates and NAME.audit.replies.jsonl with the
    replies that show what was found. That needs no model, and what a judge decides is not measured. With
    --judge or --role it is, by that model, and how often the judge agrees with itself. With --model it also
    runs each row several times: pass rate by row, rows whose rewards differ, length.

    Args:
        names: Environments, or paths of modules.
        everything: Measure every environment that can run here.
        input: Rows to measure in place of the examples, JSONL; a row without "gold" gets its perfect rollout
            from its answer's field, where the verifier pays for that.
        against: Rows, such as those of a test, or an environment whose rows were prepared here: which prompts
            of the input they have is said; repeatable. Benchmarks that were prepared are always compared.
        output: Where the artifact goes; by default NAME.audit.json in this folder.
        replay: The id of a finding: judge its reply again and show it.
        rows: On how many rows to try all replies, drawn by the seed; perfect rollouts and empty replies are
            judged on all rows.
        seconds: How long to measure each environment.
        repeats: How often the same replies are judged.
        seed: Chooses the rows and the order of the replies.
        row_fields: NAME=VALUE, a field for the rows that leave it out; JSON or text, repeatable.
        model: PROVIDER/NAME: have this model try the rows, too.
        model_url: Where the model is served; once per replica.
        tries: How often the model tries each row.
        strict: Findings that are not only suspect make the exit status 1.
        keep_rates: Also put the rates into audits.jsonl beside the module; 'ls environments' shows them.
    """
    if bool(names) == everything:
        raise UsageError("say which: gym-runtime audit NAME..., or --all (and not both)")
    chosen = list(names) or catalogue.names("environments")
    if len(chosen) > 1 and (input or replay):
        raise UsageError("--input and --replay are of one environment: gym-runtime audit NAME --input FILE")
    settings = parse_row_fields(row_fields)
    if replay is not None:
        environment = with_settings(catalogue.environment(chosen[0]), settings)
        _show_replayed(_replay(environment, _path(environment.name, output, 1), replay), as_json=json)
        return 0
    _require_writable(_path(Path(chosen[0]).stem, output, len(chosen)))
    solver, judges = _models(model, model_url, roles)
    if not everything:
        asked_of = [catalogue.environment(name) for name in chosen]
        for environment in asked_of:
            requirements.require(environment)
            if keep_rates:
                _require_writable(environment.source.parent / kept_rates.NAME)
        require_known(settings, asked_of)
        there = {role.name for environment in asked_of for role in environment.resource.roles}
        for role in judges.keys() - there:
            raise UsageError(f"there is no role '{role}' in {', '.join(chosen)}")
    plan = Plan(
        input=input,
        against=_files(against),
        published=_published(),
        rows=rows,
        seconds=min(seconds, LONGEST_S),
        repeats=repeats,
        seed=seed,
    )
    found: list[Audited] = []
    unrated = False

    async def measure() -> None:
        nonlocal unrated
        with terminal.errors().status("measuring") as status:
            for name in chosen:
                found_hard: Difficulty | None = None
                try:
                    environment = with_settings(catalogue.environment(name), settings)
                    # First: a dead engine shows within seconds, and the verifier's rates take up to a minute.
                    if solver is not None:
                        status.update(f"measuring {name} with {_name(solver)}")
                        chosen_rows = read(environment, plan.input, plan.rows, plan.seed)
                        found_hard = await difficulty(
                            environment, chosen_rows.examples, solver, tries=tries, roles=judges
                        )
                        unrated = unrated or found_hard.pass_rate is None
                    status.update(f"measuring {name}")
                    roles_here = {role.name for role in environment.resource.roles}
                    own = {role: settings for role, settings in judges.items() if role in roles_here}
                    async with asked_models(own) as asked:
                        named = {role: NamedJudge(_name(own[role]), ask) for role, ask in asked.items()}
                        auditor = Auditor(name, environment, plan, named)
                        made = await auditor.measure()
                except GymError as error:
                    if not everything:
                        raise
                    found.append(Audited(environment=name, problem=error.message))
                    continue
                if found_hard is not None:
                    made = artifacts.with_difficulty(made, found_hard)
                artifacts.write(_path(environment.name, output, len(chosen)), made, auditor.replies)
                if keep_rates and made.cost.reached < kept_rates.REACHED_AT_LEAST:
                    problem = (
                        f"its rates are not kept: {made.cost.reached:.0%} of the replies were judged within "
                        f"--seconds {seconds:g}, which is no sample; give it more"
                    )
                    found.append(Audited(environment=environment.name, problem=problem))
                elif keep_rates:
                    kept_rates.keep(environment.source, made, " ".join(row_fields))
                found.append(Audited(environment=environment.name, artifact=made))

    run_async(measure)
    terminal.print_json(found) if json else _show(found)
    wrong = any(rate.found for one in found if one.artifact for rate in one.artifact.rates.values())
    return 1 if unrated or (strict and wrong) else 0


def _models(
    model: str | None, urls: tuple[str, ...], roles: RoleOptions
) -> tuple[ModelSettings | None, dict[str, ModelSettings]]:
    """The model that tries the rows, and those in roles.

    Raises:
        UsageError: an option is wrong, or speaks of a model that is not named.
    """
    solver = ModelSettings.parse(model, urls=urls) if model is not None else None
    judges: dict[str, ModelSettings] = {}
    for role, settings in parse_roles(roles).items():
        named = settings or solver
        if named is None:
            raise UsageError(
                f"role '{role}' is the model that tries the rows: name it, --model PROVIDER/NAME"
            )
        judges[role] = named
    if solver is None and urls:
        raise UsageError("--model-url is of the model that tries the rows: name it, --model PROVIDER/NAME")
    for one in (*((solver,) if solver else ()), *judges.values()):
        fetch_weights(one)
    return solver, judges


def _name(model: ModelSettings) -> str:
    return f"{model.provider}/{model.name}"


def _published() -> dict[str, Path]:
    """The benchmarks of the catalogue, and where their rows are if they were prepared here."""
    found: dict[str, Path] = {}
    for name in catalogue.names("environments"):
        with suppress(UsageError):  # what it imports is not installed
            definition, _ = catalogue.definition(name)
            if any(one.split == "benchmark" for one in definition.datasets):
                found[name] = DATA / name / "benchmark.jsonl"
    return found


def _files(against: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files to compare with; those that were prepared, where an environment is named.

    Raises:
        UsageError: an environment that is named was not prepared.
    """
    found: list[Path] = []
    for one in against:
        if one.exists() or str(one) not in catalogue.names("environments"):
            found.append(one)
            continue
        prepared = sorted((DATA / str(one)).glob("*.jsonl"))
        if not prepared:
            raise UsageError(f"--against {one}: it has no rows here; run: gym-runtime prepare {one}")
        found += prepared
    return tuple(found)


def _path(name: str, output: Path | None, count: int) -> Path:
    if output is None or count > 1 or output.is_dir():
        return (output or Path()) / f"{name}.audit.json"
    if output.suffix != ".json":
        raise UsageError(f"--output {output}: the artifact is JSON; call it {output}.audit.json")
    return output


def _require_writable(path: Path) -> None:
    """Make its folder, and try to write there: later it would cost all that the audit has found."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _replay(environment: LoadedEnvironment, path: Path, wanted: str) -> Replayed:
    requirements.require(environment)
    recorded, line = artifacts.recorded(path, wanted)
    example = examples.example(environment, str(artifacts.replies_path(path)), recorded.finding.row, line)
    response = bytes(recorded.response)
    verdicts: list[Verdict] = []
    problem = ""

    async def judge() -> None:
        verdicts.append(await Subject(environment, [example]).judge(example, response))

    try:
        run_async(judge)
    except GymError as error:
        problem = error.message
    finding = recorded.finding
    return Replayed(
        id=finding.id,
        source=finding.source,
        expected=finding.expected,
        recorded=finding.reward,
        reward=verdicts[0].reward if verdicts else None,
        problem=problem,
        reply=_said(response),
    )


def _said(response: bytes) -> str:
    """A response's texts and other items, for people."""
    output = decode_response(response).output
    return "\n".join(
        item.text if isinstance(item, Message) else bytes(raw).decode()
        for item, raw in zip(decode_items(output), output, strict=True)
    )


def _show_replayed(one: Replayed, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(one)
        return
    console = terminal.output()
    console.print(one.reply[:5000], markup=False, soft_wrap=True)
    now = one.problem or formatting.reward(one.reward)
    console.print(
        f"{one.source}: expected {one.expected}, recorded {formatting.reward(one.recorded)}, now {now}",
        soft_wrap=True,
        markup=False,
    )


def _show(found: list[Audited]) -> None:
    console = terminal.output()
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("environment", no_wrap=True)
    for title in (*COLUMNS, "suspect", "judged", "replies"):
        table.add_column(title, justify="right")
    for one in found:
        if one.artifact is not None:
            table.add_row(*_cells(one.artifact))
    if table.row_count:
        console.print(table)
        console.print("rows with a finding / rows measured (95 % interval, Wilson)", style="dim")
    for one in found:
        if one.problem:
            console.print(f"- {one.environment}: {one.problem}", soft_wrap=True, style="dim")
    measured = [one.artifact for one in found if one.artifact is not None]
    if len(found) == 1 and measured:
        _show_findings(measured[0])
        _show_source(catalogue.environment(found[0].environment).source)


def _show_findings(made: Artifact) -> None:
    console = terminal.output()
    for finding in sorted(made.findings, key=lambda finding: finding.suspect)[:SHOWN_FINDINGS]:
        reward = formatting.reward(finding.reward)
        mark, detail = (
            "suspect: " if finding.suspect else "",
            f" ({finding.detail})" if finding.detail else "",
        )
        console.print(
            f"{finding.id}  row {finding.row}  {mark}{CLASSES[finding.kind]}: {finding.source}, "
            f"reward {reward}"
            f"{formatting.shorten(detail, SHOWN_CHARS)}",
            soft_wrap=True,
            markup=False,
        )
    if len(made.findings) > SHOWN_FINDINGS:
        console.print(f"… and {len(made.findings) - SHOWN_FINDINGS} more, in the artifact")
    for note in notes(made):
        console.print(note, soft_wrap=True, markup=False)


def _show_source(source: Path) -> None:
    """What in a module is to be looked at."""
    for place in lint.shown(lint.places(source), source.name):
        terminal.say(f"look at {place}")


def _cells(made: Artifact) -> list[str]:
    suspects = sum(rate.suspect for rate in made.rates.values())
    return [
        made.environment,
        *(_cell(made.rates[kind]) for kind in COLUMNS.values()),
        f"{suspects:,}",
        f"{made.judged:,}",
        f"{made.cost.verifications:,}",
    ]


def _cell(one: Rate) -> str:
    if one.found is None or one.low is None or one.high is None:
        return "unobserved"
    return f"{one.found}/{one.rows} ({one.low:.0%}–{one.high:.0%})"
