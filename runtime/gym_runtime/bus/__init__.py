"""The way between workers. `gym_runtime.bus.interface` says what every bus promises."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
