"""Runs untrusted code, such as code that a model wrote.

`Sandbox` runs programs, `Interpreter` is a Python session with a memory, `Container` keeps its files from one
command to the next, also on the files of an image. The first two isolate with bubblewrap: no
network, no files but the Python runtime's and `/usr` (read-only), no environment variables, an unprivileged
user, separate namespaces, fewer system calls, limits on all resources. At its end, each kills every process
that it has started. On a machine that cannot isolate, all raise an error with the remedy. With
``GYM_SANDBOX=weak`` in the environment they apply limits without isolation: the code can then read all files,
variables and networks that the worker can, so use it only where something else isolates the worker.
"""

from collections.abc import Callable
from typing import Any, cast

import lazy_loader

# The names are in the stub beside this file, and each is loaded when it is first used: a fork server imports
# a part of this package only.
__getattr__, __dir__, __all__ = cast(
    "tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]",
    lazy_loader.attach_stub(__name__, __file__),
)
