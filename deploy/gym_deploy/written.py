"""The files that start a system on a platform, written out with a system's values filled in.

The templates are beside this module. ``@NAME@`` is replaced by a value; everything else is in the platform's
own language.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import msgspec
from gym_runtime.bus import Names
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files import write_whole

Platform = Literal["slurm", "kubernetes", "compose", "systemd"]
_VALUE = re.compile(r"@([A-Z_]+)@")
_SAFE = re.compile(r"[\w./:,@=+\[\]-]+")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The values that are filled into the files.

    Attributes:
        image: the container image.
        package: what pip installs, with its extras.
        environments: names.
        model: ``PROVIDER/NAME``.
        model_urls: where it is served.
        concurrency: rollouts in flight per agent worker.
        prefix: of the system's subjects.
    """

    image: str = "localhost/gym-runtime"
    package: str = "gym-runtime"
    environments: tuple[str, ...] = ("mcqa",)
    model: str = "scripted/message"
    model_urls: tuple[str, ...] = ()
    concurrency: int = 256
    prefix: str = "gym"

    def by_name(self) -> dict[str, str]:
        """The value of each ``@NAME@``.

        Raises:
            UsageError: a value is empty, or has characters that a shell or YAML would read as something
                else; there is no such environment or model provider; or no system can have this prefix.
        """
        urls = [part for url in self.model_urls for part in ("--model-url", url)]
        values = {
            "IMAGE": self.image,
            "PACKAGE": self.package,
            "ENVIRONMENTS": ",".join(self.environments),
            "ENVIRONMENT_LIST": ", ".join(f'"{name}"' for name in self.environments),
            "AGENT_LIST": ", ".join(catalogue.names("agents")),
            "MODEL": self.model,
            "MODEL_PROVIDER": self.model.partition("/")[0],
            "MODEL_NAME": self.model.partition("/")[2],
            "MODEL_URLS": " ".join(urls),
            "MODEL_URL_ITEMS": "".join(f', "{part}"' for part in urls),
            "MODEL_URL_LIST": ", ".join(f'"{url}"' for url in self.model_urls),
            "CONCURRENCY": str(self.concurrency),
            "PREFIX": self.prefix,
            "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
        }
        given = {
            "image": (self.image,),
            "package": (self.package,),
            "environment": self.environments,
            "model": (self.model,),
            "model-url": self.model_urls,
        }
        for option, value in ((option, value) for option, several in given.items() for value in several):
            if not _SAFE.fullmatch(value):
                raise UsageError(f"--{option} {value!r}: letters, digits and ./:,@=+[]-_ only, at least one")
        if not (values["MODEL_PROVIDER"] and values["MODEL_NAME"]):
            raise UsageError(f"--model {self.model}: it is PROVIDER/NAME, such as openai/Qwen/Qwen3-4B")
        # Otherwise the log of a worker that never serves would say it, when the system has started.
        for name in self.environments:
            _require("environments", "environment", name)
        _require("models", "model provider", values["MODEL_PROVIDER"])
        Names(self.prefix)
        return values


def _require(kind: catalogue.Kind, what: str, name: str) -> None:
    if not catalogue.exists(kind, name):
        near = catalogue.suggest(name, catalogue.names(kind), kind)
        raise UsageError(f"there is no {what} '{name}' here, where its package must be installed, too{near}")


def write(platform: Platform, folder: Path, values: Values, *, overwrite: bool = False) -> list[Path]:
    """Write a platform's files below a folder; returns their paths.

    Raises:
        UsageError: a file exists already, or the folder cannot be written.
    """
    known = values.by_name()
    root = files("gym_deploy") / "templates" / platform
    texts = {folder / path: _filled(text, known) for path, text in _texts(root, Path())}
    present = [path for path in texts if path.exists()]
    if present and not overwrite:
        raise UsageError(f"{present[0]} exists; --overwrite replaces it, --dir names another folder")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, iter([text.encode()]))
            if text.startswith("#!"):
                path.chmod(0o755)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror or error}") from error
    return sorted(texts)


def _texts(at: Traversable, path: Path) -> Iterator[tuple[Path, str]]:
    for one in at.iterdir():
        if one.name == "__pycache__":  # pip compiles autoscale.py when it installs
            continue
        if one.is_dir():
            yield from _texts(one, path / one.name)
        else:
            yield path / one.name, one.read_text()


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VALUE.sub(lambda found: values.get(found[1], found[0]), text)
