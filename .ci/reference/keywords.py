"""The keywords of `Client.rollouts` as typed dictionaries, which editors complete and type checkers read.

Made of the settings, so that each is declared once; as source, because type checkers run no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_settings import OTHER_NAMES, RolloutSettings, Sampling
from msgspec import Raw

HEAD = '''"""Those keywords of `Client.rollouts` that are settings, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class SamplingKeywords(TypedDict, total=False):
    """Fields of `Sampling`, and those of a row's ``responses_create_params``."""

'''
GROUPS = '''

class GroupKeywords(SamplingKeywords, total=False):
    """As `RolloutKeywords`, where the number of rollouts per row is not among the settings."""

'''
ROLLOUTS = '''

class RolloutKeywords(SamplingKeywords, total=False):
    """Fields of `RolloutSettings`, some also under the names of their flags; and those of the sampling."""

'''
NEVER = {"model"}
"""Parameters that no run may set (`gym_runtime.files.rows.check_sampling`)."""


def module() -> str:
    """The source of ``gym_runtime/messages/rollout_keywords.py``."""
    settings = get_type_hints(RolloutSettings)
    sampling = {**get_type_hints(CreateParams), **get_type_hints(Sampling)}
    settings |= {other: settings[own] for other, own in OTHER_NAMES.items()}
    sampling = {name: kind for name, kind in sampling.items() if name not in NEVER}
    rollouts = _fields(settings)
    del settings["repeats"]
    return HEAD + _fields(sampling) + GROUPS + _fields(settings) + ROLLOUTS + rollouts


def _fields(types: Mapping[str, Any]) -> str:
    return "".join(f"    {name}: {written(kind)}\n" for name, kind in sorted(types.items()))


def written(kind: Any) -> str:
    """A type as it is written, containers as interfaces, because callers give lists and dictionaries.

    >>> written(tuple[str, ...] | None), written(dict[str, float])
    ('Sequence[str] | None', 'Mapping[str, float]')
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, Raw):
        return "Any"
    if kind in (None, NoneType):
        return "None"
    if origin in (Union, UnionType):
        return " | ".join(map(written, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(_quoted, arguments))}]"
    if origin in (tuple, list):
        return f"Sequence[{written(arguments[0])}]"
    if origin in (dict, Mapping):
        return f"Mapping[{', '.join(map(written, arguments))}]"
    return kind.__name__


def _quoted(value: str) -> str:
    return f'"{value}"'
