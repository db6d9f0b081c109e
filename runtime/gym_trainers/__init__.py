"""Adapters to trainers: each implements a trainer's interface.

Either the system has engines, and a trainer takes its rollouts through a `SyncClient` (`trl`); or the trainer
has them, and the system's rollouts are sampled by the trainer's engine (`openrlhf`, `verl`, `skyrl`, on
`token_engine`). Those modules import the trainer, because they derive from its classes, and so their names
are loaded at their first use.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
