"""Data: rows for training, from a hub, a file or a generator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gym_runtime.cli import flags

Origin = Literal["huggingface", "file", "generate"]


def prepare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="Environments, blended if several; NAME:DATASET where one has several data sets.",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="SPLIT", show_default="train", help="train, validation or example; repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", show_default="data/NAME", help="The folder to fill."),
    ] = None,
    source: Annotated[
        Origin | None,
        typer.Option(
            metavar="SOURCE",
            show_default="file if there is an --input, else what the environment offers",
            help="huggingface, file or generate. The hub takes HF_TOKEN and HF_ENDPOINT.",
        ),
    ] = None,
    input_file: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="FILE", help="The rows, JSONL; with several NAMEs, NAME=FILE."),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A YAML or TOML file that makes the input of the rows' fields."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=W", show_default="the rows there are", help="Shares of a blend."),
    ] = None,
    repeats: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=K", help="How often each row comes, one after the other."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of the blend, of samples and of generated rows.")
    ] = 0,
    size: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default="all", help="Rows in all, before repeats.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the environment's generator."),
    ] = None,
    overwrite_metrics_conflicts: Annotated[
        bool,
        typer.Option(
            "--overwrite-metrics-conflicts", metavar="", help="The data may differ from its stored metrics."
        ),
    ] = False,
    assets: Annotated[
        bool,
        typer.Option("--assets", metavar="", help="Fetch the files that rows of NAME need, and no rows."),
    ] = False,
    json: flags.AsJson = False,
) -> int:
    """Get rows, check every one, blend them, and write them with their metrics.

    Writes DIR/SPLIT.jsonl, DIR/SPLIT_metrics.json and DIR/sources.json, which pins what was downloaded; and
    all rows of each source with their metrics: beside an --input x.jsonl as x_prepare.jsonl and
    x_metrics.json, else (and with --prompt) as DIR/NAME_SPLIT_prepare.jsonl and DIR/NAME_SPLIT_metrics.json.
    """
    from gym_runtime.cli import prepare as preparing

    if assets:
        return preparing.fetch_assets(tuple(names or ()), as_json=json)
    return preparing.prepare(
        preparing.PrepareOptions(
            names=tuple(names or ()),
            splits=tuple(split or ()),
            output=output,
            origin=source,
            inputs=tuple(input_file or ()),
            prompt=prompt,
            weights=tuple(weight or ()),
            repeats=tuple(repeats or ()),
            settings=tuple(settings or ()),
            seed=seed,
            size=size,
            overwrite_conflicts=overwrite_metrics_conflicts,
            json=json,
        )
    )
