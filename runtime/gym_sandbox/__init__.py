"""Runs untrusted code, such as code that a model wrote.

`Sandbox` runs programs, `Interpreter` is a Python session with a memory, `Container` keeps its files from one
command to the next, also on the files of an image. The first two isolate with bubblewrap: no
network, no files but the Python runtime's and `/usr` (read-only), no environment variables, an unprivileged
user, separate namespaces, fewer system calls, limits on all resources. At its end, each kills every process
that it has started. On a machine that cannot isolate, all raise an error with the remedy. With
``GYM_SANDBOX=weak`` in the environment they apply limits without isolation: the code can then read all files,
variables and networks that the worker can, so use it only where something else isolates the worker.
"""

from gym_sandbox.box import Result, Sandbox, slots
from gym_sandbox.container import Container
from gym_sandbox.container_engines import image_name
from gym_sandbox.interpreter import Execution, Interpreter
from gym_sandbox.limits import Limits
from gym_sandbox.python import command as python_command
from gym_sandbox.warm import ProcessDied

__all__ = [
    "Container",
    "Execution",
    "Interpreter",
    "Limits",
    "ProcessDied",
    "Result",
    "Sandbox",
    "image_name",
    "python_command",
    "slots",
]
