"""Environments: what an author declares, and how the runtime finds, opens, calls and verifies it."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
