"""The command line, and the names that guests write commands with: options, terminal, running systems."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
