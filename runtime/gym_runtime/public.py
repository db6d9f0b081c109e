"""A package's public names, written once: in the stub beside it, which type checkers read, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import lazy_loader

Names = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def public_names(package: str, file: str) -> Names:
    """``__getattr__``, ``__dir__`` and ``__all__`` for the module in ``file``, from the ``.pyi`` beside it.

    Each name is loaded from its module when it is first used.
    """
    return cast("Names", lazy_loader.attach_stub(package, file))
