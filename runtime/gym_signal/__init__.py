"""What is worth sampling: groups with signal, curricula, staleness kept by pacing, useful tokens."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
