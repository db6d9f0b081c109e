"""Workers: what the processes that host agents, resources and models do.

`agent_worker`, `resource_worker` and `model_worker` are the three kinds; the other modules are parts of one
of them. `gym_runtime.system.worker_process` runs a worker in a process.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
