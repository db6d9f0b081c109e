"""The options that several commands share, said once.

Those that belong together are the fields of a dataclass, which a command takes whole
(`gym_runtime.cli.signature`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gym_runtime import __version__

MODEL = "Model"
SAMPLING = "Sampling"
LIMITS = "Limits"
SYSTEM = "System"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"gym-runtime {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", metavar="", is_eager=True, callback=_show_version, help="Show the version and exit."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document, for programs.")]

Nats = Annotated[
    str,
    typer.Option(
        "--nats",
        metavar="URL",
        envvar="GYM_NATS_URL",
        rich_help_panel=SYSTEM,
        help="The broker of a running system; several URLs of a cluster separated by commas. "
        "'run' starts workers of its own there, and without --model asks the model that the system serves. "
        "A URL with a password belongs into the variable. GYM_NATS_CREDENTIALS names a file with an NKey "
        "seed or a .creds file, GYM_NATS_CA the certificate authority of tls:// URLs.",
    ),
]
_PREFIX = typer.Option(
    metavar="NAME",
    rich_help_panel=SYSTEM,
    show_default="gym",
    help="Tells systems that share a broker apart.",
)
Prefix = Annotated[str, _PREFIX]
StateDir = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        rich_help_panel=SYSTEM,
        help="Where a broker of our own keeps its queue; else a temporary directory.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=SYSTEM,
        help="A system described in TOML, as 'gym-runtime start --help' shows. Options given here win.",
    ),
]
BrokerAndModel = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=SYSTEM,
        help="Take the broker and the model from a system's file ('gym-runtime start --help'). "
        "Options given here win.",
    ),
]
_WORKERS = typer.Option(
    metavar="W", min=1, rich_help_panel=SYSTEM, show_default="1", help="Processes of each kind."
)
_CONCURRENCY = typer.Option(
    metavar="C",
    min=1,
    rich_help_panel=SYSTEM,
    show_default="1024",
    help="Rollouts in flight, over all agent workers.",
)
Workers = Annotated[int, _WORKERS]
WorkersIfSaid = Annotated[int | None, _WORKERS]
Concurrency = Annotated[int, _CONCURRENCY]
ConcurrencyIfSaid = Annotated[int | None, _CONCURRENCY]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field for the rows that leave it out, such as threshold=0.9; JSON or text, repeatable.",
    ),
]
ReturnTokenIds = Annotated[
    bool,
    typer.Option(
        "--return-token-ids",
        metavar="",
        rich_help_panel=SAMPLING,
        help="Put token ids and log-probabilities on the rows, for training.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Broker:
    """Which system: that of every command that joins a running one."""

    nats: Nats = ""
    prefix: Prefix = "gym"

    @property
    def urls(self) -> tuple[str, ...]:
        from gym_runtime.cli.options import parse_urls

        return parse_urls(self.nats)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which model, and where it is."""

    model: Annotated[
        str,
        typer.Option(
            metavar="PROVIDER/NAME",
            rich_help_panel=MODEL,
            show_default="embedded/smollm2-135m",
            help="openai/NAME, embedded/NAME, scripted/NAME and others: 'gym-runtime ls models'.",
        ),
    ] = ""
    model_urls: Annotated[
        list[str] | None,
        typer.Option(
            "--model-url",
            metavar="URL",
            rich_help_panel=MODEL,
            help="Where the model is served, such as http://127.0.0.1:8000/v1; once per replica.",
        ),
    ] = None
    model_api: Annotated[
        Literal["auto", "responses", "chat"],
        typer.Option(
            metavar="API",
            rich_help_panel=MODEL,
            help="responses, chat, or auto to take the Responses API where there is one.",
        ),
    ] = "auto"
    engine_args: Annotated[
        str,
        typer.Option(
            metavar="ARGS",
            rich_help_panel=MODEL,
            help="For an engine of the worker's own (vllm without --model-url): its arguments, "
            "such as '--max-model-len 4096'.",
        ),
    ] = ""

    def said(self) -> dict[str, Any]:
        """The fields of the same names in `options.RunOptions` and `options.StartOptions`."""
        return {**vars(self), "model_urls": tuple(self.model_urls or ())}


@dataclass(frozen=True, kw_only=True)
class Making:
    """How rollouts are made, wherever that is."""

    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="the environment's", help="The agent that runs the rollouts."
        ),
    ] = None
    settings: Settings = None
    temperature: Annotated[
        float | None,
        typer.Option(metavar="F", min=0.0, rich_help_panel=SAMPLING, help="Overrides the rows'."),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(metavar="F", min=0.0, max=1.0, rich_help_panel=SAMPLING, help="Overrides the rows'."),
    ] = None
    max_output_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=SAMPLING, help="Per model call; overrides the rows'."
        ),
    ] = None
    seed_repeats: Annotated[
        bool,
        typer.Option(
            "--seed-repeats",
            metavar="",
            rich_help_panel=SAMPLING,
            help="Give each repeat of a row a seed of its own (NeMo Gym's num_repeats_add_seed).",
        ),
    ] = False
    return_token_ids: ReturnTokenIds = False
    max_staleness: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            rich_help_panel=LIMITS,
            help="Make rollouts anew whose weights lie more than N versions behind the newest.",
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=LIMITS, help="Take the first N rows only."),
    ] = None
    repeats: Annotated[
        int, typer.Option(metavar="K", min=1, rich_help_panel=LIMITS, help="Rollouts per row.")
    ] = 1
    max_turns: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=LIMITS,
            help="Model calls per rollout, whatever the environment.",
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            rich_help_panel=LIMITS,
            show_default="the environment's",
            help="How long one rollout may take, over all of its attempts.",
        ),
    ] = None
    max_attempts: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=LIMITS,
            help="Tries that may fail before the rollout has failed; lost workers are no failed tries.",
        ),
    ] = 3
    durability: Annotated[
        Literal["turn", "result"],
        typer.Option(
            metavar="turn|result",
            rich_help_panel=LIMITS,
            help="turn: another worker goes on where one died; result: such a rollout is made anew.",
        ),
    ] = "turn"

    def said(self) -> dict[str, Any]:
        """The fields of the same names in `options.RunOptions`.

        Raises:
            UsageError: a setting is none.
        """
        from gym_runtime.cli.options import parse_settings

        return {**vars(self), "settings": parse_settings(self.settings or ())}
