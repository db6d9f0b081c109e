"""``deploy``: files that start a system on a platform."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from gym_runtime.cli import AT_LEAST_ONE, terminal

from gym_deploy.written import Platform, Values, write

FOLDER = Path("deploy")


def deploy(
    action: Literal["init"],
    platform: Platform,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--dir")] = FOLDER,
    image: str = "localhost/gym-runtime",
    package: str = "gym-runtime",
    environments: Annotated[tuple[str, ...], Parameter(name="--environment")] = ("mcqa",),
    model: str = "scripted/message",
    model_urls: Annotated[tuple[str, ...], Parameter(name="--model-url", show_default=False)] = (),
    concurrency: Annotated[int, AT_LEAST_ONE] = 256,
    prefix: str = "gym",
    overwrite: bool = False,
) -> None:
    """Write out the files that start a system on a platform, filled in, to be read and changed.

    Args:
        action: init writes them.
        platform: The platform.
        folder: The output folder.
        image: The container image.
        package: What pip installs into it, with extras.
        environments: An environment to serve, or several with commas; repeatable.
        model: PROVIDER/NAME.
        model_urls: Where the model is served; once per replica.
        concurrency: Rollouts in flight per agent worker.
        prefix: Tells systems that share a broker apart.
        overwrite: Replace existing files.
    """
    values = Values(
        image=image,
        package=package,
        environments=tuple(name for given in environments for name in given.split(",")),
        model=model,
        model_urls=model_urls,
        concurrency=concurrency,
        prefix=prefix,
    )
    for path in write(platform, folder, values, overwrite=overwrite):
        terminal.say(str(path))
