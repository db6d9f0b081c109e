"""The way between workers. `gym_runtime.bus.interface` says what every bus promises."""

from gym_runtime import light_imports
from gym_runtime.public import public_names

light_imports.load("nats.aio.client", without="aiohttp")

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
