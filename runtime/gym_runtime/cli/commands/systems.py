"""Systems that stay: start one, look at it, serve and change its models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gym_runtime.cli import flags

Listing = Literal["environments", "agents", "models", "runs"]


def start(
    pools: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="POOL",
            show_default="all agents, all environments whose packages are installed, one model",
            help="agent, resource or model; or with names: resource:mcqa,reasoning_gym.",
        ),
    ] = None,
    config: flags.Config = None,
    *,
    model: flags.Model,
    concurrency: flags.ConcurrencyIfSaid = None,
    workers: flags.WorkersIfSaid = None,
    nats: flags.Nats = "",
    prefix: flags.Prefix = "",
    state_dir: flags.StateDir = "",
) -> int:
    """Start workers that stay, and a broker unless --nats names one; prints what is ready.

    Ctrl-C lets rollouts finish, then stops; a second one ends at once.

    --config FILE describes a system in TOML, of which POOLs pick a part. deploy/system.toml is an example:

    [dim]
    nats = "nats://10.0.0.5:4222"

    [\\[pools]]
    kind = "resource"
    names = ["mcqa", "reasoning_gym"]
    processes = 4

    [\\[pools]]
    kind = "model"
    model = { provider = "openai", name = "Qwen/Qwen3-4B", urls = ["http://10.0.0.7:8000/v1"] }
    [/dim]
    """
    from gym_runtime.cli import start as starts
    from gym_runtime.cli.options import StartOptions, parse_urls

    options = StartOptions(
        pools=tuple(pools or ()),
        config=config,
        concurrency=concurrency,
        workers=workers,
        nats=parse_urls(nats),
        prefix=prefix,
        state_dir=state_dir,
        **model.said(),
    )
    return starts.start(options)


def weights(
    action: Annotated[
        Literal["state", "pause", "resume", "version", "update"],
        typer.Argument(metavar="state|pause|resume|version|update", help="What to do."),
    ],
    argument: Annotated[
        str, typer.Argument(metavar="[NAME|PATH]", help="A version's name, or where the weights are.")
    ] = "",
    version: Annotated[
        str, typer.Option(metavar="NAME", help="What the weights of an update are called from then on.")
    ] = "",
    model_pool: Annotated[str, typer.Option(metavar="NAME", help="Which model.")] = "policy",
    json: flags.AsJson = False,
    *,
    broker: flags.Broker,
) -> None:
    """Pause a serving model, change its weights, and go on: rollouts wait meanwhile, none is lost."""
    from gym_runtime.cli import weights as controls

    controls.weights(
        action,
        argument,
        version=version,
        model_pool=model_pool,
        as_json=json,
        nats=broker.urls,
        prefix=broker.prefix,
    )


def gateway(
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen; whoever reaches it may use the models.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="0 lets the system choose.")
    ] = 0,
    model_pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default="policy",
            help="A model pool that clients may name as their model; the first serves all other names.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write each captured call here as well, JSONL."),
    ] = None,
    return_token_ids: flags.ReturnTokenIds = False,
    concurrency: Annotated[
        int, typer.Option(metavar="C", min=1, help="Calls in progress; more are answered 429.")
    ] = 1024,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Of one call.")] = 600.0,
    *,
    broker: flags.Broker,
) -> int:
    """Serve a running system's models to agents that know only OpenAI's or Anthropic's API.

    Every call of a rollout (base URL /rollouts/NAME/v1, or key gym-NAME) is captured for
    GET /rollouts/NAME/calls. POST /rollouts/ID, with GYM_GATEWAY_SECRET as the key, tells a rollout's NAME.
    """
    from gym_runtime.cli import gateway as gateways

    return gateways.gateway(
        gateways.GatewayOptions(
            host=host,
            port=port,
            pools=tuple(model_pool or ("policy",)),
            output=output,
            return_token_ids=return_token_ids,
            capacity=concurrency,
            timeout_s=timeout,
            nats=broker.urls,
            prefix=broker.prefix,
        )
    )


def status(json: flags.AsJson = False, *, broker: flags.Broker) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active."""
    from gym_runtime.cli import status

    status.status(nats=broker.urls, prefix=broker.prefix, as_json=json)


def ls(
    what: Annotated[
        Listing, typer.Argument(metavar="environments|agents|models|runs", show_default=False)
    ] = "environments",
    json: flags.AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the environments as a Markdown table.")
    ] = False,
    *,
    broker: flags.Broker,
) -> None:
    """List what there is: environments (if not said otherwise), agents, model providers, or runs."""
    from gym_runtime.cli import status

    status.ls(what, nats=broker.urls, prefix=broker.prefix, as_json=json, markdown=markdown)
