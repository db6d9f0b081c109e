"""The runtime in which language models are trained and evaluated on verifiable rewards.

Here are the names for authors of environments and users of the client. Agents and model adapters use
`gym_runtime.adapters`, trainers `gym_runtime.training`. Importing the package loads nothing else: each name
is loaded from its module when it is first used. The names are listed in ``__init__.pyi``.
"""

from __future__ import annotations

from typing import Any

from gym_runtime.public import public_names
from gym_runtime.version import VERSION

_load, __dir__, __all__ = public_names(__name__, __file__)
__version__ = VERSION


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    raise AttributeError(
        f"module 'gym_runtime' has no attribute '{name}'; look in gym_runtime.adapters, "
        "gym_runtime.training, gym_runtime.messages, gym_sandbox or gym_trainers (docs/reference/python.md)"
    )
