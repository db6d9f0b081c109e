"""Reaches the outside world for environments: pages that models name, and services such as search engines.

`Fetcher` is the one way out. It connects to public addresses only, whatever a URL, a redirect or a name's
server says; bounds time and size; keeps to the paces, quotas and keys of services; caches answers; and plays
or writes recordings. The addresses' rules also hold for what an engine is asked to fetch. Names are loaded
when they are first used, because the HTTP client is slow to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_data.web.fetcher import Fetcher as Fetcher
    from gym_data.web.outside_service import Said as Said
    from gym_data.web.outside_service import Service as Service
    from gym_data.web.outside_service import said as said
    from gym_data.web.public_addresses import host_of as host_of
    from gym_data.web.public_addresses import is_address as is_address
    from gym_data.web.public_addresses import is_public as is_public
    from gym_data.web.public_addresses import is_within as is_within
    from gym_data.web.public_addresses import resolved as resolved
    from gym_data.web.unavailable import PageUnavailable as PageUnavailable
    from gym_data.web.web_recording import Recording as Recording
    from gym_data.web.web_request import Bounds as Bounds
    from gym_data.web.web_request import Guard as Guard
    from gym_data.web.web_request import WebAnswer as WebAnswer
    from gym_data.web.web_request import WebRequest as WebRequest

_NAMES = {
    "public_addresses": "host_of is_address is_public is_within resolved",
    "web_request": "Bounds Guard WebAnswer WebRequest",
    "fetcher": "Fetcher",
    "web_recording": "Recording",
    "outside_service": "Said Service said",
    "unavailable": "PageUnavailable",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gym_data.web' has no attribute '{name}'")
    return getattr(import_module(f"gym_data.web.{home}"), name)
