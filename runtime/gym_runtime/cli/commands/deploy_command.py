"""``deploy``: files that start a system on a platform."""

from __future__ import annotations

from gym_deploy.written import Platform, Values, write

from gym_runtime.cli import terminal
from gym_runtime.cli.options.system_options import DeployOptions


def deploy(platform: Platform, options: DeployOptions) -> None:
    """Write them out, and say where.

    Raises:
        UsageError: a value cannot be used, or a file is there already.
    """
    values = Values(
        image=options.image,
        package=options.package,
        environments=tuple(name for given in options.environments for name in given.split(",")),
        model=options.model,
        model_urls=options.model_urls,
        concurrency=options.concurrency,
        prefix=options.prefix,
    )
    for path in write(platform, options.folder, values, overwrite=options.overwrite):
        terminal.output().print(str(path), soft_wrap=True)
