"""Requests between workers: which workers are alive, which one is asked, retries, lost answers."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
