"""A system of processes: the private broker, the supervisor and the workers that it starts."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
