"""Files of suites: which environments are run with which models."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError

SHIPPED = Path(__file__).parent / "suites"


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment of a suite.

    Attributes:
        name: as for 'gym-runtime run'.
        input: a file of its rows; by default its own.
        repeats: rollouts per row; by default the environment's.
        options: further options of 'gym-runtime run'.
        about: how it differs from what the suite's authors run.
    """

    name: str
    input: str = ""
    repeats: Annotated[int, msgspec.Meta(ge=1)] | None = None
    options: tuple[str, ...] = ()
    about: str = ""


class SuiteModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of a suite; ``options`` are those of 'gym-runtime run', for this model only."""

    name: str
    url: str = ""
    options: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of its folder of results."""
        return re.sub(r"[^\w.-]+", "_", self.name).strip("._") or "model"


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite; ``missing`` has what its authors run and is not here, with the reason."""

    environments: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]
    models: tuple[SuiteModel, ...] = ()
    description: str = ""
    missing: dict[str, str] = {}


def names() -> list[str]:
    """The suites that are shipped."""
    return sorted(path.name.removesuffix(".toml") for path in SHIPPED.glob("*.toml"))


def read(given: str) -> tuple[str, Suite]:
    """A suite by its file or by the name of one that is shipped; with its name.

    Raises:
        UsageError: the file does not exist, it is no suite, or two of its parts or models have the same name.
    """
    path = Path(given)
    if not path.is_file():
        path = SHIPPED / f"{given}.toml"
        if given not in names():
            raise UsageError(
                f"there is no suite '{given}'{catalogue.unknown(given, names())}, or name a file"
            )
    try:
        suite = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Suite)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}; a suite has tables [[environments]] and [[models]], each with a 'name'"
        ) from None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    require_distinct(path, [part.name for part in suite.environments])
    return path.name.removesuffix(".toml"), suite


def require_distinct(where: object, given: list[str]) -> None:
    """Refuse a name that comes twice.

    Raises:
        UsageError: one does.
    """
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{where}: '{twice}' is there twice")
