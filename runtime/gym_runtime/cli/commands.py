"""What can be typed: every command with its options. Bodies only hand over, and import when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gym_runtime.cli import flags

RUNNING = "Make rollouts"
LOOKING = "Look around"
WRITING = "Write environments"
DATA = "Prepare data"

Listing = Literal["environments", "agents", "models", "runs"]
Shape = Literal["verify", "session", "episode"]
Origin = Literal["huggingface", "file", "generate"]
RunId = Annotated[str, typer.Argument(metavar="RUN", show_default=False, help="As publish printed it.")]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def gym_runtime(version: flags.Version = False) -> None:
    """Make verified rollouts of language models, on this machine or on many."""


@app.command(rich_help_panel=RUNNING)
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            show_default="the environments' example rows",
            help="Dataset rows, JSONL, or - for standard input. With several environments, rows say theirs "
            "in agent_ref.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default="results/NAME.jsonl",
            help="The rollouts; further files are put beside it.",
        ),
    ] = None,
    agent: flags.Agent = None,
    settings: flags.Settings = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on with an interrupted run.")
    ] = False,
    json: flags.AsJson = False,
    model: flags.Model = "",
    model_url: flags.ModelUrl = None,
    model_api: flags.ModelApi = "auto",
    engine_args: flags.EngineArgs = "",
    temperature: flags.Temperature = None,
    top_p: flags.TopP = None,
    max_output_tokens: flags.MaxOutputTokens = None,
    seed_repeats: flags.SeedRepeats = False,
    return_token_ids: flags.ReturnTokenIds = False,
    max_staleness: flags.MaxStaleness = None,
    limit: flags.Limit = None,
    repeats: flags.Repeats = 1,
    max_turns: flags.MaxTurns = None,
    timeout: flags.Timeout = None,
    max_attempts: flags.MaxAttempts = 3,
    durability: flags.Durability = "turn",
    concurrency: flags.Concurrency = 1024,
    workers: flags.Workers = 1,
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
    state_dir: flags.StateDir = "",
    config: flags.BrokerAndModel = None,
) -> int:
    """Make rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.
    """
    from gym_runtime.cli import run as runs
    from gym_runtime.cli.options import RunOptions, parse_settings, parse_urls

    options = RunOptions(
        names=tuple(names or ()),
        input=input_file,
        output=output,
        agent=agent,
        settings=parse_settings(settings or ()),
        resume=resume,
        json=json,
        model=model,
        model_urls=tuple(model_url or ()),
        model_api=model_api,
        engine_args=engine_args,
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        seed_repeats=seed_repeats,
        return_token_ids=return_token_ids,
        max_staleness=max_staleness,
        limit=limit,
        repeats=repeats,
        max_turns=max_turns,
        timeout_s=timeout,
        max_attempts=max_attempts,
        durability=durability,
        concurrency=concurrency,
        workers=workers,
        nats=parse_urls(nats),
        prefix=prefix,
        state_dir=state_dir,
    )
    return runs.run(options.with_file(config) if config else options)


@app.command(rich_help_panel=RUNNING)
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
    model: flags.Model = "",
    model_url: flags.ModelUrl = None,
    model_api: flags.ModelApi = "auto",
    engine_args: flags.EngineArgs = "",
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
        model=model,
        model_urls=tuple(model_url or ()),
        model_api=model_api,
        engine_args=engine_args,
        concurrency=concurrency,
        workers=workers,
        nats=parse_urls(nats),
        prefix=prefix,
        state_dir=state_dir,
    )
    return starts.start(options)


@app.command(rich_help_panel=RUNNING)
def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Dataset rows, JSONL.", show_default=False)],
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment of rows that do not say theirs in agent_ref."),
    ] = None,
    agent: flags.Agent = None,
    settings: flags.Settings = None,
    temperature: flags.Temperature = None,
    top_p: flags.TopP = None,
    max_output_tokens: flags.MaxOutputTokens = None,
    seed_repeats: flags.SeedRepeats = False,
    return_token_ids: flags.ReturnTokenIds = False,
    max_staleness: flags.MaxStaleness = None,
    limit: flags.Limit = None,
    repeats: flags.Repeats = 1,
    max_turns: flags.MaxTurns = None,
    timeout: flags.Timeout = None,
    max_attempts: flags.MaxAttempts = 3,
    durability: flags.Durability = "turn",
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> None:
    """Put a file's rollouts on the queue of a running system; prints the run's id."""
    from gym_runtime.cli import run as runs
    from gym_runtime.cli.options import RunOptions, parse_settings, parse_urls

    options = RunOptions(
        names=(environment,) if environment else (),
        input=file,
        agent=agent,
        settings=parse_settings(settings or ()),
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        seed_repeats=seed_repeats,
        return_token_ids=return_token_ids,
        max_staleness=max_staleness,
        limit=limit,
        repeats=repeats,
        max_turns=max_turns,
        timeout_s=timeout,
        max_attempts=max_attempts,
        durability=durability,
        nats=parse_urls(nats),
        prefix=prefix,
    )
    print(runs.publish(options))


@app.command(rich_help_panel=RUNNING)
def collect(
    run: RunId,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The rollouts.", show_default=False),
    ],
    json: flags.AsJson = False,
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> int:
    """Write a published run's rollouts to a file, as they come; from any machine."""
    from gym_runtime.cli import run as runs
    from gym_runtime.cli.options import CollectOptions, parse_urls

    return runs.collect(
        CollectOptions(run=run, output=output, json=json, nats=parse_urls(nats), prefix=prefix)
    )


@app.command(rich_help_panel=RUNNING)
def cancel(
    run: RunId,
    task: Annotated[
        int | None, typer.Option(metavar="I", min=0, help="Only the rollouts of this task.")
    ] = None,
    rollout: Annotated[
        int | None, typer.Option(metavar="J", min=0, help="Only this rollout of the task.")
    ] = None,
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> None:
    """Stop a run, one of its tasks, or one rollout."""
    from gym_runtime.cli import look
    from gym_runtime.cli.options import parse_urls

    look.cancel(run, task, rollout, nats=parse_urls(nats), prefix=prefix)


@app.command(rich_help_panel=RUNNING)
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
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> None:
    """Pause a serving model, change its weights, and go on: rollouts wait meanwhile, none is lost."""
    from gym_runtime.cli import weights as controls
    from gym_runtime.cli.options import parse_urls

    controls.weights(
        action,
        argument,
        version=version,
        model_pool=model_pool,
        as_json=json,
        nats=parse_urls(nats),
        prefix=prefix,
    )


@app.command(rich_help_panel=RUNNING)
def gateway(
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen; whoever reaches it may use the models.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, help="0 lets the system choose.")] = 0,
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
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> int:
    """Serve a running system's models to agents that know only OpenAI's or Anthropic's API.

    Every call of a rollout (base URL /rollouts/ID/v1, or key gym-ID) is captured for GET /rollouts/ID/calls.
    """
    from gym_runtime.cli import gateway as gateways
    from gym_runtime.cli.options import parse_urls

    return gateways.gateway(
        gateways.GatewayOptions(
            host=host,
            port=port,
            pools=tuple(model_pool or ("policy",)),
            output=output,
            return_token_ids=return_token_ids,
            capacity=concurrency,
            timeout_s=timeout,
            nats=parse_urls(nats),
            prefix=prefix,
        )
    )


@app.command(rich_help_panel=LOOKING)
def status(json: flags.AsJson = False, nats: flags.Nats = "", prefix: flags.Prefix = "gym") -> None:
    """Show a running system: its workers and their load, what waits, which runs are active."""
    from gym_runtime.cli import look
    from gym_runtime.cli.options import parse_urls

    look.status(nats=parse_urls(nats), prefix=prefix, as_json=json)


@app.command(rich_help_panel=LOOKING)
def ls(
    what: Annotated[
        Listing, typer.Argument(metavar="environments|agents|models|runs", show_default=False)
    ] = "environments",
    json: flags.AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the environments as a Markdown table.")
    ] = False,
    nats: flags.Nats = "",
    prefix: flags.Prefix = "gym",
) -> None:
    """List what there is: environments (if not said otherwise), agents, model providers, or runs."""
    from gym_runtime.cli import look
    from gym_runtime.cli.options import parse_urls

    look.ls(what, nats=parse_urls(nats), prefix=prefix, as_json=json, markdown=markdown)


@app.command(rich_help_panel=WRITING)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A Python name.")],
    shape: Annotated[
        Shape,
        typer.Option(
            metavar="SHAPE",
            help="verify: an answer is judged; session: tools and state; episode: step by step.",
        ),
    ] = "session",
    directory: Annotated[Path, typer.Option(metavar="DIR", help="Where to put it.")] = Path(),
) -> None:
    """Write a new environment to start from: NAME.py and NAME.jsonl, which pass the contract."""
    from gym_runtime.cli import author

    author.new(name, shape, directory)


@app.command("test", rich_help_panel=WRITING)
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", show_default=False, help="Environments, or paths of modules."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Test every environment.")] = False,
    json: flags.AsJson = False,
) -> int:
    """Check an environment against the contract that all of them keep; needs no model and no broker."""
    from gym_runtime.cli import author

    return author.test(tuple(names or ()), everything=everything, as_json=json)


@app.command(rich_help_panel=WRITING)
def reverify(
    rollouts: Annotated[
        Path,
        typer.Option("--rollouts", metavar="FILE", show_default=False, help="Stored rows, or NeMo Gym's."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="The rows, judged anew."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="The environment; else each row's own."),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The run's *_materialized_inputs.jsonl, or its dataset, for fields that the rows lack; "
            "repeatable.",
        ),
    ] = None,
    settings: flags.Settings = None,
    concurrency: Annotated[int, typer.Option(metavar="C", min=1, help="Rows judged at once.")] = 8,
    strict: Annotated[
        bool, typer.Option("--strict", metavar="", help="Another reward than before makes the exit status 1.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on where an interrupted one stopped.")
    ] = False,
    json: flags.AsJson = False,
) -> int:
    """Compute the rewards of stored rollouts anew, without a model, and compare them with the recorded ones.

    Recorded tool calls are repeated. Rows that cannot be judged are put into a file beside the output, with
    the reason, and make the exit status 1.
    """
    from gym_runtime.cli import reverify as rejudging
    from gym_runtime.cli.options import parse_settings

    return rejudging.reverify(
        rejudging.ReverifyOptions(
            name=name,
            rollouts=rollouts,
            output=output,
            inputs=tuple(inputs or ()),
            settings=parse_settings(settings or ()),
            concurrency=concurrency,
            strict=strict,
            resume=resume,
            json=json,
        )
    )


@app.command(rich_help_panel=WRITING)
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", show_default=False, help="Environments, or paths of modules."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", metavar="", help="Measure every environment that can run here.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.01, help="How long to measure each environment.")
    ] = 1.0,
    settings: flags.Settings = None,
    json: flags.AsJson = False,
) -> int:
    """Measure what environments cost, on their example rows: verifying, tools, sessions. Needs no model."""
    from gym_runtime.cli import bench as benches
    from gym_runtime.cli.options import parse_settings

    return benches.bench(
        tuple(names or ()),
        everything=everything,
        seconds=seconds,
        settings=parse_settings(settings or ()),
        as_json=json,
    )


@app.command(rich_help_panel=DATA)
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
    json: flags.AsJson = False,
) -> int:
    """Get rows, check every one, blend them, and write them with their metrics.

    Writes DIR/SPLIT.jsonl, DIR/SPLIT_metrics.json and DIR/sources.json, which pins what was downloaded.
    """
    from gym_runtime.cli import prepare as preparing

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
