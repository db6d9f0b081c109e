"""What the operator of environments that search may set, and the fetcher that follows from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from gym_data.web import Fetcher, Guard, Recording, Service
from gym_runtime import ServiceUnavailable
from gym_runtime.errors import UNREADABLE, UsageError

RECORDING = "GYM_RECORDING"
EXCLUDED = "GYM_EXCLUDED_DOMAINS"
PRIVATE = "GYM_PRIVATE_HOSTS"
REPLAY = "GYM_REPLAY"
SHIPPED = Path(__file__).parent / "recordings"


def excluded(domains: Sequence[str]) -> tuple[str, ...]:
    """A row's excluded domains and the operator's, in lower case.

    Raises:
        ServiceUnavailable: the operator's list cannot be read.
    """
    return tuple(domain.strip().lower() for domain in domains) + operators_exclusions()


def fetcher(
    environment: str,
    services: Sequence[Service],
    *,
    replay: bool,
    cached: bool = False,
    denied: Sequence[str] = (),
) -> Fetcher:
    """The fetcher of an environment's session.

    Args:
        replay: play the recording that ``GYM_RECORDING`` names, or the one that the environment ships.
        cached: answers are kept on disk, and used again for a week.
        denied: domains whose pages are not read.
    """
    named = os.environ.get(RECORDING)
    path = Path(named).expanduser() if named else SHIPPED / f"{environment}.jsonl"
    hosts = os.environ.get(PRIVATE, "").split(",")
    private = frozenset(host.strip().lower() for host in hosts if host.strip())
    return Fetcher(
        services=() if replay else services,
        guard=Guard(private_hosts=private, denied=tuple(denied)),
        recording=Recording(path) if named or replay else None,
        replay=replay,
        cached=cached,
    )


def replays() -> bool:
    """Whether tool packs play the recording that ``GYM_RECORDING`` names: if ``GYM_REPLAY`` is 1.

    Raises:
        UsageError: it is something else.
    """
    said = os.environ.get(REPLAY, "")
    if said not in ("", "0", "1"):
        raise UsageError(f"{REPLAY}={said}: it must be 1, or 0 to ask outside")
    return said == "1"


class _Property(msgspec.Struct):
    type: str = ""
    value: Any = ""


class _Notice(msgspec.Struct):
    properties: list[_Property] = []


class _Notices(msgspec.Struct):
    notices: list[_Notice]


def operators_exclusions() -> tuple[str, ...]:
    """The domains that the operator excludes: those of the JSON file that ``GYM_EXCLUDED_DOMAINS`` names.

    It is a list of domains, or NeMo Gym's ``{"notices": [{"properties": [{"type": "domain", "value":
    …}]}]}``.

    Raises:
        ServiceUnavailable: the file cannot be read. Nothing is searched without it.
    """
    named = os.environ.get(EXCLUDED)
    if not named:
        return ()
    path = Path(named).expanduser()
    try:
        return _domains(path, path.stat().st_mtime_ns)
    except (OSError, *UNREADABLE) as error:
        raise ServiceUnavailable(f"{EXCLUDED}={named} cannot be read: {error}", stage="resource") from error


@lru_cache(maxsize=8)
def _domains(path: Path, changed_ns: int) -> tuple[str, ...]:
    found = msgspec.json.decode(path.read_bytes(), type=list[str] | _Notices)
    if isinstance(found, list):
        domains: list[Any] = [*found]
    else:
        domains = [one.value for notice in found.notices for one in notice.properties if one.type == "domain"]
    return tuple(domain.strip().lower() for domain in domains if isinstance(domain, str) and domain.strip())
