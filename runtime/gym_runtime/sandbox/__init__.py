"""Running code that nobody has read: what a model wrote.

`Sandbox` runs programs, `Interpreter` is a Python session with a memory. Both isolate with bubblewrap: no
network, no files but the Python runtime's and `/usr` (read-only), no environment variables, an unprivileged
user, namespaces of its own, fewer system calls, limits on all resources; both end with every process that
they have started. Where that cannot be had they refuse with the remedy. ``GYM_SANDBOX=weak`` in the
environment accepts limits without isolation: such code reads every file, variable and network that the worker
may; use it only where something else isolates the worker.
"""

from gym_runtime.sandbox.box import Result, Sandbox, slots
from gym_runtime.sandbox.interpreter import Execution, Interpreter
from gym_runtime.sandbox.limits import Limits
from gym_runtime.sandbox.python import command as python_command

__all__ = ["Execution", "Interpreter", "Limits", "Result", "Sandbox", "python_command", "slots"]
