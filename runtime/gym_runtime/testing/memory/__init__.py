"""A bus without a broker: the promises of `gym_runtime.bus.interface`, kept within one process.

One `MemoryBroker` holds what is stored; each connection to it stands for a worker. Connections can be cut
and frozen, and a policy can drop, double and delay what passes, so that whole systems are simulated, on
virtual time (`gym_runtime.testing.clock`) and the same way for the same seed::

    broker = MemoryBroker(seed=7, faults=Chances(drop=0.01, delay=0.1))
    async with broker.connect("agent-1") as bus:
        ...

Only that is lost which the contract allows to be lost: signals, requests, answers, deliveries and
acknowledgements, and the news whether something was stored; never what was stored.
"""

from gym_runtime.testing.memory.faults import NO_FAULTS, Chances, Fate, Faults, Passing
from gym_runtime.testing.memory.memory_broker import MemoryBroker
from gym_runtime.testing.memory.memory_bus import MemoryBus

__all__ = ["NO_FAULTS", "Chances", "Fate", "Faults", "MemoryBroker", "MemoryBus", "Passing"]
