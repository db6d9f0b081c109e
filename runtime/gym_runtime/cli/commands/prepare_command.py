"""``prepare``: rows from the hub, from files or from environments, as files to train and evaluate on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from gym_data.prepare.collate import Collation, Prepared, Recipe
from gym_data.prepare.prompts import read_prompt
from gym_data.prepare.sources import Wanted

from gym_runtime.cli import terminal
from gym_runtime.cli.chosen_rows import DATA
from gym_runtime.cli.download import downloading
from gym_runtime.cli.options.data_options import PrepareOptions
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import Split
from gym_runtime.errors import UNREADABLE, UsageError

T = TypeVar("T", int, float)


def fetch_assets(names: tuple[str, ...], *, as_json: bool = False) -> int:
    """Fetch the files that environments declare as their assets; 0 when all are there.

    Raises:
        UsageError: a name is unknown, or has no assets; a file cannot be fetched, or by no program.
    """
    from gym_data.prepare.asset_files import fetch, install

    from gym_runtime import assets as cache

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
                with downloading(f"{asset.description} ({asset.licence})") as report:
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
        what = f"{len(one['fetched'])} files fetched" if one["fetched"] else "all files are there"
        what += ", installed" if one["installed"] else ""
        place = one["by_hand"] or f"{what}, in {one['folder']}"
        console.print(f"{one['asset']} ({one['licence']}): {place}", soft_wrap=True)
    return 0


def prepare(options: PrepareOptions) -> int:
    """Write the files; 0 when all are there.

    Raises:
        UsageError: something asked for is not to be had, rows are wrong, or the data is not what its stored
            metrics say.
    """
    names = options.names
    if not names:
        raise UsageError("say which: gym-runtime prepare NAME...")
    if len(set(names)) < len(names):
        raise UsageError("an environment is named twice; --repeats NAME=K repeats its rows")
    environments = {name: catalogue.environment(_module(name)) for name in names}
    benchmarks = all(environment.definition.benchmark for environment in environments.values())
    usual = "benchmark" if benchmarks else "train"
    splits: list[Split] = [_split(given) for given in dict.fromkeys(options.split or (usual,))]
    inputs = _inputs(options)
    weights = _weights(options)
    if inputs and len(splits) > 1:
        raise UsageError("--input is of one split; prepare one after the other")
    recipe = Recipe(
        output=options.output or DATA / "-".join(Path(_module(name)).stem for name in names),
        only_output=options.output is not None,
        weights=weights,
        repeats=_repeats(options),
        prompt=read_prompt(options.prompt) if options.prompt else None,
        seed=options.seed,
        size=options.size,
        overwrite_conflicts=options.overwrite_metrics_conflicts,
    )
    settings = {key: _value(text) for key, text in (_pair(given, "--set") for given in options.settings)}
    with Collation(recipe, downloading) as collation:
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
                raise UsageError("--set is for one environment that generates rows; prepare it alone")
            collation.check(split, wanted)
        _show([collation.write(split) for split in splits], as_json=options.json)
    return 0


def _module(name: str) -> str:
    """``NAME`` of ``NAME:DATASET``."""
    return name.partition(":")[0]


def _split(given: str) -> Split:
    try:
        return msgspec.convert(given, Split)
    except msgspec.ValidationError:
        raise UsageError(f"--split {given}: it is one of {', '.join(get_args(Split))}") from None


def _inputs(options: PrepareOptions) -> dict[str, Path]:
    """Which file has the rows of which name."""
    if len(options.names) == 1 and len(options.input_file) == 1:
        name, given = options.names[0], options.input_file[0]
        return {name: Path(given.removeprefix(f"{name}="))}
    found: dict[str, Path] = {}
    for given in options.input_file:
        name, separator, path = given.partition("=")
        if not separator or name not in options.names:
            raise UsageError(
                f"--input {given}: name the environment of these rows: --input NAME={Path(given).name}"
            )
        if name in found:
            raise UsageError(f"--input {given}: '{name}' has a file already")
        found[name] = Path(path)
    return found


def _weights(options: PrepareOptions) -> dict[str, float]:
    weights = _numbers(options.weight, options.names, "--weight", float)
    if weights and len(weights) < len(options.names):
        missing = next(name for name in options.names if name not in weights)
        raise UsageError(f"'{missing}' has no --weight; give one to each environment, or to none")
    return weights


def _repeats(options: PrepareOptions) -> dict[str, int]:
    repeats = _numbers(options.repeats, options.names, "--repeats", int)
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
    """JSON where it is, else the text itself."""
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
        console.print(f"{one.split:10} {one.rows:,} rows ({shares})", soft_wrap=True)
        console.print(f"rows       {one.output}", soft_wrap=True)
        console.print(f"metrics    {one.metrics}", soft_wrap=True)
        for path in one.sources.values():
            console.print(f"source     {path}", soft_wrap=True)
