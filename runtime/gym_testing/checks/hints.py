"""What is probably a mistake in an environment, and breaks no rule of the contract."""

from __future__ import annotations

import difflib
import gc
import os
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NoReturn, cast

from gym_runtime.environment import DOMAINS, LoadedEnvironment, Resource, place

MUTABLE = (list, dict, set, bytearray, deque)
DATA = (*MUTABLE, int, float, str, bytes, tuple, frozenset, type(None))
"""Of attributes of a class. Methods and descriptors hold no state of an author's."""


def hints(
    environment: LoadedEnvironment, resource: Resource, before: dict[tuple[type, str], str]
) -> Iterator[tuple[str, str]]:
    """What each is about, and where it is.

    Args:
        before: `on_the_class` before the examples were played.
    """
    undescribed = [tool.name for tool in resource.tools.values() if not tool.definition()["description"]]
    if undescribed:
        detail = f"{', '.join(undescribed)}: the model reads the first paragraph of a tool's docstring"
        yield "every tool has a docstring", detail
    domain = environment.definition.domain
    near = difflib.get_close_matches(domain, DOMAINS, n=1, cutoff=0.85)
    if near and domain not in DOMAINS:
        detail = f"'{domain}' is a domain of your own; did you mean '{near[0]}'?"
        yield "the domain is the one that is meant", detail
    after = on_the_class(resource.session_type)
    for (owner, name), value in after.items():
        changed = before.get((owner, name)) != value
        if changed or (isinstance(vars(owner)[name], MUTABLE) and not name.isupper()):
            moved = ", and it changed while the examples were played" if changed else ""
            detail = (
                f"{place(owner)}{owner.__name__}.{name} is kept on the class, so all sessions of a worker "
                f"share it{moved}; give each session its own: self.{name} = … in open"
            )
            yield "no state is kept on the class", detail


@contextmanager
def exits_raise() -> Generator[None]:
    """Have `os._exit` raise within the block: it would end the check before its report."""
    end, own = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:  # a child that was forked here must end
            end(status)
        at = traceback.extract_stack(limit=2)[0]
        raise RuntimeError(
            f"os._exit({status}) at {at.filename}:{at.lineno} would end a worker with all its rollouts"
        )

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def unawaited() -> Generator[list[str]]:
    """Collect what an author's code forgets to await within the block: it has no answer, and no error."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            yield found
        finally:
            gc.collect()  # Python warns when the coroutine is freed
    for one in caught:
        said = str(one.message)
        if "was never awaited" in said:
            found += [said] if said not in found else []
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def on_the_class(session: type) -> dict[tuple[type, str], str]:
    """The data that an author's session class and its bases have as attributes, with what each holds."""
    return {
        (owner, name): repr(cast("object", value))
        for owner in session.__mro__
        if owner.__module__.partition(".")[0] not in ("gym_runtime", "builtins", "typing")
        for name, value in vars(owner).items()
        if not name.startswith("__") and isinstance(value, DATA)
    }
