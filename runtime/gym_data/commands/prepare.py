"""``prepare``: rows from the hub, from files or from environments, as files to train and evaluate on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from cyclopts import Parameter
from gym_runtime import assets as cache
from gym_runtime.cli import (
    AT_LEAST_ONE,
    DATA,
    FLAT,
    AsJson,
    Output,
    note_names,
    shown_name,
    terminable,
    terminal,
)
from gym_runtime.environment import Split, catalogue
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import read_prompt
from gym_runtime.plurals import counted

from gym_data.prepare.collate import Collation, Prepared, Recipe
from gym_data.prepare.sources import Wanted

T = TypeVar("T", int, float)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """What ``prepare`` was asked to do.

    Attributes:
        split: train, validation, benchmark or example; repeatable. By default train, or
            benchmark for benchmarks.
        output: The output folder; nothing is written elsewhere. By default data/NAME.
        source: huggingface, file or generate; by default file if there is an --input, else what the
            environment offers. The hub takes HF_TOKEN and HF_ENDPOINT.
        input_file: The rows, JSONL; with several NAMEs, NAME=FILE.
        prompt: A YAML or TOML template that makes a row's input of its fields; by default a benchmark's own.
        weight: NAME=W, shares of a blend; by default in proportion to the numbers of rows.
        repeats: NAME=K, how often each row is written, one directly after the other.
        seed: Of the blend, of samples and of generated rows.
        size: Rows in all, before repeats; by default all.
        settings: KEY=VALUE, a setting of the environment's generator.
        skip_unknown: Leave out rows whose agent_ref names no environment that is installed, and list them; by
            default they belong to the environment that is named.
        overwrite_metrics_conflicts: Accept data that differs from its stored metrics, and replace these.
        assets: Fetch the files that rows of NAME need, but no rows.
    """

    split: tuple[str, ...] = ()
    output: Output = None
    source: Literal["huggingface", "file", "generate"] | None = None
    input_file: Annotated[tuple[str, ...], Parameter(name=["--input", "-i"], allow_leading_hyphen=True)] = ()
    prompt: Path | None = None
    weight: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    seed: int = 0
    size: Annotated[int | None, AT_LEAST_ONE] = None
    settings: Annotated[tuple[str, ...], Parameter(name="--set")] = ()
    skip_unknown: Annotated[bool, Parameter(negative="")] = False
    overwrite_metrics_conflicts: bool = False
    assets: bool = False
    json: AsJson = False


PREPARE = PrepareOptions()


def prepare(*names: str, options: Annotated[PrepareOptions, FLAT] = PREPARE) -> int:
    """Get rows, check every one, blend them, and write them with their metrics.

    Writes DIR/SPLIT.jsonl, DIR/SPLIT_metrics.json and DIR/sources.json, which pins what was downloaded; and
    all rows of each source with their metrics: as DIR/NAME_SPLIT_prepare.jsonl and
    DIR/NAME_SPLIT_metrics.json, or without -o beside an --input x.jsonl as x_prepare.jsonl and
    x_metrics.json.

    Args:
        names: Environments as for 'gym-runtime run', blended if several; NAME:DATASET where one has several
            data sets.
    """
    names = catalogue.several(names)
    if options.assets:
        return _fetch_assets(names, as_json=options.json)
    if not names:
        raise UsageError("say which: gym-runtime prepare NAME...")
    if len(set(names)) < len(names):
        raise UsageError("an environment is named twice; --repeats NAME=K repeats its rows")
    environments = {name: catalogue.environment(_module(name)) for name in names}
    benchmarks = all(environment.definition.benchmark for environment in environments.values())
    usual = "benchmark" if benchmarks else "train"
    splits: list[Split] = [_split(given) for given in dict.fromkeys(options.split or (usual,))]
    inputs = _inputs(names, options)
    weights = _weights(names, options)
    if inputs and len(splits) > 1:
        raise UsageError("--input is of one split; prepare one after the other")
    recipe = Recipe(
        output=options.output or DATA / "-".join(shown_name(_module(name)) for name in names),
        only_output=options.output is not None,
        weights=weights,
        repeats=_repeats(names, options),
        prompt=read_prompt(options.prompt) if options.prompt else None,
        seed=options.seed,
        size=options.size,
        overwrite_conflicts=options.overwrite_metrics_conflicts,
        skip_unknown=options.skip_unknown,
    )
    settings = {key: _value(text) for key, text in (_pair(given, "--set") for given in options.settings)}
    with terminable(), Collation(recipe, terminal.downloading, note_names) as collation:
        for split in splits:
            wanted = [
                Wanted(
                    name=name,
                    module=_module(name),
                    environment=environments[name],
                    dataset=name.removeprefix(_module(name)).removeprefix(":"),
                    split=split,
                    origin=options.source,
                    file=inputs.get(name),
                    settings=settings,
                )
                for name in names
            ]
            if settings and sum(one.choose() == "generate" for one in wanted) != 1:
                what = "--set is for one environment that generates rows"
                raise UsageError(f"{what}; prepare it alone, with --source generate")
            collation.check(split, wanted)
        _show([collation.write(split) for split in splits], as_json=options.json)
    return 0


def _fetch_assets(names: tuple[str, ...], *, as_json: bool) -> int:
    """Fetch the files that environments declare as their assets; 0 if none is missing.

    Raises:
        UsageError: a name is unknown, or has no assets; a file cannot be fetched, or by no program.
    """
    from gym_data.prepare.asset_files import fetch, install

    if not names:
        raise UsageError("name the environments whose assets you want: gym-runtime prepare --assets NAME...")
    environments = {name: catalogue.environment(name) for name in names}
    without = [name for name, one in environments.items() if not one.definition.assets]
    if without:
        raise UsageError(f"'{without[0]}' needs no files besides those that are shipped")
    shown: list[dict[str, Any]] = []
    for name, environment in environments.items():
        for asset in environment.definition.assets:
            fetched: list[str] = []
            if asset.urls:
                with terminal.downloading(f"{asset.description} ({asset.licence})") as report:
                    fetched = fetch(asset, report)
            installed = install(asset)
            shown.append(
                {
                    "environment": name,
                    "asset": asset.name,
                    "licence": asset.licence,
                    "folder": str(cache.cached(asset)),
                    "fetched": fetched,
                    "installed": installed,
                    "by_hand": "" if asset.urls else cache.remedy(asset, name),
                }
            )
    if as_json:
        terminal.print_json(shown)
        return 0
    console = terminal.output()
    for one in shown:
        what = f"{counted(len(one['fetched']), 'file')} fetched" if one["fetched"] else "all files are there"
        what += ", installed" if one["installed"] else ""
        place = one["by_hand"] or f"{what}, in {one['folder']}"
        console.print(f"{one['asset']} ({one['licence']}): {place}", soft_wrap=True)
    return 0


def _module(name: str) -> str:
    """``NAME`` of ``NAME:DATASET``; a guest's ``SCHEME:ADDRESS`` is a name."""
    return name if catalogue.exists("environments", name) else name.partition(":")[0]


def _split(given: str) -> Split:
    try:
        return msgspec.convert(given, Split)
    except msgspec.ValidationError:
        raise UsageError(f"--split {given}: it is one of {', '.join(get_args(Split))}") from None


def _inputs(names: tuple[str, ...], options: PrepareOptions) -> dict[str, Path]:
    """Which file has the rows of which name."""
    if len(names) == 1 and len(options.input_file) == 1:
        name, given = names[0], options.input_file[0]
        return {name: Path(given.removeprefix(f"{name}="))}
    found: dict[str, Path] = {}
    for given in options.input_file:
        name, separator, path = given.partition("=")
        if not separator or name not in names:
            raise UsageError(
                f"--input {given}: name the environment of these rows: --input NAME={Path(given).name}"
            )
        if name in found:
            raise UsageError(f"--input {given}: '{name}' has a file already")
        found[name] = Path(path)
    return found


def _weights(names: tuple[str, ...], options: PrepareOptions) -> dict[str, float]:
    weights = _numbers(options.weight, names, "--weight", float)
    if weights and len(weights) < len(names):
        missing = next(name for name in names if name not in weights)
        raise UsageError(f"'{missing}' has no --weight; give one to each environment, or to none")
    return weights


def _repeats(names: tuple[str, ...], options: PrepareOptions) -> dict[str, int]:
    repeats = _numbers(options.repeats, names, "--repeats", int)
    for name, times in repeats.items():
        if times < 1:
            raise UsageError(f"--repeats {name}={times}: it must be at least 1")
    return repeats


def _numbers(given: tuple[str, ...], names: tuple[str, ...], flag: str, kind: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for text in given:
        name, value = _pair(text, flag)
        if name not in names:
            raise UsageError(f"{flag} {text}: '{name}' is not one of {', '.join(names)}")
        try:
            found[name] = kind(value)
        except ValueError:
            raise UsageError(f"{flag} {text}: '{value}' is not a number") from None
    return found


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise UsageError(f"{flag} {text}: write it as NAME=VALUE")
    return name, value


def _value(text: str) -> Any:
    """JSON if it can be decoded, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _show(prepared: list[Prepared], *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(
            [
                {
                    **msgspec.structs.asdict(one),
                    "output": str(one.output),
                    "metrics": str(one.metrics),
                    "sources": {name: str(path) for name, path in one.sources.items()},
                }
                for one in prepared
            ]
        )
        return
    console = terminal.output()
    for one in prepared:
        shares = ", ".join(f"{count:,} {name}" for name, count in one.environments.items())
        console.print(f"{one.split:10} {counted(one.rows, 'row')} ({shares})", soft_wrap=True)
        console.print(f"rows       {one.output}", soft_wrap=True)
        console.print(f"metrics    {one.metrics}", soft_wrap=True)
        for path in one.sources.values():
            console.print(f"source     {path}", soft_wrap=True)
