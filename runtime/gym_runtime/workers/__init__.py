"""Workers: what the processes that host agents, resources and models do.

`agent`, `resource` and `model` are the three kinds; the other modules are parts of one
of them. `gym_runtime.system.worker_process` runs a worker in a process.
"""

from gym_runtime.workers.prefixes import moved as moved
from gym_runtime.workers.prefixes import splice as splice
