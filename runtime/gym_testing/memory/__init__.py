"""A bus without a broker: the promises of `gym_runtime.bus.interface`, kept within one process.

One `MemoryBroker` has the stored data; each connection to it represents a worker. Connections can be cut and
frozen, and a policy can drop, double and delay messages, so that whole systems can be simulated, on virtual
time (`gym_testing.virtual_clock`) and the same way for the same seed::

    broker = MemoryBroker(seed=7, faults=Chances(drop=0.01, delay=0.1))
    async with broker.connect("agent-1") as bus:
        ...

It loses only what the contract allows: signals, requests, answers, deliveries, acknowledgements, and the
broker's reply to a store. It never loses stored data.
"""

from gym_testing.memory.faults import NO_FAULTS, Chances, Fate, Faults, Passing
from gym_testing.memory.memory_bus import MemoryBroker, MemoryBus

__all__ = ["NO_FAULTS", "Chances", "Fate", "Faults", "MemoryBroker", "MemoryBus", "Passing"]
