"""Names for trainers: groups, sequences, advantages, runs; the list is in ``training.pyi``."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names("gym_runtime", __file__)
